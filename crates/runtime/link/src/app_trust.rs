//! Trust in callers without a secret: SuperExecs that request runs, and ServerApps of Flower 1.25 to 1.27, which send
//! no token. A loopback address proves nothing, because other users of the machine and proxies have it too. The owner
//! of the peer's socket decides.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use http::HeaderMap;
use rustix::process::geteuid;
use trellis_core::refusal::{Kind, Refusal};
use trellis_flower::changes::APPS_HAVE_TOKENS;
use trellis_front::{ConnectionHandle, ConnectionId, Transport};

use crate::config::{AppTrust, Isolation};
use crate::dialect::{Client, Version};
use crate::link::Link;

/// Headers with which a proxy names its client. A proxied call is not a call of the proxy's user.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
/// The state `ESTABLISHED` in the kernel's socket tables.
const ESTABLISHED: &str = "01";
const ROOT: u32 = 0;
/// Maximum number of connections with a cached owner. Each lookup reads the table of all sockets of the machine.
const MAX_KNOWN: usize = 1024;

/// The peer of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Peer {
    Remote,
    /// On this machine. `owners` are the users that own a socket with the peer's address: one, or none if it is not
    /// found.
    Local {
        owners: Vec<u32>,
    },
}

/// Identifies the peer of each connection once.
#[derive(Default)]
pub struct Peers(Mutex<HashMap<ConnectionId, Vec<u32>>>);

impl Peers {
    fn identify(&self, connection: &ConnectionHandle, remote: SocketAddr, headers: &HeaderMap) -> Peer {
        let ip = remote.ip().to_canonical();
        if !ip.is_loopback() || FORWARDED.iter().any(|name| headers.contains_key(*name)) {
            return Peer::Remote;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owners) = known.get(&connection.id()) {
            return Peer::Local { owners: owners.clone() };
        }
        let owners = find_owners(SocketAddr::new(ip, remote.port()));
        if known.len() >= MAX_KNOWN {
            known.retain(|connection, _| connection.is_open());
        }
        if known.len() < MAX_KNOWN && !owners.is_empty() {
            known.insert(connection.id(), owners.clone());
        }
        Peer::Local { owners }
    }
}

fn find_owners(address: SocketAddr) -> Vec<u32> {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    tables.iter().flat_map(|table| owners(&fs::read_to_string(table).unwrap_or_default(), address)).collect()
}

/// Owners of the sockets in `table` (format of `/proc/net/tcp`) that are connected from `address`.
fn owners(table: &str, address: SocketAddr) -> Vec<u32> {
    let forms = hexadecimal(address);
    let owner = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, _remote, state) = (words.next()?, words.next()?, words.next()?);
        let is_peer = state == ESTABLISHED && forms.iter().any(|form| form == local);
        is_peer.then(|| words.nth(3)?.parse().ok()).flatten()
    };
    table.lines().skip(1).filter_map(owner).collect()
}

/// Formats an address as the socket tables do: 32-bit words in native byte order. An IPv4 address may be in both
/// tables.
fn hexadecimal(address: SocketAddr) -> Vec<String> {
    let word = |bytes: &[u8]| format!("{:08X}", u32::from_ne_bytes(bytes.try_into().expect("four bytes")));
    let v6 = |octets: [u8; 16]| octets.chunks(4).map(word).collect::<String>();
    let ips = match address.ip() {
        IpAddr::V4(ip) => vec![word(&ip.octets()), v6(ip.to_ipv6_mapped().octets())],
        IpAddr::V6(ip) => vec![v6(ip.octets())],
    };
    ips.into_iter().map(|ip| format!("{ip}:{:04X}", address.port())).collect()
}

/// A caller without a token and without a signature.
pub struct Unproven<'a> {
    pub client: &'a Client,
    /// The call came in on the port for ServerApps and SuperExecs.
    pub on_app_port: bool,
    pub connection: &'a ConnectionHandle,
    pub remote: SocketAddr,
    pub headers: &'a HeaderMap,
}

/// Checks that the caller may act as the ServerApp of the run that it names.
pub fn check_app(link: &Link, caller: &Unproven<'_>) -> Result<(), Refusal> {
    match needs_token(link.isolation, caller.on_app_port, caller.client) {
        Some(why) => Err(Refusal::new(Kind::Unauthenticated, why)),
        None => check_launcher(link, caller),
    }
}

/// Checks that the caller may take runs and start their ServerApps.
pub fn check_launcher(link: &Link, caller: &Unproven<'_>) -> Result<(), Refusal> {
    let peer = link.peers.identify(caller.connection, caller.remote, caller.headers);
    if is_trusted(link.app_trust, caller.on_app_port, &peer, geteuid().as_raw()) {
        return Ok(());
    }
    Err(Refusal::new(Kind::Unauthenticated, NOT_TRUSTED))
}

/// Returns whether a peer without a secret is trusted. `own` is the user of the SuperLink.
fn is_trusted(trust: AppTrust, on_app_port: bool, peer: &Peer, own: u32) -> bool {
    match (trust, peer) {
        (AppTrust::User, Peer::Local { owners }) => {
            !owners.is_empty() && owners.iter().all(|owner| *owner == own || *owner == ROOT)
        }
        (AppTrust::Machine | AppTrust::Network, Peer::Local { .. }) => true,
        (AppTrust::Network, Peer::Remote) => on_app_port,
        (AppTrust::User | AppTrust::Machine, Peer::Remote) => false,
    }
}

/// Returns why a ServerApp without a token is refused before its peer is identified, or `None` if its release sends no
/// tokens.
fn needs_token(isolation: Isolation, on_app_port: bool, client: &Client) -> Option<&'static str> {
    let announces_tokens = client.version.is_some_and(|version| version >= Version::of(APPS_HAVE_TOKENS));
    if isolation == Isolation::Subprocess {
        return Some("the task token is missing: this SuperLink starts ServerApps itself and gives each a token");
    }
    if announces_tokens || !on_app_port || client.transport != Transport::Grpc {
        return Some("the task token is missing");
    }
    None
}

/// Error message for callers that are not trusted.
const NOT_TRUSTED: &str = "without a token or a secret, only programs of the SuperLink's own user on its machine may do \
    this: run the SuperExec as that user, give --superexec-auth-secret-file (Flower 1.30 and later), or start the SuperLink \
    with --serverappio-trust";

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn table_of_trusted_peers() {
        use AppTrust::{Machine, Network, User};
        let local = |owners: &[u32]| Peer::Local { owners: owners.to_vec() };
        let (own, other) = (1000, 1001);
        for (trust, on_app_port, peer, want) in [
            (User, true, local(&[own]), true),
            (User, false, local(&[own]), true),
            (User, true, local(&[ROOT]), true),
            (User, true, local(&[other]), false),
            (User, true, local(&[own, other]), false),
            (User, true, local(&[]), false),
            (User, true, Peer::Remote, false),
            (Machine, true, local(&[other]), true),
            (Machine, true, local(&[]), true),
            (Machine, true, Peer::Remote, false),
            (Network, true, local(&[other]), true),
            (Network, true, Peer::Remote, true),
            (Network, false, Peer::Remote, false),
        ] {
            assert_eq!(is_trusted(trust, on_app_port, &peer, own), want, "{trust:?} {on_app_port} {peer:?}");
        }
    }

    #[test]
    fn table_of_required_tokens() {
        let client = |transport, minor: Option<u16>| Client {
            transport,
            version: minor.map(|minor| Version { major: 1, minor }),
        };
        for (isolation, on_app_port, client, want) in [
            (Isolation::Process, true, client(Transport::Grpc, None), false),
            (Isolation::Process, true, client(Transport::Grpc, Some(27)), false),
            (Isolation::Process, true, client(Transport::Grpc, Some(28)), true),
            (Isolation::Process, true, client(Transport::Http, None), true),
            (Isolation::Process, false, client(Transport::Grpc, None), true),
            (Isolation::Subprocess, true, client(Transport::Grpc, None), true),
        ] {
            assert_eq!(needs_token(isolation, on_app_port, &client).is_some(), want, "{isolation:?} {client:?}");
        }
    }

    #[test]
    fn the_owner_of_a_socket_is_found_by_its_address() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let peer = connected.local_addr().unwrap();
            assert_eq!(find_owners(peer), [geteuid().as_raw()], "{address}");
            drop(connected);
        }
    }

    #[test]
    fn unconnected_sockets_are_ignored() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:C350 0100007F:2383 01 00000000:00000000 00:00000000 00000000  1001        0 1 1 0 20 4 30 10 -1\n\
             1: 0100007F:C350 0100007F:01BB 06 00000000:00000000 00:00000000 00000000     0        0 0 3 0\n\
             2: 0100007F:C350 0100007F:01BB 01 00000000:00000000 00:00000000 00000000  1002        0 2 1 0 20 4 30 10 -1\n\
             3: 0100007F:C351 0100007F:2383 01 00000000:00000000 00:00000000 00000000  1003        0 3 1 0 20 4 30 10 -1\n";
        if cfg!(target_endian = "little") {
            assert_eq!(owners(table, "127.0.0.1:50000".parse().unwrap()), [1001, 1002]);
        }
        assert_eq!(owners("", "127.0.0.1:50000".parse().unwrap()), Vec::<u32>::new());
    }
}

//! Configuration of a gateway: its keys, its peers, and the networks behind them.

use std::fmt::Write;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::key::{PrivateKey, PublicKey};

const MTUS: std::ops::RangeInclusive<u16> = 1280..=9000;
/// Maximum number of sites.
const MAX_PEERS: usize = 1000;
const WRITTEN: &str = "writing to a String succeeds";

/// Unvalidated configuration: keys are Base64, networks have a prefix length.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    pub private_key: String,
    /// Address in the tunnel: `10.66.0.2/24`.
    pub address: String,
    pub listen_port: u16,
    pub mtu: u16,
    pub peers: Vec<PeerDraft>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerDraft {
    /// Site of the peer.
    pub name: String,
    pub public_key: String,
    /// `None` if the peer connects.
    pub endpoint: Option<String>,
    pub allowed: Vec<String>,
    pub keepalive_s: Option<u16>,
}

/// Validated configuration, created from a [`Draft`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    private_key: PrivateKey,
    address: String,
    listen_port: u16,
    mtu: u16,
    peers: Vec<Peer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub name: String,
    pub public_key: PublicKey,
    pub endpoint: Option<String>,
    pub allowed: Vec<String>,
    pub keepalive_s: Option<u16>,
}

impl Config {
    /// `Err` contains all problems.
    pub fn new(draft: Draft) -> Result<Config, Vec<String>> {
        let mut problems = Vec::new();
        let private_key = PrivateKey::parse(&draft.private_key);
        problems.extend(private_key.as_ref().err().map(|error| format!("the private key: {error}")));
        if !is_network(&draft.address) {
            problems.push(format!("`{}` is not an address with a prefix length, like 10.66.0.2/24", draft.address));
        }
        if draft.listen_port == 0 {
            problems.push("the listen port is 0: use 1 to 65535".to_owned());
        }
        if !MTUS.contains(&draft.mtu) {
            problems.push(format!("an MTU of {}: want {} to {}", draft.mtu, MTUS.start(), MTUS.end()));
        }
        if draft.peers.len() > MAX_PEERS {
            problems.push(format!("{} peers: the maximum is {MAX_PEERS}", draft.peers.len()));
        }
        let Draft { address, listen_port, mtu, peers, .. } = draft;
        let peers: Vec<Peer> = peers.into_iter().filter_map(|peer| Peer::new(peer, &mut problems)).collect();
        let own = private_key.as_ref().ok().map(PrivateKey::public);
        for (index, peer) in peers.iter().enumerate() {
            if peers[..index].iter().any(|other| other.public_key == peer.public_key) || own == Some(peer.public_key) {
                problems.push(format!("peer {}: another peer has the same public key", peer.name));
            }
        }
        match private_key {
            Ok(private_key) if problems.is_empty() => Ok(Config { private_key, address, listen_port, mtu, peers }),
            _ => Err(problems),
        }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn listen_port(&self) -> u16 {
        self.listen_port
    }

    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    pub fn public_key(&self) -> PublicKey {
        self.private_key.public()
    }

    /// Networks behind all peers, without duplicates.
    pub fn routes(&self) -> Vec<&str> {
        let mut routes: Vec<&str> = Vec::new();
        for network in self.peers.iter().flat_map(|peer| &peer.allowed) {
            if !routes.contains(&network.as_str()) {
                routes.push(network);
            }
        }
        routes
    }

    /// For `wg setconf` and `wg syncconf`. Contains the private key.
    pub fn to_setconf(&self) -> String {
        let mut text =
            format!("[Interface]\nPrivateKey = {}\nListenPort = {}\n", self.private_key.reveal(), self.listen_port);
        self.peers.iter().for_each(|peer| peer.write(&mut text));
        text
    }

    /// For `wg-quick`, which also sets addresses and routes. Contains the private key.
    pub fn to_quick(&self) -> String {
        let Config { address, listen_port, mtu, .. } = self;
        let key = self.private_key.reveal();
        let mut text =
            format!("[Interface]\nAddress = {address}\nPrivateKey = {key}\nListenPort = {listen_port}\nMTU = {mtu}\n");
        self.peers.iter().for_each(|peer| peer.write(&mut text));
        text
    }
}

impl Peer {
    fn new(draft: PeerDraft, problems: &mut Vec<String>) -> Option<Peer> {
        let before = problems.len();
        let PeerDraft { name, public_key, endpoint, allowed, keepalive_s } = draft;
        let named = |what: String| format!("peer {}: {what}", name.escape_debug());
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.') {
            problems.push(named("its name may have letters, digits, -, _ and dots".to_owned()));
        }
        let public_key = PublicKey::parse(&public_key);
        problems.extend(public_key.as_ref().err().map(|error| named(format!("its public key: {error}"))));
        if let Some(strange) = endpoint.as_deref().filter(|endpoint| !is_endpoint(endpoint)) {
            problems.push(named(format!("`{}` is not a host with a port", strange.escape_debug())));
        }
        let strange = allowed.iter().filter(|network| !is_network(network));
        problems.extend(strange.map(|network| named(format!("`{}` is not a network", network.escape_debug()))));
        if allowed.is_empty() {
            problems.push(named("it has no network".to_owned()));
        }
        let public_key = public_key.ok().filter(|_| problems.len() == before)?;
        Some(Peer { name, public_key, endpoint, allowed, keepalive_s })
    }

    fn write(&self, text: &mut String) {
        writeln!(text, "\n# {}\n[Peer]\nPublicKey = {}", self.name, self.public_key).expect(WRITTEN);
        if let Some(endpoint) = &self.endpoint {
            writeln!(text, "Endpoint = {endpoint}").expect(WRITTEN);
        }
        writeln!(text, "AllowedIPs = {}", self.allowed.join(", ")).expect(WRITTEN);
        if let Some(seconds) = self.keepalive_s.filter(|seconds| *seconds > 0) {
            writeln!(text, "PersistentKeepalive = {seconds}").expect(WRITTEN);
        }
    }
}

fn is_network(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else { return false };
    let most = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    prefix.bytes().all(|byte| byte.is_ascii_digit()) && prefix.parse().is_ok_and(|prefix: u8| prefix <= most)
}

fn is_endpoint(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse().is_ok_and(|port: u16| port > 0);
    let ipv6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match ipv6 {
        Some(address) => matches!(address.parse(), Ok(IpAddr::V6(_))),
        None => !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '-'),
    };
    is_host && is_port
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const OTHER: &str = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";

    fn draft() -> Draft {
        let peer = PeerDraft {
            name: "lyon".to_owned(),
            public_key: OTHER.to_owned(),
            endpoint: Some("vpn.lyon.example.org:51820".to_owned()),
            allowed: vec!["10.66.0.2/32".to_owned(), "10.10.11.0/24".to_owned()],
            keepalive_s: Some(25),
        };
        Draft {
            private_key: KEY.to_owned(),
            address: "10.66.0.1/24".to_owned(),
            listen_port: 51820,
            mtu: 1420,
            peers: vec![peer],
        }
    }

    #[test]
    fn it_is_written_as_wireguard_reads_it() {
        let config = Config::new(draft()).unwrap();
        let key = PrivateKey::parse(KEY).unwrap().reveal();
        let peer = format!(
            "\n# lyon\n[Peer]\nPublicKey = {OTHER}\nEndpoint = vpn.lyon.example.org:51820\n\
             AllowedIPs = 10.66.0.2/32, 10.10.11.0/24\nPersistentKeepalive = 25\n"
        );
        assert_eq!(config.to_setconf(), format!("[Interface]\nPrivateKey = {key}\nListenPort = 51820\n{peer}"));
        let interface =
            format!("[Interface]\nAddress = 10.66.0.1/24\nPrivateKey = {key}\nListenPort = 51820\nMTU = 1420\n");
        assert_eq!(config.to_quick(), interface + &peer);
        assert_eq!(config.routes(), ["10.66.0.2/32", "10.10.11.0/24"]);
        let silent = PeerDraft { endpoint: None, keepalive_s: None, ..draft().peers.remove(0) };
        let text = Config::new(Draft { peers: vec![silent], ..draft() }).unwrap().to_setconf();
        assert!(!text.contains("Endpoint") && !text.contains("Keepalive"), "{text}");
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let peer = PeerDraft {
            name: "ly\non".to_owned(),
            public_key: "short".to_owned(),
            endpoint: Some("host:1\nPostUp = sh".to_owned()),
            allowed: vec!["0.0.0.0/33".to_owned()],
            keepalive_s: None,
        };
        let bad = Draft {
            private_key: String::new(),
            address: "10.66.0.1".to_owned(),
            listen_port: 0,
            mtu: 100,
            peers: vec![peer],
        };
        let problems = Config::new(bad).unwrap_err();
        assert_eq!(problems.len(), 8, "{problems:#?}");
        assert!(problems.iter().all(|problem| !problem.contains('\n')), "{problems:#?}");
        let twice = Draft { peers: vec![draft().peers.remove(0), draft().peers.remove(0)], ..draft() };
        assert_eq!(Config::new(twice).unwrap_err(), ["peer lyon: another peer has the same public key"]);
    }
}

//! Settings of a gateway.

use std::collections::BTreeSet;

use super::{Reader, value, variable};
use crate::settings::{GatewaySettings, Peer};

/// `None` if a mandatory value is missing; the reader has the problem.
pub fn read(reader: &mut Reader) -> Option<GatewaySettings> {
    for (name, advice) in [
        ("WG_PRIVATE_KEY", "create one with wg genkey, and use it for this gateway only"),
        ("WG_LOCAL_ADDRESS", "set its address in the tunnel, like 10.66.0.2/24"),
    ] {
        if !reader.is_set(name) {
            reader.reject(name, "it is missing, and a gateway requires it", advice);
        }
    }
    let private_key = reader.take("WG_PRIVATE_KEY", value::wireguard_key);
    let local_address = reader.take("WG_LOCAL_ADDRESS", value::interface);
    let listen_port = u16::try_from(reader.integer("WG_LISTEN_PORT")).unwrap_or(u16::MAX);
    let mtu = u16::try_from(reader.integer("WG_MTU")).unwrap_or(u16::MAX);
    let peers = peers(reader);
    Some(GatewaySettings { private_key: private_key?, local_address: local_address?, listen_port, mtu, peers })
}

fn peers(reader: &mut Reader) -> Vec<Peer> {
    let numbers: BTreeSet<Option<u32>> =
        reader.given.keys().filter(|(name, _)| variable(name).numbered).map(|(_, number)| *number).collect();
    if numbers.is_empty() {
        let what = "a tunnel requires a peer";
        reader.reject("WG_PEER_PUBLIC_KEY", what, "give WG_PEER_PUBLIC_KEY and WG_PEER_ALLOWED_IPS");
    }
    let mut peers: Vec<Peer> = Vec::new();
    for number in numbers {
        let Some(peer) = peer(reader, number) else { continue };
        if peers.iter().any(|other| other.public_key == peer.public_key) {
            let what = format!("{} has the same key as another peer", peer_name(number));
            reader.reject("WG_PEER_PUBLIC_KEY", what, "give each gateway its own key");
        }
        let both =
            peer.allowed_ips.iter().find(|network| peers.iter().any(|other| other.allowed_ips.contains(network)));
        if let Some(network) = both {
            let what = format!("{network} is behind two peers; one of them is {}", peer_name(number));
            reader.reject("WG_PEER_ALLOWED_IPS", what, "name each network once");
        }
        peers.push(peer);
    }
    peers
}

fn peer(reader: &mut Reader, number: Option<u32>) -> Option<Peer> {
    for name in ["WG_PEER_PUBLIC_KEY", "WG_PEER_ALLOWED_IPS"] {
        if !reader.given.contains_key(&(name, number)) {
            let spelling = variable(name).spellings(number).swap_remove(0);
            reader.reject(name, format!("{} has none", peer_name(number)), format!("give {spelling}"));
        }
    }
    let public_key = reader.take_numbered("WG_PEER_PUBLIC_KEY", number, value::wireguard_key);
    let endpoint = reader.take_numbered("WG_PEER_ENDPOINT", number, value::authority);
    let allowed_ips = reader.take_numbered("WG_PEER_ALLOWED_IPS", number, value::networks);
    let keepalive = variable("WG_PEER_KEEPALIVE");
    let parse = |text: &str| value::integer(text, keepalive.kind);
    let seconds = reader.take_numbered("WG_PEER_KEEPALIVE", number, parse).or_else(|| parse(keepalive.default).ok());
    let keepalive_s = seconds.and_then(|seconds| u16::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
    Some(Peer { public_key: public_key?, endpoint, allowed_ips: allowed_ips?, keepalive_s })
}

fn peer_name(number: Option<u32>) -> String {
    number.map_or_else(|| "the peer".to_owned(), |number| format!("peer {number}"))
}

//! The fields of a site's link to the coordinator's site. Links are checked against each other later.

use std::time::Duration;

use crate::amount;
use crate::cidr::Cidr;
use crate::federation::{Link, WireGuardLink};
use crate::kind::{Fault, ListOf, Scalar, duration, port, whole, word};
use crate::object::Object;

/// A ping and its response must fit twice into the idle timeout.
const SHORTEST_IDLE: Duration = Duration::from_secs(10);
const LEAST_MTU: u32 = 1280;
const MOST_MTU: u32 = 9000;

/// `None` if it has errors, which are recorded.
pub(crate) fn read(object: &mut Object<'_>) -> (Option<Link>, Option<Duration>) {
    let help = "A tunnel between a gateway at this site and one at the coordinator's.";
    let tunnel = object.optional_object("wireguard", help, wireguard);
    let help = "Idle timeout of firewalls on the path; nodes ping at least twice as often.";
    let idle = object.optional("idleTimeout", duration(), help);
    if idle.is_some_and(|idle| idle < SHORTEST_IDLE) {
        let least = SHORTEST_IDLE.as_secs();
        object
            .at("idleTimeout")
            .refuse(format!("the idle timeout must be at least {least}s"), format!("write {least}s or more"));
    }
    (tunnel.map_or(Some(Link::Direct), |tunnel| tunnel.map(Link::WireGuard)), idle)
}

fn wireguard(object: &mut Object<'_>) -> Option<WireGuardLink> {
    let help = "Address of this gateway for others; without it, this gateway connects to them.";
    let endpoint = object.optional("endpoint", endpoint(), help);
    let listen_port = object.or("listenPort", port(), "51820", "Port (UDP) of the gateway.");
    let help = "Networks of the site that are routed through the tunnel.";
    let networks = object.required("networks", ListOf(network("10.10.11.0/24")), help);
    let help = "MTU of the tunnel: 80 less than that of the path.";
    let mtu = object.or("mtu", whole(LEAST_MTU..=MOST_MTU), "1420", help);
    let help = "Interval of keepalive packets, for NAT; 0s: none.";
    let keepalive = object.or("keepalive", keepalive(), "25s", help);
    let help = "Addresses of the gateways in the tunnel, 10.66.0.0/24 by default; at the coordinator's site.";
    let subnet = object.optional("subnet", network("10.66.0.0/24"), help);
    let networks = networks?;
    if networks.is_empty() {
        object.at("networks").refuse("no network is given", "name the networks of the site");
    }
    Some(WireGuardLink {
        endpoint,
        listen_port: listen_port.get(),
        networks,
        mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        keepalive_s: keepalive,
        subnet,
    })
}

fn network(example: &'static str) -> Scalar<String> {
    let parse = |text: &str, _: bool| match Cidr::parse(text) {
        Ok(network) => Ok(network.to_string()),
        Err(why) => Err(Fault::because(format!("{text:?} is not a network: {why}"), "write it like 10.10.11.0/24")),
    };
    let schema = serde_json::json!({ "type": "string", "pattern": "^[0-9A-Fa-f:.]+/[0-9]+$" });
    Scalar::new("a network", example, schema, parse)
}

fn keepalive() -> Scalar<u16> {
    let parse = |text: &str, _: bool| {
        let seconds = amount::duration(text).and_then(|found| u16::try_from(found.as_secs()).ok());
        seconds.ok_or(Fault::Unfit)
    };
    let schema = serde_json::json!({ "type": "string", "pattern": "^[0-9]+ ?[smhd]$" });
    Scalar::new(format!("a length of time, up to {}s", u16::MAX), "25s", schema, parse)
}

/// A host name or an address, and a port.
fn endpoint() -> Scalar<String> {
    word("a host and a port", "vpn.example.org:51820", r"^(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):[0-9]+$", |text| {
        let Some((host, port)) = text.rsplit_once(':') else { return false };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        let ipv6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match ipv6 {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => host.chars().all(plain) && host.starts_with(|c: char| c.is_ascii_alphanumeric()),
        };
        let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse().is_ok_and(|port: u16| port > 0);
        is_host && is_port
    })
}

//! Facts about the machine: addresses, networks, disk, clock, GPUs and ports; and checks whether they satisfy a role. Parsing
//! is pure; `observe` opens the files.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::failure::{Code, Failure};
use crate::place::Place;
use crate::settings::{RoleSettings, Settings};

/// Minimum free space. A database grows before it can shrink.
pub const MIN_FREE_BYTES: u64 = 64 << 20;
/// Maximum clock difference to OneGate. Certificates tolerate an hour, and other machines may differ in the other direction.
pub const MAX_SKEW_S: i64 = 300;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Addresses that other machines can reach, in the order of the interfaces; without loopback and link-local ones.
    pub addresses: Vec<IpAddr>,
    /// Networks of the machine.
    pub networks: Vec<Network>,
    pub free_bytes: Option<u64>,
    pub gpu: bool,
    pub python: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    pub address: IpAddr,
    pub prefix: u8,
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Reads the facts.
pub fn observe(place: &Place) -> Facts {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (trie, inet6, route) = (read("/proc/net/fib_trie"), read("/proc/net/if_inet6"), read("/proc/net/route"));
    let v6 = global_v6(&inet6);
    let mut addresses: Vec<IpAddr> = local_v4(&trie).into_iter().map(IpAddr::V4).collect();
    addresses.extend(v6.iter().map(|(ip, _)| IpAddr::V6(*ip)));
    let mut networks = connected_v4(&route);
    networks.extend(v6.iter().map(|(ip, prefix)| network_v6(*ip, *prefix)));
    let gpu = ["/dev/nvidia0", "/proc/driver/nvidia/version"].iter().all(|path| Path::new(path).exists());
    Facts { addresses, networks, free_bytes: free(&place.state()).ok(), gpu, python: place.python().exists() }
}

fn free(path: &Path) -> io::Result<u64> {
    let mut nearest = path;
    while !nearest.exists() {
        nearest = nearest.parent().ok_or(io::ErrorKind::NotFound)?;
    }
    let found = rustix::fs::statvfs(nearest)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Addresses of this machine, from `/proc/net/fib_trie`.
fn local_v4(trie: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in trie.lines().map(str::trim) {
        if let Some(leaf) = line.strip_prefix("|-- ") {
            last = leaf.parse().ok();
        } else if line.starts_with("/32 host LOCAL")
            && let Some(ip) = last
            && !ip.is_loopback()
            && !ip.is_link_local()
            && !found.contains(&ip)
        {
            found.push(ip);
        }
    }
    found
}

/// Global addresses and their prefixes, from `/proc/net/if_inet6`.
fn global_v6(table: &str) -> Vec<(Ipv6Addr, u8)> {
    let global = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [hex, _, prefix, scope, _, _] = fields[..] else { return None };
        let ip = Ipv6Addr::from(u128::from_str_radix(hex, 16).ok()?);
        (scope == "00").then_some((ip, u8::from_str_radix(prefix, 16).ok()?))
    };
    table.lines().filter_map(global).collect()
}

fn network_v6(ip: Ipv6Addr, prefix: u8) -> Network {
    let mask = if prefix == 0 { 0 } else { u128::MAX << (128 - u32::from(prefix.min(128))) };
    Network { address: Ipv6Addr::from(u128::from(ip) & mask).into(), prefix }
}

/// Networks without a gateway, from `/proc/net/route`: hexadecimal numbers in little-endian order.
fn connected_v4(table: &str) -> Vec<Network> {
    let number = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::swap_bytes);
    let connected = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (destination, gateway, mask) = (number(fields.get(1)?)?, number(fields.get(2)?)?, number(fields.get(7)?)?);
        let prefix = u8::try_from(mask.count_ones()).ok()?;
        (gateway == 0 && mask != 0).then(|| Network { address: Ipv4Addr::from(destination).into(), prefix })
    };
    table.lines().skip(1).filter_map(connected).collect()
}

/// Address that a SuperLink advertises.
pub fn advertised(fleet: SocketAddr, facts: &Facts) -> Option<IpAddr> {
    if !fleet.ip().is_unspecified() {
        return Some(fleet.ip());
    }
    // 0.0.0.0 accepts IPv4 only, [::] accepts both.
    facts.addresses.iter().find(|ip| fleet.is_ipv6() || ip.is_ipv4()).copied()
}

/// Checks the machine against the settings. Returns the first failure.
pub fn preflight(settings: &Settings, facts: &Facts) -> Result<(), Failure> {
    if let Some(free) = facts.free_bytes.filter(|free| *free < MIN_FREE_BYTES) {
        let what = format!("{} MiB are free, {} MiB are needed", free >> 20, MIN_FREE_BYTES >> 20);
        return Err(Failure::new(Code::DiskFull, what));
    }
    match &settings.role {
        RoleSettings::SuperLink(link) if advertised(link.fleet, facts).is_none() => {
            let what =
                format!("the VM has no address that nodes can reach, and the Fleet API listens at {}", link.fleet);
            Err(Failure::new(Code::PreflightFailed, what))
        }
        RoleSettings::SuperNode(node) if node.gpu.as_ref().is_some_and(|gpu| !gpu.fallback_to_cpu) && !facts.gpu => {
            Err(Failure::new(Code::GpuMissing, "FL_GPU_ENABLED=YES, but this VM has no NVIDIA GPU"))
        }
        _ => Ok(()),
    }
}

/// Checks the clock against OneGate's, if TLS is used.
pub fn skew(tls: bool, theirs: Option<&str>, now_s: i64) -> Result<(), Failure> {
    let date = theirs.and_then(|text| jiff::fmt::rfc2822::parse(&text.replace("GMT", "+0000")).ok());
    let Some(theirs) = date.map(|date| date.timestamp().as_second()) else { return Ok(()) };
    let apart = now_s - theirs;
    if !tls || apart.abs() <= MAX_SKEW_S {
        return Ok(());
    }
    let (amount, direction) = (apart.abs(), if apart > 0 { "ahead of" } else { "behind" });
    Err(Failure::new(Code::ClockSkew, format!("this VM's clock is {amount} s {direction} that of OneGate")))
}

/// Whether another program listens at the address.
pub fn port_busy(address: SocketAddr) -> Option<Failure> {
    match TcpListener::bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Some(Failure::new(Code::PortBusy, format!("another program listens at {address}")))
        }
        // The program itself reports other errors.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_files_of_the_system_are_parsed() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 192.0.2.0\n        \
                    /24 link UNICAST\n     |-- 192.0.2.2\n        /32 host LOCAL\n     |-- 192.0.2.255\n        \
                    /32 link BROADCAST\nLocal:\n     |-- 192.0.2.2\n        /32 host LOCAL\n";
        assert_eq!(local_v4(trie), [Ipv4Addr::new(192, 0, 2, 2)]);
        let inet6 = "00000000000000000000000000000001 01 80 10 80       lo\n\
                     fd000000000000000000000000000002 04 40 00 82     eth0\n\
                     fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n";
        let found = global_v6(inet6);
        assert_eq!(found, [("fd00::2".parse().expect("an address"), 64)]);
        assert_eq!(network_v6(found[0].0, 64).to_string(), "fd00::/64");
        let route = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                     eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0\n\
                     eth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n";
        assert_eq!(connected_v4(route).iter().map(Network::to_string).collect::<Vec<_>>(), ["192.0.2.0/24"]);
    }

    #[test]
    fn a_wildcard_address_is_replaced_by_a_reachable_one() {
        let addresses: Vec<IpAddr> = ["10.0.0.5", "2001:db8::1"].map(|ip| ip.parse().expect("an address")).to_vec();
        let facts = Facts { addresses, ..Facts::default() };
        for (fleet, expected) in [
            ("0.0.0.0:9092", Some("10.0.0.5")),
            ("[::]:9092", Some("10.0.0.5")),
            ("192.0.2.9:9092", Some("192.0.2.9")),
            ("[2001:db8::7]:1", Some("2001:db8::7")),
        ] {
            let found = advertised(fleet.parse().expect("an address"), &facts).map(|ip| ip.to_string());
            assert_eq!(found.as_deref(), expected);
        }
        assert_eq!(advertised("0.0.0.0:1".parse().expect("an address"), &Facts::default()), None);
    }

    #[test]
    fn clocks_that_are_minutes_apart_break_tls() {
        let date = "Tue, 15 Nov 1994 08:12:31 GMT";
        let then: i64 = 784_887_151;
        for (tls, now, expected) in [
            (true, then, None),
            (true, then + MAX_SKEW_S, None),
            (true, then + MAX_SKEW_S + 1, Some("301 s ahead of")),
            (true, then - 4000, Some("4000 s behind")),
            (false, then + 100_000, None),
        ] {
            let found = skew(tls, Some(date), now).err();
            assert_eq!(found.as_ref().map(|failure| failure.code), expected.map(|_| Code::ClockSkew), "{now}");
            assert!(expected.is_none_or(|words| found.expect("a failure").what.contains(words)));
        }
        assert_eq!(skew(true, None, then), Ok(()), "without a date of OneGate there is no failure");
        assert_eq!(skew(true, Some("now"), then), Ok(()));
    }

    #[test]
    fn a_busy_port_is_a_failure() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("it has an address");
        assert_eq!(port_busy(address).map(|failure| failure.code), Some(Code::PortBusy));
        drop(taken);
        assert_eq!(port_busy(address), None);
    }
}

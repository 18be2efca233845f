//! What the machine has to offer: addresses and networks, disk, clock, GPUs, ports; and what is wrong with it for a role. The
//! reading of what the system says is pure; `look` alone opens files.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::place::Place;
use crate::settings::{RoleSettings, Settings};
use crate::trouble::{Code, Trouble};

/// Less free space than this is too little to work with: a database grows before anything is removed.
pub const LEAST_FREE_BYTES: u64 = 64 << 20;
/// Certificates allow an hour; other machines may be off the other way.
pub const MOST_SKEW_S: i64 = 300;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Those that others can reach, in the order of the interfaces; no loopback, no link-local.
    pub addresses: Vec<IpAddr>,
    /// That the machine is part of.
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

/// Looks at the machine.
pub fn look(place: &Place) -> Facts {
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

/// Networks without a gateway, from `/proc/net/route`: numbers in hexadecimal, lowest byte first.
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

/// The address of a SuperLink that is told to others.
pub fn advertised(fleet: SocketAddr, facts: &Facts) -> Option<IpAddr> {
    if !fleet.ip().is_unspecified() {
        return Some(fleet.ip());
    }
    // 0.0.0.0 serves no IPv6, [::] serves both.
    facts.addresses.iter().find(|ip| fleet.is_ipv6() || ip.is_ipv4()).copied()
}

/// Whether the machine can do what the settings say; the first thing that stands in the way.
pub fn preflight(settings: &Settings, facts: &Facts) -> Result<(), Trouble> {
    if let Some(free) = facts.free_bytes.filter(|free| *free < LEAST_FREE_BYTES) {
        let what = format!("{} MiB are free, {} MiB are needed", free >> 20, LEAST_FREE_BYTES >> 20);
        return Err(Trouble::new(Code::DiskFull, what));
    }
    match &settings.role {
        RoleSettings::SuperLink(link) if advertised(link.fleet, facts).is_none() => {
            let what =
                format!("the VM has no address that nodes could use, and the Fleet API is to be at {}", link.fleet);
            Err(Trouble::new(Code::PreflightFailed, what))
        }
        RoleSettings::SuperNode(node) if node.gpu.as_ref().is_some_and(|gpu| !gpu.fallback_to_cpu) && !facts.gpu => {
            Err(Trouble::new(Code::GpuMissing, "FL_GPU_ENABLED=YES, and there is no NVIDIA GPU in this VM"))
        }
        _ => Ok(()),
    }
}

/// How far OneGate's clock is from ours, where that matters.
pub fn skew(tls: bool, theirs: Option<&str>, now_s: i64) -> Result<(), Trouble> {
    let date = theirs.and_then(|text| jiff::fmt::rfc2822::parse(&text.replace("GMT", "+0000")).ok());
    let Some(theirs) = date.map(|date| date.timestamp().as_second()) else { return Ok(()) };
    let apart = now_s - theirs;
    if !tls || apart.abs() <= MOST_SKEW_S {
        return Ok(());
    }
    let (amount, direction) = (apart.abs(), if apart > 0 { "ahead of" } else { "behind" });
    Err(Trouble::new(Code::ClockSkew, format!("this VM's clock is {amount} s {direction} that of OneGate")))
}

/// Whether somebody else listens already where a program shall.
pub fn busy(address: SocketAddr) -> Option<Trouble> {
    match TcpListener::bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Some(Trouble::new(Code::PortBusy, format!("something else listens at {address}")))
        }
        // Other trouble is told by the program itself.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_of_its_network() {
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
    fn who_listens_everywhere_tells_an_address_that_can_be_reached() {
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
            (true, then + MOST_SKEW_S, None),
            (true, then + MOST_SKEW_S + 1, Some("301 s ahead of")),
            (true, then - 4000, Some("4000 s behind")),
            (false, then + 100_000, None),
        ] {
            let found = skew(tls, Some(date), now).err();
            assert_eq!(found.as_ref().map(|trouble| trouble.code), expected.map(|_| Code::ClockSkew), "{now}");
            assert!(expected.is_none_or(|words| found.expect("it is told").what.contains(words)));
        }
        assert_eq!(skew(true, None, then), Ok(()), "a clock that nobody showed is not wrong");
        assert_eq!(skew(true, Some("now"), then), Ok(()));
    }

    #[test]
    fn a_port_that_is_taken_is_told_before_anything_starts() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("it has an address");
        assert_eq!(busy(address).map(|trouble| trouble.code), Some(Code::PortBusy));
        drop(taken);
        assert_eq!(busy(address), None);
    }
}

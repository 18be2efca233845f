//! Firewall rules for nftables in a separate table, derived from the addresses that programs listen at. Pure; the agent loads
//! them before the programs start.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::facts::Network;

const TABLE: &str = "inet trellis";

/// Rules for programs that listen at `listens`, reachable from the VM's networks and the allowed networks. Loopback addresses
/// need no rules.
pub fn rules(listens: &[SocketAddr], own: &[Network], allowed: &[String]) -> String {
    let ports: BTreeSet<u16> = listens.iter().filter(|at| !at.ip().is_loopback()).map(SocketAddr::port).collect();
    // The table is created before it is deleted, so that the first load succeeds too. The file is one transaction.
    let mut text = format!("table {TABLE}\ndelete table {TABLE}\n");
    if ports.is_empty() {
        return text;
    }
    let networks = own.iter().map(Network::to_string).chain(allowed.iter().cloned());
    let (v6, v4): (BTreeSet<String>, BTreeSet<String>) = networks.partition(|network| network.contains(':'));
    let ports = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    let _ = writeln!(
        text,
        "table {TABLE} {{\n  chain input {{\n    type filter hook input priority filter; policy accept;\n    \
         iif \"lo\" accept\n    ct state established,related accept"
    );
    for (family, networks) in [("ip", v4), ("ip6", v6)] {
        // A set rejects overlapping intervals, so each network has its own rule.
        for network in networks {
            let _ = writeln!(text, "    tcp dport {{ {ports} }} {family} saddr {network} accept");
        }
    }
    let _ = writeln!(text, "    tcp dport {{ {ports} }} drop\n  }}\n}}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_networks_reach_the_ports() {
        let listens = ["0.0.0.0:9092", "127.0.0.1:9093", "[::]:8000"].map(|at| at.parse().expect("an address"));
        let own = [Network { address: "10.0.0.0".parse().expect("an address"), prefix: 24 }];
        let allowed = ["10.66.0.0/24".to_owned(), "2001:db8::/64".to_owned()];
        let expected = "table inet trellis\ndelete table inet trellis\ntable inet trellis {\n  chain input {\n    \
                        type filter hook input priority filter; policy accept;\n    iif \"lo\" accept\n    \
                        ct state established,related accept\n    \
                        tcp dport { 8000, 9092 } ip saddr 10.0.0.0/24 accept\n    \
                        tcp dport { 8000, 9092 } ip saddr 10.66.0.0/24 accept\n    \
                        tcp dport { 8000, 9092 } ip6 saddr 2001:db8::/64 accept\n    \
                        tcp dport { 8000, 9092 } drop\n  }\n}\n";
        assert_eq!(rules(&listens, &own, &allowed), expected);
    }

    #[test]
    fn loopback_needs_no_rules_and_old_ones_go() {
        let rules = rules(&["127.0.0.1:9092".parse().expect("an address")], &[], &[]);
        assert_eq!(rules, "table inet trellis\ndelete table inet trellis\n");
    }
}

//! Converts the interfaces of a context (`ETH0_IP`, `ETH0_MASK`, ...) to files of systemd-networkd. Pure.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::context::Values;
use crate::problem::{Diagnostic, Place, problem};

/// Maximum number of interfaces. No hypervisor supports more.
const MAX_INTERFACES: usize = 32;
const MAX_ALIASES: usize = 16;
const DEFAULT_PREFIX6: u8 = 64;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interface {
    /// `eth0`
    pub name: String,
    mac: Option<String>,
    dhcp: Dhcp,
    accept_advertisements: Option<bool>,
    addresses: Vec<(IpAddr, u8)>,
    gateways: Vec<IpAddr>,
    dns: Vec<IpAddr>,
    domains: Vec<String>,
    mtu: Option<u32>,
    metric: Option<u32>,
    routes: Vec<(String, IpAddr)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Dhcp {
    #[default]
    No,
    V4,
    V6,
    Both,
}

/// The interfaces in the context, in their order. An interface in `skip` is configured by another program.
pub fn interfaces(values: &Values, problems: &mut Vec<Diagnostic>) -> Vec<Interface> {
    (0..MAX_INTERFACES).filter_map(|index| Reading { values, problems, index }.interface()).collect()
}

struct Reading<'a> {
    values: &'a Values,
    problems: &'a mut Vec<Diagnostic>,
    index: usize,
}

impl<'a> Reading<'a> {
    fn interface(&mut self) -> Option<Interface> {
        let prefix = self.variable("");
        if !self.values.names().any(|name| name.starts_with(&prefix)) {
            return None;
        }
        let method = self.get("METHOD").unwrap_or("static").to_ascii_lowercase();
        let method6 = self.get("IP6_METHOD").unwrap_or("static").to_ascii_lowercase();
        if method == "skip" {
            return None;
        }
        let mut interface = Interface { name: format!("eth{}", self.index), mac: self.mac(), ..Interface::default() };
        interface.dhcp = match (method == "dhcp", method6 == "dhcp") {
            (false, false) => Dhcp::No,
            (true, false) => Dhcp::V4,
            (false, true) => Dhcp::V6,
            (true, true) => Dhcp::Both,
        };
        interface.accept_advertisements = match method6.as_str() {
            "auto" => Some(true),
            "disable" => Some(false),
            _ => None,
        };
        self.addresses(&mut interface);
        interface.gateways = self.addresses_of(&["GATEWAY", "IP6_GATEWAY", "GATEWAY6"]);
        interface.dns = self.addresses_of(&["DNS"]);
        interface.domains =
            self.get("SEARCH_DOMAIN").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        interface
            .domains
            .retain(|domain| domain.chars().all(|letter| letter.is_alphanumeric() || "-._".contains(letter)));
        interface.mtu = self.number("MTU");
        interface.metric = self.number("METRIC");
        self.routes(&mut interface);
        Some(interface)
    }

    fn addresses(&mut self, interface: &mut Interface) {
        let mut suffixes = vec![String::new()];
        suffixes.extend((0..MAX_ALIASES).map(|alias| format!("ALIAS{alias}_")));
        for suffix in suffixes {
            if let Some(address) = self.parsed::<Ipv4Addr>(&format!("{suffix}IP"), "an IPv4 address like 10.0.0.10") {
                let prefix = self.mask(&format!("{suffix}MASK")).unwrap_or(24);
                interface.addresses.push((address.into(), prefix));
            }
            for name in ["IP6", "IP6_ULA"] {
                let name = format!("{suffix}{name}");
                if let Some(address) = self.parsed::<Ipv6Addr>(&name, "an IPv6 address like fd00::10") {
                    let prefix =
                        self.number(&format!("{suffix}IP6_PREFIX_LENGTH")).and_then(|prefix| u8::try_from(prefix).ok());
                    interface.addresses.push((address.into(), prefix.unwrap_or(DEFAULT_PREFIX6).min(128)));
                }
            }
        }
    }

    /// `255.255.255.0` or `24`.
    fn mask(&mut self, name: &str) -> Option<u8> {
        let text = self.get(name)?;
        let prefix = match text.parse::<Ipv4Addr>() {
            Ok(mask) => {
                let bits = u32::from(mask);
                (bits.count_ones() == bits.leading_ones()).then_some(bits.leading_ones() as u8)
            }
            Err(_) => text.parse::<u8>().ok().filter(|prefix| *prefix <= 32),
        };
        if prefix.is_none() {
            self.wrong(name, "a network mask like 255.255.255.0 or 24");
        }
        prefix
    }

    fn addresses_of(&mut self, names: &[&str]) -> Vec<IpAddr> {
        let mut found = Vec::new();
        for name in names {
            for word in self.get(name).unwrap_or_default().split([' ', ',']).filter(|word| !word.is_empty()) {
                match word.parse() {
                    Ok(address) => found.push(address),
                    Err(_) => self.wrong(name, "addresses, separated by spaces"),
                }
            }
        }
        found
    }

    /// `10.66.0.0/24 via 10.0.0.5, ...`
    fn routes(&mut self, interface: &mut Interface) {
        for route in self.get("ROUTES").unwrap_or_default().split(',').map(str::trim).filter(|route| !route.is_empty())
        {
            let parts = route.split_once(" via ").and_then(|(to, via)| {
                let (network, prefix) = to.trim().split_once('/')?;
                let _: (IpAddr, u8) = (network.parse().ok()?, prefix.parse().ok().filter(|prefix| *prefix <= 128)?);
                Some((to.trim().to_owned(), via.trim().parse().ok()?))
            });
            match parts {
                Some(route) => interface.routes.push(route),
                None => self.wrong("ROUTES", "routes like 10.66.0.0/24 via 10.0.0.5, separated by commas"),
            }
        }
    }

    fn mac(&mut self) -> Option<String> {
        let text = self.get("MAC")?;
        let pair = |pair: &str| pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit());
        if text.split(':').count() == 6 && text.split(':').all(pair) {
            return Some(text.to_ascii_lowercase());
        }
        self.wrong("MAC", "six pairs of digits like 02:00:0a:00:00:0a");
        None
    }

    fn number(&mut self, name: &str) -> Option<u32> {
        self.parsed(name, "a number")
    }

    fn parsed<T: std::str::FromStr>(&mut self, name: &str, wanted: &str) -> Option<T> {
        let text = self.get(name)?;
        let value = text.parse().ok();
        if value.is_none() {
            self.wrong(name, wanted);
        }
        value
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.values.get(&self.variable(name))
    }

    fn variable(&self, name: &str) -> String {
        format!("ETH{}_{name}", self.index)
    }

    fn wrong(&mut self, name: &str, wanted: &str) {
        let (value, variable) = (self.get(name).unwrap_or_default(), self.variable(name));
        let place = Place::showing(&variable, value);
        self.problems.push(problem(place, "it is invalid and ignored", format!("write {wanted}")));
    }
}

impl Interface {
    pub fn render(&self) -> String {
        let mut text = String::from("[Match]\n");
        match &self.mac {
            Some(mac) => line(&mut text, "MACAddress", mac),
            None => line(&mut text, "Name", &self.name),
        }
        if let Some(mtu) = self.mtu {
            text.push_str("\n[Link]\n");
            line(&mut text, "MTUBytes", mtu);
        }
        text.push_str("\n[Network]\n");
        let dhcp = match self.dhcp {
            Dhcp::No => "no",
            Dhcp::V4 => "ipv4",
            Dhcp::V6 => "ipv6",
            Dhcp::Both => "yes",
        };
        line(&mut text, "DHCP", dhcp);
        if let Some(accept) = self.accept_advertisements {
            line(&mut text, "IPv6AcceptRA", if accept { "yes" } else { "no" });
        }
        for (address, prefix) in &self.addresses {
            line(&mut text, "Address", format_args!("{address}/{prefix}"));
        }
        if self.metric.is_none() {
            self.gateways.iter().for_each(|gateway| line(&mut text, "Gateway", gateway));
        }
        self.dns.iter().for_each(|server| line(&mut text, "DNS", server));
        self.domains.iter().for_each(|domain| line(&mut text, "Domains", domain));
        if let Some(metric) = self.metric {
            for gateway in &self.gateways {
                text.push_str("\n[Route]\n");
                line(&mut text, "Gateway", gateway);
                line(&mut text, "Metric", metric);
            }
        }
        for (destination, gateway) in &self.routes {
            text.push_str("\n[Route]\n");
            line(&mut text, "Destination", destination);
            line(&mut text, "Gateway", gateway);
        }
        text
    }
}

fn line(text: &mut String, key: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "{key}={value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(context: &str) -> (Vec<String>, usize) {
        let mut values = Values::default();
        values.add_context_sh(context.as_bytes());
        let mut problems = Vec::new();
        let found = interfaces(&values, &mut problems);
        (found.iter().map(Interface::render).collect(), problems.len())
    }

    #[test]
    fn contexts_and_their_interfaces() {
        let cases = [
            ("ETH0_METHOD='dhcp'\n", vec!["[Match]\nName=eth0\n\n[Network]\nDHCP=ipv4\n"]),
            ("ETH0_METHOD='skip'\nETH0_IP='10.0.0.1'\n", vec![]),
            (
                "ETH1_IP='10.0.0.2'\nETH1_MASK='16'\nETH1_MTU='1400'\n",
                vec!["[Match]\nName=eth1\n\n[Link]\nMTUBytes=1400\n\n[Network]\nDHCP=no\nAddress=10.0.0.2/16\n"],
            ),
            (
                "ETH0_IP6='fd00::5'\nETH0_IP6_PREFIX_LENGTH='48'\nETH0_IP6_GATEWAY='fd00::1'\nETH0_IP6_METHOD='disable'\n",
                vec![
                    "[Match]\nName=eth0\n\n[Network]\nDHCP=no\nIPv6AcceptRA=no\nAddress=fd00::5/48\nGateway=fd00::1\n",
                ],
            ),
            (
                "ETH0_IP='10.0.0.2'\nETH0_MASK='24'\nETH0_GATEWAY='10.0.0.1'\nETH0_METRIC='50'\n\
                 ETH0_ROUTES='10.66.0.0/24 via 10.0.0.5'\nETH0_ALIAS0_IP='10.0.9.9'\nETH0_ALIAS0_MASK='255.255.255.255'\n",
                vec![
                    "[Match]\nName=eth0\n\n[Network]\nDHCP=no\nAddress=10.0.0.2/24\nAddress=10.0.9.9/32\n\n[Route]\n\
                     Gateway=10.0.0.1\nMetric=50\n\n[Route]\nDestination=10.66.0.0/24\nGateway=10.0.0.5\n",
                ],
            ),
        ];
        for (context, expected) in cases {
            let (found, problems) = rendered(context);
            assert_eq!((found, problems), (expected.into_iter().map(str::to_owned).collect(), 0), "{context}");
        }
    }

    #[test]
    fn no_value_adds_a_line() {
        let (found, problems) = rendered(
            "ETH0_DNS='1.1.1.1\nDHCP=yes'\nETH0_SEARCH_DOMAIN='a.b c\nDHCP=yes'\nETH0_MTU='9\n[Route]'\n\
             ETH0_ROUTES='0.0.0.0/0\nX=1 via 10.0.0.1'\n",
        );
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].matches("DHCP=").count(), 1, "{}", found[0]);
        assert!(!found[0].contains("[Route]") && problems >= 3, "{problems}: {}", found[0]);
    }
}

//! Addresses and names by which clients reach a SuperLink, as its certificate must contain them. Ports are dropped, names are
//! not resolved.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustls::pki_types::{DnsName, ServerName};

const MAX_NAME_CHARS: usize = 253;
const MAX_LABEL_CHARS: usize = 63;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    Ip(IpAddr),
    /// In lower case, without a dot at the end.
    Name(String),
}

impl Endpoint {
    /// Reads `name`, `name:port`, `IPv4`, `IPv4:port`, `IPv6`, `[IPv6]` or `[IPv6]:port`.
    pub fn parse(text: &str) -> Result<Endpoint, String> {
        if text.contains("://") || text.contains('/') {
            return Err("write the host alone, without scheme and path".to_owned());
        }
        if text.contains('%') {
            return Err("an address with a zone (%) has no meaning on another machine".to_owned());
        }
        if let Ok(ip) = text.parse::<Ipv6Addr>() {
            return Ok(Endpoint::Ip(ip.into()));
        }
        if let Some(rest) = text.strip_prefix('[') {
            let (ip, after) = rest.split_once(']').ok_or("the bracket is not closed")?;
            check_port(after.strip_prefix(':').or(after.is_empty().then_some("0")))?;
            let ip: Ipv6Addr = ip.parse().map_err(|_| "the text in brackets is no IPv6 address")?;
            return Ok(Endpoint::Ip(ip.into()));
        }
        let host = match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => {
                return Err("it is no IPv6 address, and anything else has one colon at most".to_owned());
            }
            Some((host, port)) => {
                check_port(Some(port))?;
                host
            }
            None => text,
        };
        Endpoint::host(host)
    }

    fn host(host: &str) -> Result<Endpoint, String> {
        if let Ok(ip) = host.parse::<Ipv4Addr>() {
            return Ok(Endpoint::Ip(ip.into()));
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_lowercase();
        if name.is_empty() {
            return Err("it has no host".to_owned());
        }
        if name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err("it is no IPv4 address".to_owned());
        }
        if name.contains('*') {
            return Err("clients connect to a host, not to a pattern; give each host".to_owned());
        }
        if !name.is_ascii() {
            return Err("write an international name in its ASCII form (xn--...)".to_owned());
        }
        let label = |label: &str| {
            let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            (1..=MAX_LABEL_CHARS).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(inner)
        };
        if name.len() > MAX_NAME_CHARS || !name.split('.').all(label) {
            return Err("it is neither an IP address nor a host name".to_owned());
        }
        Ok(Endpoint::Name(name))
    }

    /// The three that mean this machine.
    pub fn localhost() -> [Endpoint; 3] {
        [
            Endpoint::Name("localhost".to_owned()),
            Endpoint::Ip(Ipv4Addr::LOCALHOST.into()),
            Endpoint::Ip(Ipv6Addr::LOCALHOST.into()),
        ]
    }

    /// Whether this is an address to listen on, which clients cannot connect to.
    pub fn is_wildcard(&self) -> bool {
        matches!(self, Endpoint::Ip(ip) if ip.is_unspecified())
    }

    /// The name that a TLS client verifies. `None` for a name that no client can verify.
    pub fn server_name(&self) -> Option<ServerName<'static>> {
        Some(match self {
            Endpoint::Ip(ip) => ServerName::from(*ip),
            Endpoint::Name(name) => ServerName::DnsName(DnsName::try_from(name.clone()).ok()?),
        })
    }
}

fn check_port(port: Option<&str>) -> Result<(), String> {
    match port {
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok() => Ok(()),
        _ => Err("the port must be a number from 0 to 65535".to_owned()),
    }
}

/// Without port and brackets, as a certificate shows it.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Ip(ip) => ip.fmt(f),
            Endpoint::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_addresses() {
        for (text, expected) in [
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.1:9092", "10.0.0.1"),
            ("::1", "::1"),
            ("[::1]", "::1"),
            ("[2001:DB8::0:7]:9092", "2001:db8::7"),
            ("2001:db8::7", "2001:db8::7"),
            ("Link.Example.org.:443", "link.example.org"),
            ("localhost", "localhost"),
            ("my_pod-0.svc", "my_pod-0.svc"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ] {
            let endpoint = Endpoint::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(endpoint.to_string(), expected, "{text}");
            assert!(endpoint.server_name().is_some(), "{text}");
        }
    }

    #[test]
    fn anything_else_is_explained() {
        let long = "a".repeat(64);
        for (text, expected) in [
            ("", "it has no host"),
            (":9092", "it has no host"),
            ("https://host:80", "write the host alone, without scheme and path"),
            ("host/path", "write the host alone, without scheme and path"),
            ("fe80::1%eth0", "an address with a zone (%) has no meaning on another machine"),
            ("host:", "the port must be a number from 0 to 65535"),
            ("host:http", "the port must be a number from 0 to 65535"),
            ("host:+80", "the port must be a number from 0 to 65535"),
            ("[::1]:70000", "the port must be a number from 0 to 65535"),
            ("[::1]x", "the port must be a number from 0 to 65535"),
            ("[::1", "the bracket is not closed"),
            ("[::x]", "the text in brackets is no IPv6 address"),
            ("a:b:c", "it is no IPv6 address, and anything else has one colon at most"),
            ("300.0.0.1", "it is no IPv4 address"),
            ("*.example.org", "clients connect to a host, not to a pattern; give each host"),
            ("bücher.example", "write an international name in its ASCII form (xn--...)"),
            ("ho st", "it is neither an IP address nor a host name"),
            ("-host", "it is neither an IP address nor a host name"),
            ("a..b", "it is neither an IP address nor a host name"),
            (&long, "it is neither an IP address nor a host name"),
        ] {
            assert_eq!(Endpoint::parse(text), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn wildcards() {
        for (text, expected) in [("0.0.0.0:9092", true), ("[::]:9092", true), ("127.0.0.1", false), ("host", false)] {
            assert_eq!(Endpoint::parse(text).expect(text).is_wildcard(), expected, "{text}");
        }
    }
}

//! `host:port`, as people write it. Nothing is looked up.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const LONGEST_NAME: usize = 253;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    host: Host,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Ip(IpAddr),
    Name(String),
}

impl Address {
    /// Reads `IPv4:port`, `[IPv6]:port` or `name:port`; says what is wrong with anything else.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return Err("it must not start with a scheme".to_owned());
        }
        let (host, port) = text.rsplit_once(':').ok_or("it has no port")?;
        let port = match port.parse() {
            Ok(port) if port_digits(text) => port,
            _ => return Err("the port must be a number from 0 to 65535".to_owned()),
        };
        if host.is_empty() {
            return Err("it has no host".to_owned());
        }
        if host.contains(':') && !host.starts_with('[') {
            return Err("an IPv6 address needs brackets around it".to_owned());
        }
        if host.starts_with('[') {
            let address: SocketAddr = text.parse().map_err(|_| "what is in the brackets is no IPv6 address")?;
            return Ok(Self { host: Host::Ip(address.ip()), port });
        }
        let host = match host.parse::<Ipv4Addr>() {
            Ok(ip) => Host::Ip(ip.into()),
            Err(_) if host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') => {
                return Err("the host is no IPv4 address".to_owned());
            }
            Err(_) if is_name(host) => Host::Name(host.to_lowercase()),
            Err(_) => return Err("the host is neither an IP address nor a name".to_owned()),
        };
        Ok(Self { host, port })
    }

    /// Whether no two servers can listen on both. Two free ports never collide, and names are not looked up.
    pub fn collides(&self, other: &Self) -> bool {
        let same_host = self.host == other.host || self.is_wildcard() || other.is_wildcard();
        self.port == other.port && self.port != 0 && same_host
    }

    /// Whether it can surely be reached from this machine only.
    pub fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Ip(ip) => ip.is_loopback(),
            Host::Name(name) => name == "localhost",
        }
    }

    fn is_wildcard(&self) -> bool {
        self.host == Host::Ip(Ipv4Addr::UNSPECIFIED.into()) || self.host == Host::Ip(Ipv6Addr::UNSPECIFIED.into())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(ip) => SocketAddr::new(*ip, self.port).fmt(f),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// `u16` would also read `+80`.
fn port_digits(text: &str) -> bool {
    text.rsplit(':').next().is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(inner)
    };
    host.len() <= LONGEST_NAME && host.trim_end_matches('.').split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_are_kept() {
        for text in ["0.0.0.0:9092", "127.0.0.1:0", "[::]:9092", "[::1]:65535", "localhost:80", "link.example.org:9092"]
        {
            assert_eq!(Address::parse(text).map(|address| address.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn bad_addresses_are_explained() {
        for (text, expected) in [
            ("9092", "it has no port"),
            ("", "it has no port"),
            (":9092", "it has no host"),
            ("host:", "the port must be a number from 0 to 65535"),
            ("host:http", "the port must be a number from 0 to 65535"),
            ("host:+80", "the port must be a number from 0 to 65535"),
            ("host:65536", "the port must be a number from 0 to 65535"),
            ("::1:9092", "an IPv6 address needs brackets around it"),
            ("[::x]:9092", "what is in the brackets is no IPv6 address"),
            ("[::1:9092", "what is in the brackets is no IPv6 address"),
            ("300.0.0.1:80", "the host is no IPv4 address"),
            ("ho st:80", "the host is neither an IP address nor a name"),
            ("-host:80", "the host is neither an IP address nor a name"),
            ("http://host:80", "it must not start with a scheme"),
        ] {
            assert_eq!(Address::parse(text), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn collisions() {
        for (one, other, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("10.0.0.1:1", "127.0.0.1:1", false),
            ("[::]:1", "0.0.0.0:1", true),
            ("Host:1", "host:1", true),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            let (a, b) = (Address::parse(one).expect(one), Address::parse(other).expect(other));
            assert_eq!((a.collides(&b), b.collides(&a)), (expected, expected), "{one} {other}");
        }
    }

    #[test]
    fn loopback() {
        for (text, expected) in
            [("127.8.9.1:1", true), ("[::1]:1", true), ("localhost:1", true), ("0.0.0.0:1", false), ("host:1", false)]
        {
            assert_eq!(Address::parse(text).expect(text).is_loopback(), expected, "{text}");
        }
    }
}

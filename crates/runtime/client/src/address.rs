//! Hosts and `host:port`, as people write them. Pure: names are not resolved.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const MAX_NAME_CHARS: usize = 253;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub host: Host,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    Ip(IpAddr),
    Name(String),
}

impl Address {
    /// Reads `IPv4:port`, `[IPv6]:port` or `name:port`. The error says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return Err("it must not start with a scheme".to_owned());
        }
        let (host, port) = text.rsplit_once(':').ok_or("it has no port")?;
        let port = parse_port(port).ok_or("the port must be a number from 0 to 65535")?;
        if host.contains(':') && !host.starts_with('[') {
            return Err("an IPv6 address needs brackets around it".to_owned());
        }
        Ok(Self { host: Host::parse(host)?, port })
    }

    /// Reads a host, or a host with a port.
    pub fn parse_or_default_port(text: &str, port: u16) -> Result<Self, String> {
        let has_port = text.contains(':') && !text.ends_with(']') && text.parse::<Ipv6Addr>().is_err();
        if has_port { Self::parse(text) } else { Ok(Self { host: Host::parse(text)?, port }) }
    }

    /// Whether two servers cannot listen on both. Two ports 0 never collide.
    pub fn collides(&self, other: &Self) -> bool {
        let same_host = self.host == other.host || self.host.is_wildcard() || other.host.is_wildcard();
        self.port == other.port && self.port != 0 && same_host
    }
}

impl Host {
    /// Reads an IPv4 address, an IPv6 address with or without brackets, or a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("it has no host".to_owned());
        }
        if let Some(rest) = text.strip_prefix('[') {
            let ip: Option<Ipv6Addr> = rest.strip_suffix(']').and_then(|ip| ip.parse().ok());
            return Ok(Self::Ip(ip.ok_or("the text in brackets is no IPv6 address")?.into()));
        }
        match text.parse() {
            Ok(ip) => Ok(Self::Ip(ip)),
            Err(_) if text.contains(':') => Err("it must be a host alone, without scheme and port".to_owned()),
            Err(_) if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') => {
                Err("the host is no IPv4 address".to_owned())
            }
            Err(_) if is_name(text) => Ok(Self::Name(text.to_lowercase())),
            Err(_) => Err("the host is neither an IP address nor a name".to_owned()),
        }
    }

    /// Reads an address that clients connect to: a host, or a host with a port, which is dropped.
    pub fn parse_endpoint(text: &str) -> Result<Self, String> {
        let host = Address::parse_or_default_port(text, 0)?.host;
        match host.is_wildcard() {
            true => Err("this is an address to listen on, clients cannot connect to it".to_owned()),
            false => Ok(host),
        }
    }

    /// Whether only this machine can reach the host. `false` for names other than `localhost`.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Ip(ip) => ip.to_canonical().is_loopback(),
            Self::Name(name) => name == "localhost",
        }
    }

    pub fn is_wildcard(&self) -> bool {
        matches!(self, Self::Ip(ip) if ip.to_canonical().is_unspecified())
    }
}

/// Digits only: the standard library also parses `+80`.
pub fn parse_port(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(ip) => SocketAddr::new(*ip, self.port).fmt(f),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// Without brackets.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(inner)
    };
    host.len() <= MAX_NAME_CHARS && host.trim_end_matches('.').split('.').all(label)
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
            ("[::x]:9092", "the text in brackets is no IPv6 address"),
            ("[::1:9092", "the text in brackets is no IPv6 address"),
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
    fn hosts() {
        for (text, expected) in [
            ("127.0.0.1", Ok("127.0.0.1")),
            ("::1", Ok("::1")),
            ("[2001:DB8::0:7]", Ok("2001:db8::7")),
            ("Link.example.org", Ok("link.example.org")),
            ("", Err("it has no host")),
            ("localhost:80", Err("it must be a host alone, without scheme and port")),
            ("[::1]:80", Err("the text in brackets is no IPv6 address")),
            ("10.1", Err("the host is no IPv4 address")),
        ] {
            let found = Host::parse(text).map(|host| host.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text}");
        }
    }

    #[test]
    fn endpoints() {
        for (text, expected) in [
            ("link.example.org", Ok("link.example.org")),
            ("link.example.org:9092", Ok("link.example.org")),
            ("10.0.0.1:9092", Ok("10.0.0.1")),
            ("2001:db8::7", Ok("2001:db8::7")),
            ("[2001:db8::7]", Ok("2001:db8::7")),
            ("[2001:db8::7]:9092", Ok("2001:db8::7")),
            ("", Err("it has no host")),
            ("host:http", Err("the port must be a number from 0 to 65535")),
            ("https://host", Err("it must not start with a scheme")),
            ("0.0.0.0:9092", Err("this is an address to listen on, clients cannot connect to it")),
            ("::", Err("this is an address to listen on, clients cannot connect to it")),
            ("*.example.org", Err("the host is neither an IP address nor a name")),
        ] {
            let found = Host::parse_endpoint(text).map(|host| host.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text}");
        }
    }

    #[test]
    fn loopback() {
        for (text, expected) in [
            ("127.8.9.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("localhost", true),
            ("LocalHost", true),
            ("0.0.0.0", false),
            ("::", false),
            ("::ffff:0.0.0.0", false),
            ("192.168.1.7", false),
            ("host", false),
            ("localhost.example.org", false),
        ] {
            assert_eq!(Host::parse(text).expect(text).is_loopback(), expected, "{text}");
        }
    }
}

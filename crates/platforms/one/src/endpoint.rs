//! Endpoint of an OpenNebula server, parsed from an `http` or `https` URL. Does no name lookup.

use std::fmt;
use std::net::Ipv6Addr;

/// A server, and the path prefix of its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub tls: bool,
    /// A name, or an IP address without brackets.
    pub host: String,
    pub port: u16,
    /// Without a trailing slash; often empty.
    pub path: String,
}

/// Why a text is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("{text:?} does not start with http:// or https://")]
    NoScheme { text: String },
    #[error("{text:?} has no host")]
    NoHost { text: String },
    #[error("{text:?} has a port that is not a number from 1 to 65535")]
    BadPort { text: String },
    #[error("{text:?} contains a user: credentials do not belong in the address")]
    Credentials { text: String },
    #[error("{text:?} has a query, a fragment, white space or control characters")]
    NotPlain { text: String },
}

impl Endpoint {
    /// Parses `http://host[:port][/path]`, or the same with `https`.
    pub fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        let text = text.trim();
        let fault = || text.to_owned();
        let (tls, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            _ => return Err(EndpointError::NoScheme { text: fault() }),
        };
        if rest.chars().any(|c| c.is_whitespace() || c.is_control() || c == '?' || c == '#' || !c.is_ascii()) {
            return Err(EndpointError::NotPlain { text: fault() });
        }
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if authority.contains('@') {
            // The text is not part of the error, because it may contain a password.
            return Err(EndpointError::Credentials { text: path.to_owned() });
        }
        let (host, port) = split_port(authority).ok_or_else(|| EndpointError::BadPort { text: fault() })?;
        if host.is_empty() {
            return Err(EndpointError::NoHost { text: fault() });
        }
        let port = match port {
            Some(port) => match port.parse() {
                Ok(port) if port > 0 => port,
                _ => return Err(EndpointError::BadPort { text: fault() }),
            },
            None if tls => 443,
            None => 80,
        };
        Ok(Endpoint { tls, host: host.to_owned(), port, path: path.trim_end_matches('/').to_owned() })
    }

    /// `host:port`, with brackets around an IPv6 address.
    pub fn authority(&self) -> String {
        match self.host.parse::<Ipv6Addr>() {
            Ok(ip) => format!("[{ip}]:{}", self.port),
            Err(_) => format!("{}:{}", self.host, self.port),
        }
    }
}

/// The host without brackets, and the text after the colon. `None` if the brackets do not match.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, behind) = rest.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
        return match behind {
            "" => Some((host, None)),
            _ => Some((host, Some(behind.strip_prefix(':')?))),
        };
    }
    match authority.split_once(':') {
        Some((host, port)) => Some((host, Some(port))),
        None => Some((authority, None)),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", if self.tls { "https" } else { "http" }, self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_written() {
        for (text, expected) in [
            ("http://10.0.0.1:5030", "http://10.0.0.1:5030"),
            ("https://one.example/RPC2", "https://one.example:443/RPC2"),
            (" HTTP://one:2633/RPC2/ \n", "http://one:2633/RPC2"),
            ("http://[fd00::1]:5030", "http://[fd00::1]:5030"),
            ("http://[fd00::1]", "http://[fd00::1]:80"),
        ] {
            assert_eq!(Endpoint::parse(text).map(|e| e.to_string()), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn invalid_endpoints_are_rejected_with_a_reason() {
        for (text, expected) in [
            ("one:2633", "\"one:2633\" does not start with http:// or https://"),
            ("http://", "\"http://\" has no host"),
            ("http://h:0", "\"http://h:0\" has a port that is not a number from 1 to 65535"),
            ("http://h:70000/", "\"http://h:70000/\" has a port that is not a number from 1 to 65535"),
            ("http://fd00::1/", "\"http://fd00::1/\" has a port that is not a number from 1 to 65535"),
            ("http://h/?a=b", "\"http://h/?a=b\" has a query, a fragment, white space or control characters"),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap_err().to_string(), expected);
        }
        let leaky = Endpoint::parse("http://oneadmin:hush@h/RPC2").unwrap_err().to_string();
        assert!(!leaky.contains("hush"), "{leaky}");
    }
}

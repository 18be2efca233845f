//! The address of a SuperLink, the security of the connection, and the token of the caller.

use std::net::Ipv6Addr;

use trellis_wire::token::Token;

use crate::Trust;

/// A SuperLink as its callers see it.
#[derive(Debug, Clone)]
pub struct Target {
    /// A name, or an IP address without brackets.
    pub host: String,
    pub port: u16,
    pub security: Security,
    /// Sent with every call that has no authentication of its own.
    pub token: Option<Token>,
}

#[derive(Debug, Clone)]
pub enum Security {
    /// All machines on the path can read and change the traffic, including the token.
    Plaintext,
    Tls(Trust),
}

impl Target {
    /// `host:port`, as in an address bar.
    pub fn endpoint(&self) -> String {
        match self.host.parse::<Ipv6Addr>() {
            Ok(ip) => format!("[{ip}]:{}", self.port),
            Err(_) => format!("{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_shown_by_accident() {
        let token = Token::parse("hush-hush").unwrap();
        let target = Target { host: "h".to_owned(), port: 1, security: Security::Plaintext, token: Some(token) };
        assert!(!format!("{target:?}").contains("hush"));
    }

    #[test]
    fn endpoints() {
        for (host, expected) in [("h", "h:80"), ("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80")] {
            let target = Target { host: host.to_owned(), port: 80, security: Security::Plaintext, token: None };
            assert_eq!(target.endpoint(), expected);
        }
    }
}

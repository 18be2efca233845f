//! Which SuperLink is called, how the way there is secured, and who calls. Nothing is looked up or opened here.

use std::fmt;
use std::net::Ipv6Addr;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::Trust;

/// More than any token is long; a longer text is some other file.
const LONGEST_TOKEN_BYTES: usize = 4096;
/// Lets secret scanners recognize a token.
const PREFIX: &str = "trellis_";

/// A SuperLink as its callers see it.
#[derive(Debug, Clone)]
pub struct Target {
    /// A name, or an IP address without brackets.
    pub host: String,
    pub port: u16,
    pub security: Security,
    /// Goes with every call, except where the call itself proves who calls.
    pub token: Option<Token>,
}

#[derive(Debug, Clone)]
pub enum Security {
    /// Everybody on the way can read and change what is sent, the token too.
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

/// The secret of an account. Never shown, not even by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why a text is no token. The text itself is not told: it may be a secret in the wrong place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("it is empty")]
    Empty,
    #[error("it is longer than {LONGEST_TOKEN_BYTES} bytes")]
    TooLong,
    #[error("it is more than one word of printable ASCII")]
    NotOneWord,
}

impl Token {
    /// Takes a token as it stands in a file: white space around it is not part of it.
    pub fn parse(text: &str) -> Result<Token, TokenError> {
        match text.trim() {
            "" => Err(TokenError::Empty),
            word if word.len() > LONGEST_TOKEN_BYTES => Err(TokenError::TooLong),
            word if word.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Token(word.to_owned())),
            _ => Err(TokenError::NotOneWord),
        }
    }

    /// Generates a token from 256 random bits.
    pub fn draw() -> Token {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).expect("the system has randomness");
        Token(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// The secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens() {
        for (text, expected) in [
            ("abc.DEF-1_=", Ok("abc.DEF-1_=")),
            (" abc\r\n", Ok("abc")),
            ("", Err(TokenError::Empty)),
            ("\n", Err(TokenError::Empty)),
            ("two words", Err(TokenError::NotOneWord)),
            ("two\nlines", Err(TokenError::NotOneWord)),
            ("häßlich", Err(TokenError::NotOneWord)),
            ("a\u{0}b", Err(TokenError::NotOneWord)),
            (&"x".repeat(LONGEST_TOKEN_BYTES + 1), Err(TokenError::TooLong)),
        ] {
            assert_eq!(Token::parse(text).as_ref().map(Token::reveal).map_err(|error| *error), expected, "{text}");
        }
    }

    #[test]
    fn a_drawn_token_is_a_token_and_no_other() {
        let (one, other) = (Token::draw(), Token::draw());
        assert_ne!(one, other);
        assert_eq!(Token::parse(one.reveal()).as_ref(), Ok(&one));
        assert!(one.reveal().len() >= PREFIX.len() + 43, "{}", one.reveal().len());
    }

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

//! The token of an account for a SuperLink or a server.

use std::fmt;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Longer than every token: a longer text is another file.
const MAX_TOKEN_BYTES: usize = 4096;
/// Lets secret scanners recognise a token.
const PREFIX: &str = "trellis_";

/// The secret of an account. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why a text is not a token. Errors do not contain the text: it may be another secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("it is empty")]
    Empty,
    #[error("it is longer than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    #[error("it is more than one word of printable ASCII")]
    NotOneWord,
}

impl Token {
    /// Parses a token from a file; surrounding whitespace is ignored.
    pub fn parse(text: &str) -> Result<Token, TokenError> {
        match text.trim() {
            "" => Err(TokenError::Empty),
            word if word.len() > MAX_TOKEN_BYTES => Err(TokenError::TooLong),
            word if word.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Token(word.to_owned())),
            _ => Err(TokenError::NotOneWord),
        }
    }

    /// Generates a token from 256 random bits.
    pub fn generate() -> Token {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).expect("the system has randomness");
        Token(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Returns the secret.
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
            (&"x".repeat(MAX_TOKEN_BYTES + 1), Err(TokenError::TooLong)),
        ] {
            assert_eq!(Token::parse(text).as_ref().map(Token::reveal).map_err(|error| *error), expected, "{text}");
        }
    }

    #[test]
    fn a_generated_token_is_valid_and_unique() {
        let (one, other) = (Token::generate(), Token::generate());
        assert_ne!(one, other);
        assert_eq!(Token::parse(one.reveal()).as_ref(), Ok(&one));
        assert!(one.reveal().len() >= PREFIX.len() + 43, "{}", one.reveal().len());
    }
}

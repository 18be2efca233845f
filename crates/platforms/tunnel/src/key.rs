//! Keys of gateways: X25519, in the Base64 of `wg`.

use std::fmt;

use aws_lc_rs::agreement::{self, X25519};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const BYTES: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("it is not a key: use 44 characters of Base64, like the output of `wg genkey`")]
    Unreadable,
    #[error("the system provides no random bytes")]
    NoRandomness,
}

/// Not printable; only [`PrivateKey::reveal`] returns the text.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey {
    bytes: [u8; BYTES],
    public: PublicKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; BYTES]);

impl PrivateKey {
    pub fn generate() -> Result<PrivateKey, KeyError> {
        let mut bytes = [0; BYTES];
        rand::fill(&mut bytes).map_err(|_| KeyError::NoRandomness)?;
        PrivateKey::from_bytes(bytes)
    }

    /// Any 32 bytes are a key; unused bits are set like `wg genkey` does.
    pub fn from_bytes(mut bytes: [u8; BYTES]) -> Result<PrivateKey, KeyError> {
        bytes[0] &= 0xf8;
        bytes[31] = bytes[31] & 0x7f | 0x40;
        let private = agreement::PrivateKey::from_private_key(&X25519, &bytes).map_err(|_| KeyError::Unreadable)?;
        let public = private.compute_public_key().map_err(|_| KeyError::Unreadable)?;
        let public = public.as_ref().try_into().map_err(|_| KeyError::Unreadable)?;
        Ok(PrivateKey { bytes, public: PublicKey(public) })
    }

    pub fn parse(text: &str) -> Result<PrivateKey, KeyError> {
        PrivateKey::from_bytes(decode(text)?)
    }

    pub fn public(&self) -> PublicKey {
        self.public
    }

    pub fn reveal(&self) -> String {
        STANDARD.encode(self.bytes)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey of {}", self.public)
    }
}

impl PublicKey {
    pub fn parse(text: &str) -> Result<PublicKey, KeyError> {
        decode(text).map(PublicKey)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

fn decode(text: &str) -> Result<[u8; BYTES], KeyError> {
    let bytes = STANDARD.decode(text).map_err(|_| KeyError::Unreadable)?;
    bytes.try_into().map_err(|_| KeyError::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bob of section 6.1 of RFC 7748, and the bytes from 0 to 31.
    #[test]
    fn public_keys_are_those_of_the_standard() {
        for (private, public) in [
            ("XasIfmJKikt54X+Lg4AO5m87sSkmGLb9HC+LJ/+I4Os=", "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="),
            ("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8="),
        ] {
            assert_eq!(PrivateKey::parse(private).unwrap().public().to_string(), public);
        }
    }

    #[test]
    fn a_key_is_its_text() {
        let key = PrivateKey::generate().unwrap();
        let text = key.reveal();
        assert_eq!((text.len(), PrivateKey::parse(&text)), (44, Ok(key.clone())));
        assert_eq!(PublicKey::parse(&key.public().to_string()), Ok(key.public()));
        assert!(!format!("{key:?}").contains(&text));
        assert_ne!(PrivateKey::generate().unwrap(), key);
        for text in ["", "AAAA", "not base64", &text[1..], &format!("{text}\n")] {
            assert!(PrivateKey::parse(text).is_err() && PublicKey::parse(text).is_err(), "{text:?}");
        }
    }
}

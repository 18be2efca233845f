//! Credentials for oned and OneFlow: `user:secret`. Pure except for reading the file.

use std::fmt;
use std::path::{Path, PathBuf};

use aws_lc_rs::cipher::{AES_256, EncryptionContext, PaddedBlockEncryptingKey, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use trellis_digest::sha256_hex;

/// Maximum size of the file. Larger files are not session files.
const MAX_SESSION_BYTES: usize = 8192;

/// A user with a password or login token. The secret is never printed, not even by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Session {
    user: String,
    secret: String,
}

/// Why there is no session. The text is not part of the error, because it contains a password.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("{path} cannot be read; it must contain user:password of OpenNebula")]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{place} does not contain user:password")]
    NoColon { place: String },
    #[error("{place} contains more than one line")]
    NotOneLine { place: String },
    #[error("{place} contains more than {MAX_SESSION_BYTES} bytes")]
    TooLong { place: String },
    #[error("HOME is not set, so .one/one_auth cannot be found; set ONE_AUTH, or authFile of the site")]
    NoHome,
}

impl Session {
    pub fn new(user: impl Into<String>, secret: impl Into<String>) -> Session {
        Session { user: user.into(), secret: secret.into() }
    }

    /// Parses the contents of `one_auth`. The first colon separates user and secret. `place` is for errors.
    pub fn parse(text: &str, place: &str) -> Result<Session, SessionError> {
        let place = || place.to_owned();
        let line = text.trim_end_matches(['\n', '\r']).trim_start();
        if line.len() > MAX_SESSION_BYTES {
            return Err(SessionError::TooLong { place: place() });
        }
        if line.contains(['\n', '\r']) {
            return Err(SessionError::NotOneLine { place: place() });
        }
        match line.split_once(':') {
            Some((user, secret)) if !user.is_empty() && !secret.is_empty() => Ok(Session::new(user, secret)),
            _ => Err(SessionError::NoColon { place: place() }),
        }
    }

    pub fn read(path: &Path) -> Result<Session, SessionError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| SessionError::Unreadable { path: path.to_owned(), source })?;
        Session::parse(&text, &path.display().to_string())
    }

    pub fn user(&self) -> &str {
        &self.user
    }

    /// The secret.
    pub fn reveal_secret(&self) -> &str {
        &self.secret
    }

    /// First parameter of every call.
    pub fn reveal(&self) -> String {
        format!("{}:{}", self.user, self.secret)
    }

    /// Session with which a server of the front-end acts for a user: `target` is the user, or `user:group`. Valid until
    /// `expires`, in seconds since 1970.
    pub fn for_another(&self, target: &str, expires: u64) -> Session {
        let plain = format!("{}:{target}:{expires}", self.user);
        let hex = sha256_hex(self.secret.as_bytes());
        let iv: [u8; 16] = hex.as_bytes()[..16].try_into().expect("64 hexadecimal digits contain 16");
        let key = UnboundCipherKey::new(&AES_256, &hex.as_bytes()[..32]).expect("the key has 256 bits");
        let key = PaddedBlockEncryptingKey::cbc_pkcs7(key).expect("AES-256 has a CBC mode");
        let mut sealed = plain.into_bytes();
        key.less_safe_encrypt(&mut sealed, EncryptionContext::Iv128(FixedLength::from(iv)))
            .expect("a text of any length can be padded and encrypted");
        Session::new(self.user.clone(), format!("{target}:{}", STANDARD.encode(sealed)))
    }
}

/// Path of the session file: `given`, otherwise `ONE_AUTH`, otherwise `~/.one/one_auth`.
pub fn session_file(given: Option<&Path>, one_auth: Option<&str>, home: Option<&str>) -> Result<PathBuf, SessionError> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let said = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(PathBuf::from);
    if let Some(path) = said(one_auth) {
        return Ok(path);
    }
    Ok(said(home).ok_or(SessionError::NoHome)?.join(".one").join("one_auth"))
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({})", self.user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_parted_at_the_first_colon() {
        for (text, expected) in [
            ("oneadmin:onepass\n", Ok(("oneadmin", "onepass"))),
            ("a:b:c", Ok(("a", "b:c"))),
            ("a: b ", Ok(("a", " b "))),
            ("oneadmin", Err("F does not contain user:password")),
            (":x", Err("F does not contain user:password")),
            ("x:", Err("F does not contain user:password")),
            ("a:b\nc:d\n", Err("F contains more than one line")),
        ] {
            let found = Session::parse(text, "F");
            let found = found.as_ref().map(|s| (s.user(), s.reveal_secret())).map_err(ToString::to_string);
            assert_eq!(found, expected.map_err(str::to_owned), "{text}");
        }
        assert!(Session::read(Path::new("/nowhere/one_auth")).is_err());
        assert!(!format!("{:?}", Session::new("a", "hush")).contains("hush"));
    }

    #[test]
    fn the_session_file_is_searched_in_order() {
        let given = Some(Path::new("/etc/auth"));
        for (given, variable, home, expected) in [
            (given, Some("/x"), Some("/home/a"), Some("/etc/auth")),
            (None, Some("/x"), Some("/home/a"), Some("/x")),
            (None, Some(""), Some("/home/a"), Some("/home/a/.one/one_auth")),
            (None, None, Some("/home/a"), Some("/home/a/.one/one_auth")),
            (None, None, None, None),
        ] {
            assert_eq!(session_file(given, variable, home).ok(), expected.map(PathBuf::from));
        }
    }

    #[test]
    fn a_service_acts_for_a_user() {
        let session = Session::new("serveradmin", "secret").for_another("alice", 1_700_000_000);
        // Created with openssl enc -aes-256-cbc from the same key, vector and text.
        assert_eq!(session.reveal(), "serveradmin:alice:OqYsiLoSIcu7LfmPO0ZUBgyjOb7hg9x6h2Sz+JPUMco=");
    }
}

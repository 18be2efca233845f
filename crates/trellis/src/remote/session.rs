//! Tokens of `trellis login --oidc`: a file for each server, which only its owner can read.

use std::io;
use std::path::{Path, PathBuf};

use trellis_api::Home;
use trellis_files::{parent_of, private};
use trellis_wire::token::Token;

const DIRECTORY: &str = "logins";

/// Where the token for a server is kept.
pub struct Session {
    path: PathBuf,
}

impl Session {
    /// `None`: no environment variable names a directory.
    pub fn of(url: &str) -> Option<Session> {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || "-.".contains(letter) { letter } else { '_' };
        let name: String = url.trim_end_matches('/').to_ascii_lowercase().chars().map(plain).collect();
        Some(Session { path: Home::find(None)?.directory().join(DIRECTORY).join(format!("{name}.token")) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn token(&self) -> Option<Token> {
        let kept = private::read(&self.path).ok()??;
        Token::parse(&String::from_utf8_lossy(&kept)).ok()
    }

    pub fn keep(&self, token: &str) -> io::Result<()> {
        private::make_directory(parent_of(&self.path))?;
        private::replace(&self.path, format!("{token}\n").as_bytes())
    }

    pub fn forget(&self) -> io::Result<()> {
        private::remove(&self.path)
    }
}

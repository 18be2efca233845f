//! Files for clients of a federation: the trusted authorities and the token of the first administrator. They are copies of
//! Secrets, and are written again from there.

use std::io;
use std::path::{Path, PathBuf};

use trellis_files::private;
use trellis_spec::Name;

#[derive(Debug, Clone)]
pub struct ClientFiles(PathBuf);

impl ClientFiles {
    pub fn new(directory: &Path, federation: &Name) -> ClientFiles {
        ClientFiles(directory.join(federation.as_str()))
    }

    pub fn trust(&self) -> PathBuf {
        self.0.join("trust.pem")
    }

    pub fn admin_token(&self) -> PathBuf {
        self.0.join("admin.token")
    }

    /// Last known address of the coordinator's HTTP API.
    pub fn coordinator(&self) -> PathBuf {
        self.0.join("coordinator.address")
    }

    pub fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        if std::fs::read(path).is_ok_and(|known| known == content) {
            return Ok(());
        }
        private::make_directory(&self.0)?;
        private::replace(path, content)
    }

    pub fn remove(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

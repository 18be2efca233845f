//! Copies of what users of a federation need, as files: whom to trust, and the first administrator's token. What counts is in
//! the cluster, and they are written again from there.

use std::io;
use std::path::{Path, PathBuf};

use trellis_files::private;
use trellis_spec::Name;

#[derive(Debug, Clone)]
pub struct Home(PathBuf);

impl Home {
    pub fn new(directory: &Path, federation: &Name) -> Home {
        Home(directory.join(federation.as_str()))
    }

    pub fn trust(&self) -> PathBuf {
        self.0.join("trust.pem")
    }

    pub fn admin_token(&self) -> PathBuf {
        self.0.join("admin.token")
    }

    /// Where the coordinator's HTTP API was seen last.
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

    /// Nothing is left to trust, or to be the administrator of.
    pub fn remove(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

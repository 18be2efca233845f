//! The home directory of the control plane on this machine: its path, and the files by which server, keeper and callers find
//! each other. The other content of the directory belongs to the server.

mod lock;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use lock::Lock;

const VARIABLE: &str = "TRELLIS_HOME";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Home {
    directory: PathBuf,
}

/// A running server, as described by `server.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    pub pid: u32,
    pub url: String,
    pub version: String,
    /// PEM file with the CA certificates that clients on this machine trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_certificates: Option<PathBuf>,
}

impl Home {
    /// The given directory, or the default of the user. Returns `None` if no environment variable names one.
    pub fn find(given: Option<&Path>) -> Option<Home> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let named = given.map(Path::to_owned).or_else(|| variable(VARIABLE));
        // The XDG specification requires relative paths to be ignored.
        let state = variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
        let state = state.or_else(|| variable("HOME").map(|home| home.join(".local/state")));
        let directory = named.or_else(|| state.map(|state| state.join("trellis")))?;
        let directory = std::path::absolute(&directory).unwrap_or(directory);
        Some(Home { directory })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The token of the first administrator.
    pub fn admin_token(&self) -> PathBuf {
        self.directory.join("admin.token")
    }

    /// The log of a server that runs in the background.
    pub fn log(&self) -> PathBuf {
        self.directory.join("server.log")
    }

    /// Contains a directory per federation, with the checkpoints of its native runs.
    pub fn models(&self) -> PathBuf {
        self.directory.join("models")
    }

    /// Checkpoints of runs within the process of `trellis run`. Federations cannot have this name.
    pub fn own_models(&self) -> PathBuf {
        self.models().join("_in-process")
    }

    /// The server holds this lock while it runs.
    pub fn server_lock(&self) -> PathBuf {
        self.directory.join("lock")
    }

    /// The keeper holds this lock while it runs.
    pub fn keeper_lock(&self) -> PathBuf {
        self.directory.join("keeper.lock")
    }

    fn server_file(&self) -> PathBuf {
        self.directory.join("server.json")
    }

    /// The running server. A file that a dead server left is ignored.
    pub fn serving(&self) -> Option<Serving> {
        let serving = self.last_serving()?;
        (Lock::holder(&self.server_lock()).ok()? == Some(serving.pid)).then_some(serving)
    }

    /// The content of `server.json`, which exists from the start of a server until its clean stop.
    pub fn last_serving(&self) -> Option<Serving> {
        serde_json::from_slice(&fs::read(self.server_file()).ok()?).ok()
    }

    /// Writes `server.json` atomically.
    pub fn announce(&self, serving: &Serving) -> io::Result<()> {
        let text = serde_json::to_vec(serving).expect("a plain struct serializes");
        trellis_files::replace(&self.server_file(), &text, trellis_files::PRIVATE_FILE)
    }

    /// Removes `server.json` at a clean stop.
    pub fn withdraw(&self) -> io::Result<()> {
        match fs::remove_file(self.server_file()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let directory = tempfile::tempdir().expect("a directory");
        let home = Home::find(Some(directory.path())).expect("a home");
        (directory, home)
    }

    fn serving(pid: u32) -> Serving {
        Serving { pid, url: "http://127.0.0.1:1".to_owned(), version: "0".to_owned(), root_certificates: None }
    }

    #[test]
    fn a_server_counts_as_running_while_it_holds_the_lock() {
        let (_directory, home) = home();
        assert_eq!(home.serving(), None);
        let own = serving(std::process::id());
        home.announce(&own).expect("written");
        assert_eq!((home.serving(), home.last_serving()), (None, Some(own.clone())), "the lock is free");
        let lock = Lock::take(&home.server_lock()).expect("files can be locked").expect("the lock is free");
        assert_eq!(home.serving(), Some(own));
        home.announce(&serving(1)).expect("written");
        assert_eq!(home.serving(), None, "another process holds the lock");
        drop(lock);
        home.withdraw().expect("removed");
        home.withdraw().expect("withdraw is idempotent");
        assert_eq!(home.last_serving(), None);
    }
}

//! The home of the control plane on this machine: where it is, and which of its files say who serves. What a server keeps in
//! it is not known here.

mod lock;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use lock::Lock;

use crate::private_dir::{self, ClaimError};

const VARIABLE: &str = "TRELLIS_HOME";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Home {
    directory: PathBuf,
}

/// The server that serves, as `server.json` says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    pub pid: u32,
    pub url: String,
    pub version: String,
    /// PEM file with the authorities that its clients on this machine trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_certificates: Option<PathBuf>,
}

impl Home {
    /// The one that is given, or the user's own; `None`: there is no place for one.
    pub fn find(given: Option<&Path>) -> Option<Home> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let named = given.map(Path::to_owned).or_else(|| variable(VARIABLE));
        // A relative XDG directory is to be ignored, says its specification.
        let state = variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
        let state = state.or_else(|| variable("HOME").map(|home| home.join(".local/state")));
        let directory = named.or_else(|| state.map(|state| state.join("trellis")))?;
        let directory = std::path::absolute(&directory).unwrap_or(directory);
        Some(Home { directory })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the directory, for its owner alone.
    pub fn make(&self) -> Result<(), ClaimError> {
        private_dir::claim(&self.directory)
    }

    /// The token of the first administrator.
    pub fn admin_token(&self) -> PathBuf {
        self.directory.join("admin.token")
    }

    /// What a server that was started in the background says.
    pub fn log(&self) -> PathBuf {
        self.directory.join("server.log")
    }

    /// A directory for each federation, with the checkpoints of its native runs.
    pub fn models(&self) -> PathBuf {
        self.directory.join("models")
    }

    /// Those of runs in the process of `trellis run`. No federation has such a name.
    pub fn own_models(&self) -> PathBuf {
        self.models().join("_in-process")
    }

    /// Held by the server for as long as it lives.
    pub fn server_lock(&self) -> PathBuf {
        self.directory.join("lock")
    }

    /// Held by the keeper for as long as it lives.
    pub fn keeper_lock(&self) -> PathBuf {
        self.directory.join("keeper.lock")
    }

    fn server_file(&self) -> PathBuf {
        self.directory.join("server.json")
    }

    /// The server that serves now. What a dead one has left is not believed.
    pub fn serving(&self) -> Option<Serving> {
        let serving = self.last_serving()?;
        (Lock::holder(&self.server_lock()).ok()? == Some(serving.pid)).then_some(serving)
    }

    /// What the last server has left: it is there from when it serves until it stops in good order.
    pub fn last_serving(&self) -> Option<Serving> {
        serde_json::from_slice(&fs::read(self.server_file()).ok()?).ok()
    }

    /// Tells everybody who looks into this home who serves: all of it or nothing.
    pub fn announce(&self, serving: &Serving) -> io::Result<()> {
        let text = serde_json::to_vec(serving).expect("it is plain data");
        trellis_files::replace(&self.server_file(), &text, trellis_files::PRIVATE_FILE)
    }

    /// Nobody serves any more, on purpose.
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
    fn a_server_is_believed_while_it_lives() {
        let (_directory, home) = home();
        assert_eq!(home.serving(), None);
        let own = serving(std::process::id());
        home.announce(&own).expect("written");
        assert_eq!((home.serving(), home.last_serving()), (None, Some(own.clone())), "nobody holds the lock");
        let lock = Lock::take(&home.server_lock()).expect("files can be locked").expect("nobody has it");
        assert_eq!(home.serving(), Some(own));
        home.announce(&serving(1)).expect("written");
        assert_eq!(home.serving(), None, "another holds the lock than the one who is named");
        drop(lock);
        home.withdraw().expect("removed");
        home.withdraw().expect("twice is the same");
        assert_eq!(home.last_serving(), None);
    }
}

//! The state of a SuperLink: a store, chosen by the program, and a directory. The link uses stores only through their
//! port.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trellis_core::port::{OnCommit, Store};

/// A directory that this process owns until drop.
pub type Directory = Arc<dyn AsRef<Path> + Send + Sync>;
pub type OpenError = Box<dyn Error + Send + Sync>;
type Open = dyn FnOnce(OnCommit) -> Result<Box<dyn Store>, OpenError> + Send;

/// A store that is not open yet, and a directory.
pub struct State {
    /// For files of this process: output of ServerApps, the token of the first account.
    pub directory: Directory,
    /// A file of the store outside of the directory. Apps must not read it.
    pub database: Option<PathBuf>,
    /// Opens the store. Called last, because opening may migrate stored data.
    pub open: Box<Open>,
}

impl State {
    pub fn path(&self) -> &Path {
        (*self.directory).as_ref()
    }
}

//! What a SuperLink keeps its state in. The program that starts it chooses: this crate knows stores by their port only.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trellis_core::port::{OnCommit, Store};

/// A directory that belongs to this process until the value is dropped.
pub type Directory = Arc<dyn AsRef<Path> + Send + Sync>;
pub type OpenError = Box<dyn Error + Send + Sync>;
type Open = dyn FnOnce(OnCommit) -> Result<Box<dyn Store>, OpenError> + Send;

/// A store that is not open yet, and a directory.
pub struct State {
    /// For files of this process, whatever the store: output of ServerApps, the token of the first account.
    pub directory: Directory,
    /// A file of the store outside of the directory, which apps must not read.
    pub database: Option<PathBuf>,
    /// Opens the store when nothing else can fail any more: that may change what is stored.
    pub open: Box<Open>,
}

impl State {
    pub fn path(&self) -> &Path {
        (*self.directory).as_ref()
    }
}

//! Apps as they come, and as they lie on disk: a FAB is checked, unpacked once, and used again.
//!
//! A FAB comes from outside and is not trusted: nothing of it lands outside its directory, whatever it says. Nothing here knows
//! of links, or of how an app is run. All calls may wait for the disk.

mod archive;
mod project;
mod shelf;
mod trust;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use trellis_digest::sha256_hex;
use trellis_wire::error_reply::ErrorCode;
use trellis_wire::fab::{self, BadFab};
use trellis_wire::proto;

use crate::app::InstalledApp;
use crate::config::Limits;
use shelf::Shelf;

pub use project::run_config;
pub(crate) use shelf::RESERVED;
pub use shelf::{Installation, KEPT, UNUSED, sweep, to_remove};
pub use trust::{ed25519_key, verify};

/// A run's configuration as the app alone gives it: tables flattened, keys joined by dots.
pub type DefaultConfig = BTreeMap<String, proto::Scalar>;

/// Why an app is not carried out.
#[derive(Debug, Error)]
pub enum FabError {
    #[error(transparent)]
    Bad(#[from] BadFab),
    #[error("The FAB is not that of the run: its SHA-256 is {found}, and the run says {expected}")]
    OtherHash { expected: String, found: String },
    #[error("The FAB could not be verified: {0}")]
    Unverified(String),
    #[error("The configuration of the run does not fit its app: {0}")]
    Config(String),
    #[error("an app could not be installed at {}", path.display())]
    Disk {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl FabError {
    /// The error that instructions of the run are answered with. `None`: the fault is this machine's, and may pass.
    ///
    /// An official node stops altogether when overrides name a key that the app does not have; an answer is kinder.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            FabError::Bad(_) | FabError::OtherHash { .. } | FabError::Unverified(_) | FabError::Config(_) => {
                Some(ErrorCode::InvalidFab)
            }
            FabError::Disk { .. } => None,
        }
    }

    fn disk(path: &Path) -> impl FnOnce(io::Error) -> FabError {
        let path = path.to_owned();
        |source| FabError::Disk { path, source }
    }
}

/// Checks a FAB and unpacks it below `apps_dir`, unless it lies there already.
pub fn install(
    fab: &proto::Fab,
    expected_hash: &str,
    apps_dir: &Path,
    limits: &Limits,
) -> Result<(InstalledApp, DefaultConfig), FabError> {
    let hash = sha256_hex(&fab.content);
    if hash != expected_hash {
        return Err(FabError::OtherHash { expected: expected_hash.to_owned(), found: hash });
    }
    let project = project::read(&fab::pyproject(&fab.content)?)?;
    let shelf = Shelf::open(apps_dir).map_err(FabError::disk(apps_dir))?;
    let directory = shelf.place(&project.metadata, &hash);
    if !shelf.used(&directory, &hash) {
        shelf.put(&directory, &hash, &fab.content, |empty| archive::unpack(&fab.content, empty, limits.app_bytes))?;
    }
    let app = InstalledApp {
        hash,
        id: project.metadata.id(),
        version: project.metadata.version,
        bundle: directory.join(shelf::BUNDLE),
        directory,
        client_app: project.client_app,
    };
    Ok((app, project.config))
}

/// The bundle of an app that was installed before, as it came.
pub fn kept_bundle(apps_dir: &Path, hash: &str) -> Result<Option<Vec<u8>>, FabError> {
    Shelf::open(apps_dir).and_then(|shelf| shelf.bundle(hash)).map_err(FabError::disk(apps_dir))
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

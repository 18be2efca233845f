//! Installed apps: a FAB is verified, unpacked once, and reused.
//!
//! A FAB is untrusted: nothing of it is written outside its directory. This module knows nothing of links, or of how apps are
//! run. All calls may block on the disk.

mod app_directory;
mod archive;
mod project;
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
use app_directory::AppDirectory;

pub(crate) use app_directory::RESERVED;
pub use app_directory::{Installation, MAX_UNUSED, MIN_KEPT, sweep, to_remove};
pub use project::run_config;
pub use trust::{ed25519_key, verify};

/// The configuration in the app: tables flattened, keys joined by dots.
pub type DefaultConfig = BTreeMap<String, proto::Scalar>;

/// Why an app is not executed.
#[derive(Debug, Error)]
pub enum FabError {
    #[error(transparent)]
    Bad(#[from] BadFab),
    #[error("The FAB does not match the run: its SHA-256 is {found} instead of {expected}")]
    OtherHash { expected: String, found: String },
    #[error("The FAB could not be verified: {0}")]
    Unverified(String),
    #[error("The configuration of the run does not match its app: {0}")]
    Config(String),
    #[error("an app cannot be installed at {}", path.display())]
    Disk {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl FabError {
    /// The error code for replies to instructions of the run. `None`: a failure of this machine, which may be temporary.
    ///
    /// An official node stops if overrides have a key that the app does not have; an error reply is better.
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

/// Verifies a FAB and unpacks it below `apps_dir`, unless it is installed already.
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
    let app_directory = AppDirectory::open(apps_dir).map_err(FabError::disk(apps_dir))?;
    let directory = app_directory.path_of(&project.metadata, &hash);
    if !app_directory.touch(&directory, &hash) {
        app_directory
            .install(&directory, &hash, &fab.content, |empty| archive::unpack(&fab.content, empty, limits.app_bytes))?;
    }
    let app = InstalledApp {
        hash,
        id: project.metadata.id(),
        version: project.metadata.version,
        bundle: directory.join(app_directory::BUNDLE),
        directory,
        client_app: project.client_app,
    };
    Ok((app, project.config))
}

/// The bundle of an installed app.
pub fn stored_bundle(apps_dir: &Path, hash: &str) -> Result<Option<Vec<u8>>, FabError> {
    AppDirectory::open(apps_dir).and_then(|app_directory| app_directory.bundle(hash)).map_err(FabError::disk(apps_dir))
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

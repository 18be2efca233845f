//! Why something could not be done: it was refused, or the machine failed.

use std::io;
use std::path::{Path, PathBuf};

use trellis_diagnostic::{Diagnostic, joined};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was changed. A retry without a change fails again.
    #[error("{}", joined(.0, "\n"))]
    Refused(Vec<Diagnostic>),
    /// May be transient. The next attempt completes the change.
    #[error("cannot {what} {}", .path.display())]
    Disk { what: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot create a certificate")]
    Mint(#[from] rcgen::Error),
}

impl Error {
    pub(crate) fn refused(place: impl Into<String>, what: impl Into<String>, advice: impl Into<String>) -> Error {
        Error::Refused(vec![Diagnostic::error(place, what, advice)])
    }

    pub(crate) fn disk(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
        let path = path.to_owned();
        move |source| Error::Disk { what, path, source }
    }
}

//! Why something could not be done: it was refused, or the machine failed.

use std::io;
use std::path::{Path, PathBuf};

use crate::problem::Problem;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was changed; asking again in the same way changes nothing either.
    #[error("{}", lines(.0))]
    Refused(Vec<Problem>),
    /// May pass. What was begun is completed by the next try.
    #[error("cannot {what} {}", .path.display())]
    Disk { what: &'static str, path: PathBuf, source: io::Error },
    #[error("a certificate could not be made")]
    Mint(#[from] rcgen::Error),
}

impl Error {
    pub(crate) fn refused(place: impl Into<String>, what: impl Into<String>, advice: impl Into<String>) -> Error {
        Error::Refused(vec![Problem::error(place, what, advice)])
    }

    pub(crate) fn disk(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
        let path = path.to_owned();
        move |source| Error::Disk { what, path, source }
    }
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

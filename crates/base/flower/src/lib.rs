//! Flower's releases: changes between them ([`changes`]), which of them work together ([`skew`]), the release in an [`Image`],
//! and how programs of each release, and ours, are started ([`launch`]). Pure.

pub mod changes;
mod image;
pub mod isolation;
pub mod launch;
mod release;
pub mod skew;

pub use image::Image;
pub use isolation::Isolation;
pub use release::Release;
pub use skew::Skew;

use std::fmt;

/// The program behind a SuperLink, SuperNode or SuperExec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Program {
    Trellis,
    Flower(Release),
    /// Called with the arguments of Flower up to 1.34.
    #[default]
    Unknown,
}

impl Program {
    pub fn is_trellis(self) -> bool {
        self == Program::Trellis
    }

    /// An official release, `from` or later.
    pub fn since(self, from: Release) -> bool {
        matches!(self, Program::Flower(release) if release >= from)
    }

    /// An official release before `end`.
    pub fn before(self, end: Release) -> bool {
        matches!(self, Program::Flower(release) if release < end)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Program::Trellis => f.write_str("Trellis"),
            Program::Flower(release) => write!(f, "Flower {}", release.series()),
            Program::Unknown => f.write_str("unknown"),
        }
    }
}

/// Compares a generated file of the Python tests; `UPDATE_GOLDENS=1` writes it.
#[cfg(test)]
fn golden(file: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/harness").join(file);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, text).expect("the file is written");
    }
    assert_eq!(std::fs::read_to_string(path).ok().as_deref(), Some(text), "run with UPDATE_GOLDENS=1");
}

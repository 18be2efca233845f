//! Whether a directory is a Flower app whose `pyproject.toml` the official command reads connections from.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

pub const PYPROJECT: &str = "pyproject.toml";
/// Older ones look into the app, this one and later ones into their own file, where they move what they find in an app.
const READS_OWN_FILE: Release = Release { major: 1, minor: 26 };

/// Of the official packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    pub major: u32,
    pub minor: u32,
}

impl Release {
    /// `1.25.0`, `1.30.0.dev20260101`.
    pub fn parse(version: &str) -> Option<Release> {
        let mut parts = version.trim().split('.');
        let mut number = || parts.next()?.parse().ok();
        Some(Release { major: number()?, minor: number()? })
    }
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The directory, if connections for this release of `flwr` belong into its app. Where the release is not known, those apps are
/// meant that have some already.
pub fn app_here(directory: &Path, release: Option<Release>) -> Option<PathBuf> {
    let text = super::file::read(&directory.join(PYPROJECT)).ok()??;
    let project: Table = text.parse().ok()?;
    let flwr = project.get("tool")?.get("flwr")?.as_table()?;
    flwr.get("app")?;
    let wanted = match release {
        Some(release) => release < READS_OWN_FILE,
        None => flwr.get("federations").is_some_and(Value::is_table),
    };
    wanted.then(|| directory.to_owned())
}

//! Status file of the agent for other programs of the machine: `bootstrap` waits for it, `status` prints it. A reboot removes
//! it.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::disk;
use crate::failure::Failure;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub role: String,
    pub ready: bool,
    /// Current activity as text.
    pub doing: String,
    #[serde(rename = "trouble")]
    pub failure: Option<Failure>,
    /// A change waits until no round is running.
    pub waiting: bool,
    pub endpoint: Option<String>,
    pub instance: Option<String>,
    pub generation: Option<String>,
    /// Start of the observation of the context on which the status is based, in seconds since 1970.
    #[serde(rename = "looked_at")]
    pub observed_at: f64,
    /// Process id of the agent.
    pub pid: u32,
}

impl Status {
    pub fn read(path: &Path) -> io::Result<Status> {
        serde_json::from_slice(&std::fs::read(path)?).map_err(io::Error::other)
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        disk::make_directory(path.parent().unwrap_or(Path::new("/")), 0o755, None)?;
        disk::write(path, &serde_json::to_vec_pretty(self).map_err(io::Error::other)?, 0o644, None).map(drop)
    }
}

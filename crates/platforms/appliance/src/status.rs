//! What the agent says of itself to others on the machine: `bootstrap` waits for it, `status` shows it. Gone with a reboot.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::disk;
use crate::trouble::Trouble;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub role: String,
    pub ready: bool,
    /// What the agent is doing, in words.
    pub doing: String,
    pub trouble: Option<Trouble>,
    /// A change that waits until no round is at work.
    pub waiting: bool,
    pub endpoint: Option<String>,
    pub instance: Option<String>,
    pub generation: Option<String>,
    /// When the look at the context began that this comes from, in seconds since 1970.
    pub looked_at: f64,
    /// The process of the agent.
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

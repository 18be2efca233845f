//! The permissions of one app, as the starting process passes them to [`crate::enter`]. Plain data without logic.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// A rule that cannot be enforced is an error; otherwise it is skipped.
    pub required: bool,
    /// `None`: the app keeps the user of the starting process.
    pub user: Option<User>,
    /// Paths to read, list and execute.
    pub read: Vec<PathBuf>,
    /// Paths with all rights.
    pub write: Vec<PathBuf>,
    /// Device files to read, write and control.
    pub devices: Vec<PathBuf>,
    pub sockets: Sockets,
    /// The kernel cannot restrict truncation, so the filter refuses the system call.
    pub refuse_truncate: bool,
}

/// The ids of a user that owns only the files of one app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    /// Groups of GPU device files.
    pub groups: Vec<u32>,
}

/// The sockets that an app may use, in addition to unix sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sockets {
    /// IPv4 and IPv6.
    All,
    /// TCP connections to this port only.
    Port(u16),
    /// None.
    Unix,
}

//! What one app may do, as the starting process describes it to [`crate::enter`]. Plain data: nothing is decided there.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// What cannot be enforced is an error; otherwise it is left out.
    pub required: bool,
    /// `None`: the app keeps the user of the starting process.
    pub user: Option<User>,
    /// To read, list and execute.
    pub read: Vec<PathBuf>,
    /// To do everything with.
    pub write: Vec<PathBuf>,
    /// Device files: to read, write and control.
    pub devices: Vec<PathBuf>,
    pub sockets: Sockets,
    /// The kernel cannot restrict `truncate`, so the system call is refused.
    pub refuse_truncate: bool,
}

/// Numbers of a user that owns nothing but the files of one app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    /// Groups of GPU device files.
    pub groups: Vec<u32>,
}

/// Which sockets an app may use, beside those of the unix family.
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

//! What is counted when it is asked for, and by the one who knows: state of the store, certificates.

use trellis_core::Seconds;

use super::label::Version;

/// How things stand at the moment of a scrape.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// `None`: the store cannot be read now. What it would say is then left out.
    pub counts: Option<Counts>,
    /// The last commit worked.
    pub store_works: bool,
    /// Changes that wait for a commit.
    pub store_queue_length: u64,
    pub certificates: Vec<Certificate>,
}

/// What the store holds.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    pub nodes: Vec<NodeCount>,
    /// Runs by the name of their state.
    pub runs: Vec<(&'static str, u64)>,
    pub objects: u64,
    pub object_bytes: u64,
}

/// So many nodes are in this state and announced this version.
#[derive(Debug, Clone, Copy)]
pub struct NodeCount {
    pub state: &'static str,
    pub version: Version,
    pub count: u64,
}

/// A certificate that is in use.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// What it is for, such as `server` or `ca`.
    pub role: &'static str,
    pub expires_at: Seconds,
}

impl Counts {
    /// Nodes that are online, whatever their version.
    pub fn online(&self) -> u64 {
        self.nodes.iter().filter(|nodes| nodes.state == "online").map(|nodes| nodes.count).sum()
    }
}

//! How much there is of everything at one moment: what an operator watches. Counted by the store, which has the rows;
//! nothing is decided by it.

use std::collections::BTreeMap;

/// One look at the whole state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// Registered, and never active so far.
    pub nodes_registered: u64,
    pub nodes_offline: u64,
    /// Nodes that are online, by what they said of themselves (`http 1.42.0`).
    pub nodes_online_by_client: BTreeMap<String, u64>,

    pub runs_pending: u64,
    pub runs_starting: u64,
    pub runs_running: u64,
    pub runs_completed: u64,
    pub runs_failed: u64,
    pub runs_stopped: u64,

    /// Some of their objects are not here yet.
    pub instructions_incomplete: u64,
    /// Ready: they wait for their node to ask.
    pub instructions_waiting: u64,
    /// Their node has them, and has not answered in full.
    pub instructions_out: u64,
    /// Their ServerApp has not fetched the answer.
    pub instructions_answered: u64,
    pub replies_ready: u64,

    /// Announced, here or not.
    pub objects: u64,
    /// Of those that are here.
    pub object_bytes: u64,
    pub audit_entries: u64,
}

impl Census {
    pub fn nodes_online(&self) -> u64 {
        self.nodes_online_by_client.values().sum()
    }
}

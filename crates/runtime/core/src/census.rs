//! Counts of the whole state, for metrics. The store computes them.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// Registered and never activated.
    pub nodes_registered: u64,
    pub nodes_offline: u64,
    /// Online nodes by client release (`http 1.42.0`).
    pub nodes_online_by_client: BTreeMap<String, u64>,

    pub runs_pending: u64,
    pub runs_starting: u64,
    pub runs_running: u64,
    pub runs_completed: u64,
    pub runs_failed: u64,
    pub runs_stopped: u64,

    /// Objects are missing.
    pub instructions_incomplete: u64,
    /// Ready, not delivered.
    pub instructions_waiting: u64,
    /// Delivered or confirmed, not answered.
    pub instructions_out: u64,
    /// Answered; the ServerApp has not collected the reply.
    pub instructions_answered: u64,
    pub replies_ready: u64,

    /// Announced objects, with or without content.
    pub objects: u64,
    /// Bytes of stored content.
    pub object_bytes: u64,
    pub audit_entries: u64,
}

impl Census {
    pub fn nodes_online(&self) -> u64 {
        self.nodes_online_by_client.values().sum()
    }
}

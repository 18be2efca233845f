//! How many nodes were away at once because of actions, judged by what happened and not by what was planned.

use std::collections::{BTreeMap, BTreeSet};

/// Nodes that served once and do not, less those that failed by themselves, are away because somebody took them.
#[derive(Debug, Clone, Default)]
pub struct Disruptions {
    /// How many were wanted when actions up to this serial number were decided.
    wanted: BTreeMap<u64, u32>,
    /// As many as served at once so far, of those that are wanted.
    established: u32,
    /// Shards whose node failed by itself, and does not serve since.
    failed: BTreeSet<u32>,
    /// The most that were away at once.
    pub worst: u32,
    /// Actions that took a node which served.
    pub taken: u32,
}

impl Disruptions {
    /// Actions after the ones before, up to `serial`, are decided for `wanted` nodes.
    pub fn decided(&mut self, serial: u64, wanted: u32) {
        self.wanted.insert(serial, wanted);
        self.established = self.established.min(wanted);
    }

    pub(super) fn serves(&mut self, shard: u32, serving: u32) {
        self.failed.remove(&shard);
        let wanted = self.wanted.last_key_value().map_or(u32::MAX, |(_, wanted)| *wanted);
        self.established = self.established.max(serving.min(wanted));
        if serving >= wanted {
            self.failed.clear();
        }
    }

    pub(super) fn failed(&mut self, shard: u32) {
        self.failed.insert(shard);
    }

    /// The action with this serial number took a node that served; so many still do.
    pub(super) fn took(&mut self, serial: u64, serving: u32) {
        self.taken += 1;
        let wanted = self.wanted.range(serial..).next().map_or(0, |(_, wanted)| *wanted);
        let failed = u32::try_from(self.failed.len()).unwrap_or(u32::MAX);
        let away = self.established.min(wanted).saturating_sub(serving).saturating_sub(failed);
        self.worst = self.worst.max(away);
    }
}

//! How many nodes were away at once because of actions, judged by what happened and not by what was planned.

use std::collections::{BTreeMap, BTreeSet};

use crate::resource::NodeKey;
use crate::status::{NodeStatus, Status};

/// Counts in two ways and believes the smaller: shards whose node an action took and that nobody serves since; and nodes
/// that served once and do not, less those that failed by themselves.
#[derive(Debug, Clone, Default)]
pub struct Disruptions {
    /// How many were wanted when actions up to this serial number were decided.
    wanted: BTreeMap<u64, u32>,
    /// As many as served at once so far, of those that are wanted.
    established: u32,
    /// Nodes that failed by themselves, and do not serve since.
    failed: BTreeSet<NodeKey>,
    /// Shards whose node was taken, and that nobody serves since.
    taken: BTreeSet<u32>,
    /// The most that were away at once.
    pub worst: u32,
}

impl Disruptions {
    /// Actions after the ones before, up to `serial`, are decided for these nodes.
    pub fn decided(&mut self, serial: u64, status: &Status) {
        let wanted: Vec<&NodeStatus> = status.nodes.iter().filter(|node| node.wanted).collect();
        let count = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
        self.wanted.insert(serial, count);
        self.established = self.established.min(count);
        let shards: BTreeSet<u32> = wanted.iter().filter_map(|node| node.shard).collect();
        // What nobody wants any more is not missing. While some wait for a shard, it may be the one of such a node.
        if shards.len() == wanted.len() {
            let names: BTreeSet<&str> = wanted.iter().map(|node| &*node.name).collect();
            self.failed.retain(|node| names.contains(&*node.to_string()));
            self.taken.retain(|shard| shards.contains(shard));
        }
    }

    pub(super) fn serves(&mut self, node: &NodeKey, shard: Option<u32>, serving: u32) {
        self.failed.remove(node);
        self.taken.retain(|taken| Some(*taken) != shard);
        let wanted = self.wanted.last_key_value().map_or(u32::MAX, |(_, wanted)| *wanted);
        self.established = self.established.max(serving.min(wanted));
    }

    pub(super) fn failed(&mut self, node: &NodeKey) {
        self.failed.insert(node.clone());
    }

    /// The action with this serial number took the node of a shard, which served; so many still do.
    pub(super) fn took(&mut self, serial: u64, shard: Option<u32>, serving: u32) {
        self.taken.extend(shard);
        let wanted = self.wanted.range(serial..).next().map_or(0, |(_, wanted)| *wanted);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let missing = self.established.min(wanted).saturating_sub(serving).saturating_sub(number(self.failed.len()));
        self.worst = self.worst.max(missing.min(number(self.taken.len())));
    }
}

//! Counts the nodes that actions made unavailable at once. Uses the simulated events instead of the plans.

use std::collections::{BTreeMap, BTreeSet};

use crate::resource::NodeKey;
use crate::status::{NodeStatus, Status};

/// The smaller of two counts: shards whose node an action stopped and that no node serves since; and nodes that served before and do
/// not now, without those that failed by themselves.
#[derive(Debug, Clone, Default)]
pub struct Disruptions {
    /// By serial number of the last action of a plan: the number of desired nodes.
    desired: BTreeMap<u64, u32>,
    /// The largest number of desired nodes that served at once so far.
    established: u32,
    /// Nodes that failed by themselves and do not serve since.
    failed: BTreeSet<NodeKey>,
    /// Shards whose node an action stopped, and that no node serves since.
    stopped: BTreeSet<u32>,
    /// The largest number of nodes that were unavailable at once.
    pub worst: u32,
}

impl Disruptions {
    /// A plan with actions up to `serial` was made for these nodes.
    pub fn planned(&mut self, serial: u64, status: &Status) {
        let desired: Vec<&NodeStatus> = status.nodes.iter().filter(|node| node.wanted).collect();
        let count = u32::try_from(desired.len()).unwrap_or(u32::MAX);
        self.desired.insert(serial, count);
        self.established = self.established.min(count);
        let shards: BTreeSet<u32> = desired.iter().filter_map(|node| node.shard).collect();
        // A node that is no longer desired is not missing. While nodes wait for a shard, it may be the shard of such a node.
        if shards.len() == desired.len() {
            let names: BTreeSet<&str> = desired.iter().map(|node| &*node.name).collect();
            self.failed.retain(|node| names.contains(&*node.to_string()));
            self.stopped.retain(|shard| shards.contains(shard));
        }
    }

    pub(super) fn serves(&mut self, node: &NodeKey, shard: Option<u32>, serving: u32) {
        self.failed.remove(node);
        self.stopped.retain(|stopped| Some(*stopped) != shard);
        let desired = self.desired.last_key_value().map_or(u32::MAX, |(_, desired)| *desired);
        self.established = self.established.max(serving.min(desired));
    }

    pub(super) fn failed(&mut self, node: &NodeKey) {
        self.failed.insert(node.clone());
    }

    /// The action with this serial number stopped the serving node of a shard; `serving` nodes still serve.
    pub(super) fn stopped(&mut self, serial: u64, shard: Option<u32>, serving: u32) {
        self.stopped.extend(shard);
        let desired = self.desired.range(serial..).next().map_or(0, |(_, desired)| *desired);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let missing = self.established.min(desired).saturating_sub(serving).saturating_sub(number(self.failed.len()));
        self.worst = self.worst.max(missing.min(number(self.stopped.len())));
    }
}

//! The shard table: which node has which shard of the data (`partition-id` of `num-partitions`).
//!
//! A node keeps its shard as long as it exists, whatever happens to its machine. A shard is free if its node is neither in the
//! document nor observed; the lowest free shard is assigned first. So after any sequence of scalings: every desired node has one
//! shard, no two nodes have the same one, and all are below the number of shards. If as many nodes are desired as there are shards,
//! every shard has a node.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::resource::NodeKey;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardTable {
    holders: BTreeMap<u32, NodeKey>,
    /// The largest number of nodes that was ever desired at once.
    #[serde(rename = "most")]
    max_nodes: u32,
}

impl ShardTable {
    pub fn of(&self, node: &NodeKey) -> Option<u32> {
        self.holders.iter().find(|(_, holder)| *holder == node).map(|(shard, _)| *shard)
    }

    pub fn holder(&self, shard: u32) -> Option<&NodeKey> {
        self.holders.get(&shard)
    }

    pub fn holders(&self) -> impl Iterator<Item = (u32, &NodeKey)> {
        self.holders.iter().map(|(shard, holder)| (*shard, holder))
    }

    pub(crate) fn by_node(&self) -> BTreeMap<&NodeKey, u32> {
        self.holders.iter().map(|(shard, holder)| (holder, *shard)).collect()
    }

    /// The number of shards: as in the document, or the largest number of nodes so far. It does not shrink by itself, as that would
    /// repartition the data under busy nodes.
    pub fn total(&self, partitions: Option<u32>) -> u32 {
        partitions.unwrap_or(self.max_nodes)
    }

    /// Takes over the shard that a node was observed with, unless another node has it.
    pub fn adopt(&mut self, node: &NodeKey, shard: u32) {
        // The lookup by shard comes first because it is cheap, and this runs for every node at every reconcile.
        if !self.holders.contains_key(&shard) && self.of(node).is_none() {
            self.holders.insert(shard, node.clone());
            self.max_nodes = self.max_nodes.max(shard.saturating_add(1));
        }
    }

    /// Frees the shards of all other nodes.
    pub fn release_others(&mut self, keep: &BTreeSet<&NodeKey>) {
        self.holders.retain(|_, holder| keep.contains(holder));
    }

    /// Extends the table to this many nodes.
    pub fn make_room(&mut self, nodes: usize) {
        self.max_nodes = self.max_nodes.max(u32::try_from(nodes).unwrap_or(u32::MAX));
    }

    /// Assigns a shard that is not `in_use` by another node to every desired node. Returns the nodes without one: they wait for
    /// shards of nodes that are being removed.
    pub fn assign<'a>(
        &mut self,
        desired: &[&'a NodeKey],
        partitions: Option<u32>,
        in_use: impl Fn(u32, &NodeKey) -> bool,
    ) -> Vec<&'a NodeKey> {
        self.make_room(desired.len());
        let total = self.total(partitions);
        let nodes: BTreeSet<&NodeKey> = desired.iter().copied().collect();
        // With fewer shards than before, the shards beyond are void.
        self.holders.retain(|shard, holder| *shard < total || !nodes.contains(holder));
        let served: BTreeSet<NodeKey> = self.holders.values().cloned().collect();
        let mut free: BTreeSet<u32> = (0..total).filter(|shard| !self.holders.contains_key(shard)).collect();
        let mut waiting = Vec::new();
        for node in desired.iter().filter(|node| !served.contains(node)) {
            match free.iter().copied().find(|shard| !in_use(*shard, node)) {
                Some(shard) => {
                    free.remove(&shard);
                    self.holders.insert(shard, (*node).clone());
                }
                None => waiting.push(*node),
            }
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use trellis_spec::Name;

    use super::*;

    fn key(pool: &str, index: u32) -> NodeKey {
        NodeKey { pool: Name::new(pool).expect("a name"), index }
    }

    fn never_in_use(_: u32, _: &NodeKey) -> bool {
        false
    }

    fn numbers(table: &ShardTable) -> Vec<(u32, String)> {
        table.holders().map(|(shard, node)| (shard, node.to_string())).collect()
    }

    #[test]
    fn a_leaving_node_holds_its_shard_until_it_is_gone() {
        let mut table = ShardTable::default();
        let old = key("old", 0);
        let new = key("new", 0);
        assert!(table.assign(&[&old], None, never_in_use).is_empty());
        assert_eq!(table.assign(&[&new], None, never_in_use), [&new], "the only shard is still held");
        table.release_others(&BTreeSet::from([&new]));
        assert!(table.assign(&[&new], None, never_in_use).is_empty());
        assert_eq!(numbers(&table), [(0, "new-0".to_owned())]);
        assert_eq!(table.total(None), 1);
    }

    #[test]
    fn fewer_partitions_renumber_the_nodes_beyond() {
        let mut table = ShardTable::default();
        let (a, b, c) = (key("a", 0), key("a", 1), key("a", 2));
        table.assign(&[&a, &b, &c], None, never_in_use);
        table.release_others(&BTreeSet::from([&a, &c]));
        assert!(table.assign(&[&a, &c], Some(2), never_in_use).is_empty());
        assert_eq!(numbers(&table), [(0, "a-0".to_owned()), (1, "a-2".to_owned())]);
    }

    #[test]
    fn an_observed_shard_of_another_node_is_ignored() {
        let mut table = ShardTable::default();
        table.adopt(&key("a", 0), 3);
        table.adopt(&key("a", 1), 3);
        assert_eq!(numbers(&table), [(3, "a-0".to_owned())]);
        assert_eq!(table.total(None), 4);
    }
}

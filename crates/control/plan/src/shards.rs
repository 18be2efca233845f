//! Which node has which shard of the data: its `partition-id`, of `num-partitions`.
//!
//! A node keeps its number for its life, whatever happens to its machine. A number is free again when its node is gone
//! from the document and from the world, and the lowest free one is given first. So, whatever was scaled before:
//! every wanted node has one number, no two nodes have the same, all are below the number of shards; and when as many
//! nodes are wanted as there are shards, every shard has its node: the table is complete.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::resource::NodeKey;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardTable {
    holders: BTreeMap<u32, NodeKey>,
    /// The largest number of nodes that was ever wanted at once.
    most: u32,
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

    /// How many shards there are: what the document says, or the largest number of nodes so far. It does not shrink by
    /// itself: the data would be divided anew under nodes that are at work.
    pub fn total(&self, partitions: Option<u32>) -> u32 {
        partitions.unwrap_or(self.most)
    }

    /// Believes a node that was found with a shard, unless another has it.
    pub fn adopt(&mut self, node: &NodeKey, shard: u32) {
        // Looking a shard up is cheap, looking a node up is not: this is asked for every node, at every look.
        if !self.holders.contains_key(&shard) && self.of(node).is_none() {
            self.holders.insert(shard, node.clone());
            self.most = self.most.max(shard.saturating_add(1));
        }
    }

    /// Frees the shards of nodes that are neither wanted nor perhaps still there.
    pub fn release_others(&mut self, keep: &BTreeSet<&NodeKey>) {
        self.holders.retain(|_, holder| keep.contains(holder));
    }

    /// Makes room for this many nodes at once.
    pub fn make_room(&mut self, nodes: usize) {
        self.most = self.most.max(u32::try_from(nodes).unwrap_or(u32::MAX));
    }

    /// Gives every wanted node a shard, though none that is `in_use` by another. Those who get none wait for one
    /// that a leaving node still holds.
    pub fn assign<'a>(
        &mut self,
        wanted: &[&'a NodeKey],
        partitions: Option<u32>,
        in_use: impl Fn(u32, &NodeKey) -> bool,
    ) -> Vec<&'a NodeKey> {
        self.make_room(wanted.len());
        let total = self.total(partitions);
        let asked: BTreeSet<&NodeKey> = wanted.iter().copied().collect();
        // The data is divided into fewer parts than before: their numbers are no more.
        self.holders.retain(|shard, holder| *shard < total || !asked.contains(holder));
        let served: BTreeSet<NodeKey> = self.holders.values().cloned().collect();
        let mut free: BTreeSet<u32> = (0..total).filter(|shard| !self.holders.contains_key(shard)).collect();
        let mut waiting = Vec::new();
        for node in wanted.iter().filter(|node| !served.contains(node)) {
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

    fn nobody(_: u32, _: &NodeKey) -> bool {
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
        assert!(table.assign(&[&old], None, nobody).is_empty());
        assert_eq!(table.assign(&[&new], None, nobody), [&new], "the only shard is still held");
        table.release_others(&BTreeSet::from([&new]));
        assert!(table.assign(&[&new], None, nobody).is_empty());
        assert_eq!(numbers(&table), [(0, "new-0".to_owned())]);
        assert_eq!(table.total(None), 1);
    }

    #[test]
    fn fewer_partitions_renumber_those_beyond() {
        let mut table = ShardTable::default();
        let (a, b, c) = (key("a", 0), key("a", 1), key("a", 2));
        table.assign(&[&a, &b, &c], None, nobody);
        table.release_others(&BTreeSet::from([&a, &c]));
        assert!(table.assign(&[&a, &c], Some(2), nobody).is_empty());
        assert_eq!(numbers(&table), [(0, "a-0".to_owned()), (1, "a-2".to_owned())]);
    }

    #[test]
    fn who_is_found_with_a_shard_of_another_is_not_believed() {
        let mut table = ShardTable::default();
        table.adopt(&key("a", 0), 3);
        table.adopt(&key("a", 1), 3);
        assert_eq!(numbers(&table), [(3, "a-0".to_owned())]);
        assert_eq!(table.total(None), 4);
    }
}

//! Assignment of data shards to nodes without a controller. A node keeps its shard while it exists. A new node gets the
//! lowest free shard. The number of shards never shrinks, because that would change every node's share.
//!
//! Pure: the agent of the SuperLink publishes the table; agents of nodes read it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shards {
    /// VM to shard.
    of: BTreeMap<u64, u32>,
    count: u32,
}

impl Shards {
    /// Parses `12:0,13:1/2`. `None` if the text is no table.
    pub fn parse(text: &str) -> Option<Shards> {
        let (entries, count) = text.trim().rsplit_once('/')?;
        let mut of = BTreeMap::new();
        let mut taken = BTreeSet::new();
        for entry in entries.split(',').filter(|entry| !entry.is_empty()) {
            let (vm, shard) = entry.split_once(':')?;
            let (vm, shard) = (vm.parse().ok()?, shard.parse().ok()?);
            if !taken.insert(shard) || of.insert(vm, shard).is_some() {
                return None;
            }
        }
        let count = count.parse().ok()?;
        taken.last().is_none_or(|last| *last < count).then_some(Shards { of, count })
    }

    pub fn to_attribute(&self) -> String {
        let mut text = String::new();
        for (vm, shard) in &self.of {
            let between = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{between}{vm}:{shard}");
        }
        let _ = write!(text, "/{}", self.count);
        text
    }

    /// Updates the table for the current nodes.
    pub fn follow(&mut self, nodes: &BTreeSet<u64>) {
        self.of.retain(|vm, _| nodes.contains(vm));
        let mut taken: BTreeSet<u32> = self.of.values().copied().collect();
        for vm in nodes {
            if self.of.contains_key(vm) {
                continue;
            }
            let free = (0..).find(|shard| !taken.contains(shard)).expect("there are more numbers than nodes");
            taken.insert(free);
            self.of.insert(*vm, free);
            self.count = self.count.max(free + 1);
        }
    }

    /// Shard of a node, and the number of shards.
    pub fn shard(&self, vm: u64) -> Option<(u32, u32)> {
        self.of.get(&vm).map(|shard| (*shard, self.count))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(steps: &[&[u64]]) -> String {
        let mut shards = Shards::default();
        for nodes in steps {
            shards.follow(&nodes.iter().copied().collect());
        }
        shards.to_attribute()
    }

    #[test]
    fn nodes_keep_their_shards() {
        for (steps, expected) in [
            (vec![&[][..]], "/0"),
            (vec![&[12, 13][..]], "12:0,13:1/2"),
            (vec![&[12, 13][..], &[12, 13, 20, 21, 22]], "12:0,13:1,20:2,21:3,22:4/5"),
            (vec![&[12, 13, 20, 21, 22][..], &[13, 21, 22]], "13:1,21:3,22:4/5"),
            (vec![&[12, 13, 20][..], &[13], &[13, 30]], "13:1,30:0/3"),
        ] {
            assert_eq!(after(&steps), expected);
        }
    }

    #[test]
    fn what_is_no_table_is_not_read() {
        for text in ["", "1:0", "1:0,1:1/2", "1:0,2:0/2", "1:2/2", "a:0/1", "1:0/x"] {
            assert_eq!(Shards::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn shards_are_disjoint_and_stable(steps in prop::collection::vec(prop::collection::btree_set(0u64..30, 0..12), 1..12)) {
            let mut shards = Shards::default();
            for nodes in &steps {
                let before = shards.clone();
                shards.follow(nodes);
                let given: BTreeSet<u32> = nodes.iter().filter_map(|vm| shards.shard(*vm)).map(|(shard, _)| shard).collect();
                prop_assert_eq!(given.len(), nodes.len());
                for vm in nodes {
                    if let Some((shard, _)) = before.shard(*vm) {
                        prop_assert_eq!(shards.shard(*vm).map(|(now, _)| now), Some(shard));
                    }
                }
                prop_assert!(shards.count >= before.count);
                prop_assert_eq!(Shards::parse(&shards.to_attribute()), Some(shards.clone()));
            }
        }
    }
}

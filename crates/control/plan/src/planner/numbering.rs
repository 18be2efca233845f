//! The desired nodes, and the shard of each.

use std::collections::{BTreeMap, BTreeSet};

use trellis_spec::{Federation, Name, Pool};

use super::grouped::GroupedReport;
use super::{Step, joined, scaling};
use crate::ledger::Ledger;
use crate::observed::{Phase, Presence};
use crate::report::Weight;
use crate::resource::{NodeKey, ResourceId};
use crate::status::orphaned;

/// A desired node: the index of its pool, its identity, and its shard if it has one yet.
pub(super) struct Numbered {
    pub pool: usize,
    pub key: NodeKey,
    pub shard: Option<u32>,
}

pub(super) fn number(
    federation: &Federation,
    counts: &BTreeMap<Name, u32>,
    known: &BTreeMap<ResourceId, Presence>,
    ledger: &mut Ledger,
) -> (Vec<Numbered>, Step) {
    let mut step = Step::default();
    let mut keys = desired_keys(federation, counts, known, ledger);
    let partitions = federation.training.partitions;
    cut_to_partitions(&mut keys, partitions, &mut step);

    let desired: Vec<&NodeKey> = keys.iter().map(|(_, key)| key).collect();
    let existing = known.keys().filter_map(ResourceId::node_key);
    let keep: BTreeSet<&NodeKey> = desired.iter().copied().chain(existing).collect();
    let before = ledger.shards.total(partitions);
    ledger.shards.release_others(&keep);
    joined::make_room(desired.len(), partitions, ledger);
    let mut grouped = GroupedReport::default();
    let mut shards = std::mem::take(&mut ledger.shards);
    let waiting = shards.assign(&desired, partitions, |shard, node| ledger.may_be_used_by_another(shard, node));
    ledger.shards = shards;
    for key in waiting {
        grouped.add(Weight::Waits, key, "not created: all shards are held by nodes that are being deleted");
    }
    grouped.into_step(&mut step);
    joined::assign(partitions, ledger);
    let holders = desired.len() + ledger.joined.values().filter(|joined| joined.shard.is_some()).count();
    report_division(federation, before, holders, ledger, &mut step);

    let shards = ledger.shards.by_node();
    let shard_of = |key: &NodeKey| shards.get(key).copied();
    let numbered = keys.iter().map(|(pool, key)| Numbered { pool: *pool, key: key.clone(), shard: shard_of(key) });
    (numbered.collect(), step)
}

fn desired_keys(
    federation: &Federation,
    counts: &BTreeMap<Name, u32>,
    known: &BTreeMap<ResourceId, Presence>,
    ledger: &Ledger,
) -> Vec<(usize, NodeKey)> {
    let of_pool = |(number, pool): (usize, &Pool)| {
        let count = counts.get(&pool.name).copied().unwrap_or(pool.count);
        let indices = match scaling::is_scaled(pool) {
            true => retained_indices(pool, count, known, ledger),
            false => (0..count).collect(),
        };
        let name = pool.name.clone();
        indices.into_iter().map(move |index| (number, NodeKey { pool: name.clone(), index }))
    };
    federation.pools.iter().enumerate().flat_map(of_pool).collect()
}

/// Indices of a pool that is scaled: busy nodes are kept first, then serving ones, then lower indices. Nodes that are being removed
/// stay in removal. New nodes get the lowest free indices.
fn retained_indices(pool: &Pool, count: u32, known: &BTreeMap<ResourceId, Presence>, ledger: &Ledger) -> BTreeSet<u32> {
    let mut existing: BTreeMap<u32, u8> = BTreeMap::new();
    for (id, presence) in known {
        if let Some(key) = id.node_key().filter(|key| key.pool == pool.name) {
            let rank = rank(id, presence, ledger);
            existing.entry(key.index).and_modify(|before| *before = rank.min(*before)).or_insert(rank);
        }
    }
    let mut ranked: Vec<(u8, u32)> = existing.iter().map(|(index, rank)| (*rank, *index)).collect();
    ranked.sort_unstable();
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let mut indices: BTreeSet<u32> = ranked.into_iter().take(count).map(|(_, index)| index).collect();
    let free = (0..).filter(|index| !existing.contains_key(index)).take(count - indices.len());
    let new: Vec<u32> = free.collect();
    indices.extend(new);
    indices
}

/// Nodes with a lower rank are kept first.
fn rank(id: &ResourceId, presence: &Presence, ledger: &Ledger) -> u8 {
    match presence.facts() {
        Some(facts) if facts.draining || facts.phase == Phase::Stopping => 3,
        Some(facts) if facts.busy == Some(true) => 0,
        _ if ledger.drains.contains_key(id) => 3,
        None => 0,
        Some(facts) if facts.serves() => 1,
        Some(_) => 2,
    }
}

/// If there are fewer partitions than nodes, the remaining nodes would have no data.
fn cut_to_partitions(keys: &mut Vec<(usize, NodeKey)>, partitions: Option<u32>, step: &mut Step) {
    let Some(partitions) = partitions else { return };
    let max = usize::try_from(partitions).unwrap_or(usize::MAX);
    if keys.len() <= max {
        return;
    }
    let desired = keys.len();
    let left_out: Vec<String> = keys.drain(max..).map(|(_, key)| key.to_string()).collect();
    let text = format!(
        "{desired} nodes are desired, but the data has {partitions} partitions; nodes without a partition: {}; \
         raise training.partitions or lower the counts",
        left_out.join(", ")
    );
    step.report(Weight::Stuck, "federation", text);
}

fn report_division(federation: &Federation, before: u32, holders: usize, ledger: &Ledger, step: &mut Step) {
    if federation.training.partitions.is_some() {
        return;
    }
    let total = ledger.shards.total(None);
    if before > 0 && total > before {
        let text = format!(
            "the data is repartitioned into {total} shards instead of {before}: the nodes are upgraded one after the other, and \
             no run selects nodes of both numberings; set training.partitions to keep the number constant"
        );
        step.report(Weight::Note, "federation", text);
    }
    if (holders as u64) < u64::from(total) && before == total {
        let idle = total - u32::try_from(holders).unwrap_or(u32::MAX);
        step.report(Weight::Note, "federation", orphaned(idle, total));
    }
}

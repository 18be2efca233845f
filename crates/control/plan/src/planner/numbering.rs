//! Which nodes there are to be, and the shard of each.

use std::collections::{BTreeMap, BTreeSet};

use trellis_spec::{Federation, Name, Pool};

use super::crowd::Crowd;
use super::{Step, joined, scaling};
use crate::ledger::Ledger;
use crate::observed::{Phase, Sighting};
use crate::report::Weight;
use crate::resource::{NodeKey, ResourceId};
use crate::status::orphaned;

/// A node that is wanted: the number of its pool, who it is, and its shard if there is one for it already.
pub(super) struct Numbered {
    pub pool: usize,
    pub key: NodeKey,
    pub shard: Option<u32>,
}

pub(super) fn number(
    federation: &Federation,
    counts: &BTreeMap<Name, u32>,
    known: &BTreeMap<ResourceId, Sighting>,
    ledger: &mut Ledger,
) -> (Vec<Numbered>, Step) {
    let mut step = Step::default();
    let mut keys = wanted_keys(federation, counts, known, ledger);
    let partitions = federation.training.partitions;
    cut_to_partitions(&mut keys, partitions, &mut step);

    let wanted: Vec<&NodeKey> = keys.iter().map(|(_, key)| key).collect();
    let there = known.keys().filter_map(ResourceId::node_key);
    let keep: BTreeSet<&NodeKey> = wanted.iter().copied().chain(there).collect();
    let before = ledger.shards.total(partitions);
    ledger.shards.release_others(&keep);
    joined::make_room(wanted.len(), partitions, ledger);
    let mut crowd = Crowd::default();
    let mut shards = std::mem::take(&mut ledger.shards);
    let waiting = shards.assign(&wanted, partitions, |shard, node| ledger.may_be_used_by_another(shard, node));
    ledger.shards = shards;
    for key in waiting {
        crowd.tell(Weight::Waits, key, "not made: all shards are held by nodes that are leaving");
    }
    crowd.into_step(&mut step);
    joined::assign(partitions, ledger);
    let holders = wanted.len() + ledger.joined.values().filter(|joined| joined.shard.is_some()).count();
    tell_of_division(federation, before, holders, ledger, &mut step);

    let shards = ledger.shards.by_node();
    let shard_of = |key: &NodeKey| shards.get(key).copied();
    let numbered = keys.iter().map(|(pool, key)| Numbered { pool: *pool, key: key.clone(), shard: shard_of(key) });
    (numbered.collect(), step)
}

fn wanted_keys(
    federation: &Federation,
    counts: &BTreeMap<Name, u32>,
    known: &BTreeMap<ResourceId, Sighting>,
    ledger: &Ledger,
) -> Vec<(usize, NodeKey)> {
    let of_pool = |(number, pool): (usize, &Pool)| {
        let count = counts.get(&pool.name).copied().unwrap_or(pool.count);
        let indices = match scaling::is_scaled(pool) {
            true => those_who_stay(pool, count, known, ledger),
            false => (0..count).collect(),
        };
        let name = pool.name.clone();
        indices.into_iter().map(move |index| (number, NodeKey { pool: name.clone(), index }))
    };
    federation.pools.iter().enumerate().flat_map(of_pool).collect()
}

/// Of a pool that changes its size by itself: who is at work stays, then who serves; the last ones go first among equals.
/// Who was told to go goes on. Those who come have the lowest numbers that are free.
fn those_who_stay(pool: &Pool, count: u32, known: &BTreeMap<ResourceId, Sighting>, ledger: &Ledger) -> BTreeSet<u32> {
    let mut there: BTreeMap<u32, u8> = BTreeMap::new();
    for (id, sighting) in known {
        if let Some(key) = id.node_key().filter(|key| key.pool == pool.name) {
            let rank = rank(id, sighting, ledger);
            there.entry(key.index).and_modify(|before| *before = rank.min(*before)).or_insert(rank);
        }
    }
    let mut ranked: Vec<(u8, u32)> = there.iter().map(|(index, rank)| (*rank, *index)).collect();
    ranked.sort_unstable();
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    let mut stay: BTreeSet<u32> = ranked.into_iter().take(most).map(|(_, index)| index).collect();
    let free = (0..).filter(|index| !there.contains_key(index)).take(most - stay.len());
    let come: Vec<u32> = free.collect();
    stay.extend(come);
    stay
}

/// The lower, the longer it stays.
fn rank(id: &ResourceId, sighting: &Sighting, ledger: &Ledger) -> u8 {
    match sighting.facts() {
        Some(facts) if facts.draining || facts.phase == Phase::Stopping => 3,
        Some(facts) if facts.busy == Some(true) => 0,
        _ if ledger.drains.contains_key(id) => 3,
        None => 0,
        Some(facts) if facts.serves() => 1,
        Some(_) => 2,
    }
}

/// Where there are fewer parts of the data than nodes, a node without one has nothing to do.
fn cut_to_partitions(keys: &mut Vec<(usize, NodeKey)>, partitions: Option<u32>, step: &mut Step) {
    let Some(partitions) = partitions else { return };
    let most = usize::try_from(partitions).unwrap_or(usize::MAX);
    if keys.len() <= most {
        return;
    }
    let wanted = keys.len();
    let left_out: Vec<String> = keys.drain(most..).map(|(_, key)| key.to_string()).collect();
    let text = format!(
        "{wanted} nodes are wanted, and the data has {partitions} partitions; left out, as there is none for them: {}; \
         raise training.partitions or lower the counts",
        left_out.join(", ")
    );
    step.tell(Weight::Stuck, "federation", text);
}

fn tell_of_division(federation: &Federation, before: u32, wanted: usize, ledger: &Ledger, step: &mut Step) {
    if federation.training.partitions.is_some() {
        return;
    }
    let total = ledger.shards.total(None);
    if before > 0 && total > before {
        let text = format!(
            "the data is divided into {total} shards instead of {before}: every node gets the new number in its turn, and \
             no run selects nodes of both numberings; training.partitions would keep it the same"
        );
        step.tell(Weight::Note, "federation", text);
    }
    if (wanted as u64) < u64::from(total) && before == total {
        let idle = total - u32::try_from(wanted).unwrap_or(u32::MAX);
        step.tell(Weight::Note, "federation", orphaned(idle, total));
    }
}

//! What is known to exist, or may: what was seen, and what was asked for and cannot be seen.

use std::collections::{BTreeMap, BTreeSet};

use trellis_spec::Name;

use super::Step;
use super::drain::serves;
use super::pace::{MOST_RESTARTS, WELL_AFTER_MS};
use super::view::{Node, View};
use crate::Millis;
use crate::ledger::{Applied, Ledger};
use crate::observed::{Observation, Observed, Phase, Sighting};
use crate::report::Weight;
use crate::resource::{Part, ResourceId};

/// Everything of the federation that is there, or may be. Takes into the ledger what was found, and out of it what is
/// certainly gone.
pub(super) fn known(
    federation: &Name,
    observed: &Observed,
    ledger: &mut Ledger,
    now_ms: Millis,
) -> BTreeMap<ResourceId, Sighting> {
    let listed = observed.listed().filter(|id| id.federation == *federation);
    let ids: BTreeSet<ResourceId> = listed.chain(ledger.applied.keys()).cloned().collect();
    let mut known = BTreeMap::new();
    for id in ids {
        match observed.sighting(&id) {
            Sighting::Absent if ledger.is_unsettled(&id, now_ms) => {
                let why = "it is not there, but what was last asked for it may still happen".to_owned();
                known.insert(id, Sighting::Unknown { why });
            }
            Sighting::Absent => {
                ledger.applied.remove(&id);
                ledger.drains.remove(&id);
            }
            sighting => {
                found(&id, &sighting, ledger, now_ms);
                known.insert(id, sighting);
            }
        }
    }
    learn(&known, observed, ledger);
    known
}

fn found(id: &ResourceId, sighting: &Sighting, ledger: &mut Ledger, now_ms: Millis) {
    let is_settled = !ledger.is_unsettled(id, now_ms);
    let fresh = || {
        let (shards, totals) = Default::default();
        Applied { generation: sighting.generation(), since_ms: now_ms, shards, totals }
    };
    let applied = ledger.applied.entry(id.clone()).or_insert_with(fresh);
    if let Some(facts) = sighting.facts() {
        if is_settled {
            applied.shards.clear();
            applied.totals.clear();
        }
        applied.shards.extend(facts.shard);
        applied.totals.extend(facts.shards);
    }
}

/// Keeps facts that are needed also while they cannot be seen.
fn learn(known: &BTreeMap<ResourceId, Sighting>, observed: &Observed, ledger: &mut Ledger) {
    for (id, sighting) in known {
        let Some(facts) = sighting.facts() else { continue };
        match &id.part {
            Part::Coordinator if facts.phase == Phase::Ready => {
                if let Some(fleet) = &facts.addresses.fleet {
                    ledger.coordinator_address = Some(fleet.clone());
                }
            }
            Part::Coordinator => {}
            Part::Node(key) => {
                if let Some(shard) = facts.shard {
                    ledger.shards.adopt(key, shard);
                }
            }
        }
    }
    for (site, observation) in &observed.sites {
        if let Observation::Seen(seen) = observation
            && let Some(gpus) = seen.offer.gpus
        {
            ledger.gpus.insert(site.clone(), gpus);
        }
    }
}

/// Sites that matter and cannot be seen.
pub(super) fn tell<'a>(sites: impl Iterator<Item = &'a Name>, observed: &Observed) -> Step {
    let mut step = Step::default();
    for site in sites {
        let why = match observed.sites.get(site) {
            Some(Observation::Seen(_)) => continue,
            Some(Observation::Unreachable { why }) => why,
            None => "nobody looked at it",
        };
        let text = format!("cannot be reached: {why}; what is there stays as it is until it can");
        step.tell(Weight::Stuck, format!("site {site}"), text);
    }
    step
}

/// Strikes out what came true: nodes that are back, failures that are over, pools that are no more.
pub(super) fn tidy(view: &View<'_>, ledger: &mut Ledger) {
    let is_settled = |id: &ResourceId| !ledger.is_unsettled(id, view.now_ms);
    let well: Vec<&Node> = view.nodes.iter().filter(|node| node.is_well() && is_settled(&node.id)).collect();
    let coordinator =
        Some(&view.coordinator).filter(|coordinator| coordinator.is_well() && is_settled(&coordinator.id));

    let back: BTreeSet<u32> = well.iter().filter_map(|node| node.shard).collect();
    // Told to go, and wanted after all: it may go yet.
    for node in view.nodes.iter().filter(|node| ledger.drains.contains_key(&node.id)) {
        if let Some(shard) = node.shard {
            ledger.taken.entry(shard).or_insert(view.now_ms);
        }
    }
    ledger.taken.retain(|shard, _| !back.contains(shard));
    forgive(view, ledger);
    let nodes = well.iter().map(|node| (&node.id, &node.sighting));
    for (id, sighting) in nodes.chain(coordinator.map(|coordinator| (&coordinator.id, &coordinator.sighting))) {
        ledger.drains.remove(id);
        let since_ms = sighting.facts().map_or(view.now_ms, |facts| facts.since_ms);
        if view.now_ms.saturating_sub(since_ms) >= WELL_AFTER_MS {
            ledger.tries.remove(id);
        }
    }
    forget_the_unwanted(view, ledger);
}

/// Who was taken for good, and has nobody in its place, is missed as long as fewer serve than are wanted. Those who do not
/// come for reasons of their own are not counted: nobody would ever be taken again.
fn forgive(view: &View<'_>, ledger: &mut Ledger) {
    let wanted = view.nodes.iter().map(|node| (&node.id, &node.sighting));
    let serving = wanted.chain(view.leaving()).filter(|(id, sighting)| serves(ledger, id, sighting)).count();
    let stuck = view.nodes.iter().filter(|node| is_stuck(view, node, ledger)).count();
    let missed = view.nodes.len().saturating_sub(serving + stuck);
    let gone: Vec<u32> = ledger.taken.keys().copied().filter(|shard| ledger.shards.holder(*shard).is_none()).collect();
    for shard in gone.iter().skip(missed) {
        ledger.taken.remove(shard);
    }
}

fn is_stuck(view: &View<'_>, node: &Node, ledger: &Ledger) -> bool {
    let fails = ledger.tries.get(&node.id).is_some_and(|tries| tries.count > MOST_RESTARTS);
    let is_broken = match &node.sighting {
        Sighting::Unknown { .. } => true,
        Sighting::Absent => node.hindrance.is_some() || fails || view.is_full(&node.id.site),
        Sighting::Present { facts, .. } => matches!(facts.phase, Phase::Failed { .. }) || fails,
    };
    is_broken && !node.sighting.serves()
}

fn forget_the_unwanted(view: &View<'_>, ledger: &mut Ledger) {
    let pools: BTreeSet<&Name> = view.federation.pools.iter().map(|pool| &pool.name).collect();
    ledger.pools.retain(|name, _| pools.contains(name));
    let wanted: BTreeSet<&ResourceId> = view.nodes.iter().map(|node| &node.id).chain([&view.coordinator.id]).collect();
    let applied = &ledger.applied;
    ledger.tries.retain(|id, _| applied.contains_key(id) || wanted.contains(id));
}

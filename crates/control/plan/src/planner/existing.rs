//! Resources that exist or may exist: observed ones, and ones of the ledger that cannot be observed.

use std::collections::{BTreeMap, BTreeSet};

use trellis_spec::Name;

use super::Step;
use super::drain::serves;
use super::retry::{MAX_RESTARTS, STABLE_AFTER_MS};
use super::view::{Node, View};
use crate::Millis;
use crate::ledger::{Applied, Ledger};
use crate::observed::{Observation, Observed, Phase, Presence};
use crate::report::Weight;
use crate::resource::{Part, ResourceId};

/// All resources of the federation that exist or may exist. Adds observed resources to the ledger, and removes absent ones.
pub(super) fn find(
    federation: &Name,
    observed: &Observed,
    ledger: &mut Ledger,
    now_ms: Millis,
) -> BTreeMap<ResourceId, Presence> {
    let listed = observed.listed().filter(|id| id.federation == *federation);
    let ids: BTreeSet<ResourceId> = listed.chain(ledger.applied.keys()).cloned().collect();
    let mut known = BTreeMap::new();
    for id in ids {
        match observed.presence(&id) {
            Presence::Absent if ledger.is_unsettled(&id, now_ms) => {
                let why = "it is absent, but the last action for it may still take effect".to_owned();
                known.insert(id, Presence::Unknown { why });
            }
            Presence::Absent => {
                ledger.applied.remove(&id);
                ledger.drains.remove(&id);
            }
            presence => {
                record(&id, &presence, ledger, now_ms);
                known.insert(id, presence);
            }
        }
    }
    record_facts(&known, observed, ledger);
    known
}

fn record(id: &ResourceId, presence: &Presence, ledger: &mut Ledger, now_ms: Millis) {
    let is_settled = !ledger.is_unsettled(id, now_ms);
    let fresh = || {
        let (shards, totals) = Default::default();
        Applied { generation: presence.generation(), since_ms: now_ms, shards, totals }
    };
    let applied = ledger.applied.entry(id.clone()).or_insert_with(fresh);
    if let Some(facts) = presence.facts() {
        if is_settled {
            applied.shards.clear();
            applied.totals.clear();
        }
        applied.shards.extend(facts.shard);
        applied.totals.extend(facts.shards);
    }
}

/// Stores the facts that plans need while a resource cannot be observed.
fn record_facts(known: &BTreeMap<ResourceId, Presence>, observed: &Observed, ledger: &mut Ledger) {
    for (id, presence) in known {
        let Some(facts) = presence.facts() else { continue };
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
        if let Observation::Reached(reached) = observation
            && let Some(gpus) = reached.capacity.gpus
        {
            ledger.gpus.insert(site.clone(), gpus);
        }
    }
}

/// Reports sites of the federation that cannot be reached.
pub(super) fn report_unreachable<'a>(sites: impl Iterator<Item = &'a Name>, observed: &Observed) -> Step {
    let mut step = Step::default();
    for site in sites {
        let why = match observed.sites.get(site) {
            Some(Observation::Reached(_)) => continue,
            Some(Observation::Unreachable { why }) => why,
            None => "it was not observed",
        };
        let text = format!("unreachable: {why}; nothing is changed there until it is reachable again");
        step.report(Weight::Stuck, format!("site {site}"), text);
    }
    step
}

/// Removes completed entries from the ledger: nodes that serve again, failures that are over, pools that were removed.
pub(super) fn update_ledger(view: &View<'_>, ledger: &mut Ledger) {
    let is_settled = |id: &ResourceId| !ledger.is_unsettled(id, view.now_ms);
    let healthy: Vec<&Node> = view.nodes.iter().filter(|node| node.is_healthy() && is_settled(&node.id)).collect();
    let coordinator =
        Some(&view.coordinator).filter(|coordinator| coordinator.is_healthy() && is_settled(&coordinator.id));

    let back: BTreeSet<u32> = healthy.iter().filter_map(|node| node.shard).collect();
    // Nodes that were drained for removal and are desired again may still stop.
    for node in view.nodes.iter().filter(|node| ledger.drains.contains_key(&node.id)) {
        if let Some(shard) = node.shard {
            ledger.taken.entry(shard).or_insert(view.now_ms);
        }
    }
    ledger.taken.retain(|shard, _| !back.contains(shard));
    release_surplus(view, ledger);
    let nodes = healthy.iter().map(|node| (&node.id, &node.presence));
    for (id, presence) in nodes.chain(coordinator.map(|coordinator| (&coordinator.id, &coordinator.presence))) {
        ledger.drains.remove(id);
        let since_ms = presence.facts().map_or(view.now_ms, |facts| facts.since_ms);
        if view.now_ms.saturating_sub(since_ms) >= STABLE_AFTER_MS {
            ledger.tries.remove(id);
        }
    }
    forget_removed(view, ledger);
}

/// Removed nodes without a replacement count as unavailable as long as fewer nodes serve than desired. Nodes that are stuck for
/// other reasons are not counted: otherwise no node could be upgraded while one is stuck.
fn release_surplus(view: &View<'_>, ledger: &mut Ledger) {
    let desired = view.nodes.iter().map(|node| (&node.id, &node.presence));
    let serving = desired.chain(view.undesired()).filter(|(id, presence)| serves(ledger, id, presence)).count();
    let stuck = view.nodes.iter().filter(|node| is_stuck(view, node, ledger)).count();
    let missing = view.nodes.len().saturating_sub(serving + stuck);
    let gone: Vec<u32> = ledger.taken.keys().copied().filter(|shard| ledger.shards.holder(*shard).is_none()).collect();
    for shard in gone.iter().skip(missing) {
        ledger.taken.remove(shard);
    }
}

fn is_stuck(view: &View<'_>, node: &Node, ledger: &Ledger) -> bool {
    let fails = ledger.tries.get(&node.id).is_some_and(|tries| tries.count > MAX_RESTARTS);
    let is_broken = match &node.presence {
        Presence::Unknown { .. } => true,
        Presence::Absent => node.blocker.is_some() || fails || view.is_full(&node.id.site),
        Presence::Present { facts, .. } => matches!(facts.phase, Phase::Failed { .. }) || fails,
    };
    is_broken && !node.presence.serves()
}

fn forget_removed(view: &View<'_>, ledger: &mut Ledger) {
    let pools: BTreeSet<&Name> = view.federation.pools.iter().map(|pool| &pool.name).collect();
    ledger.pools.retain(|name, _| pools.contains(name));
    let desired: BTreeSet<&ResourceId> = view.nodes.iter().map(|node| &node.id).chain([&view.coordinator.id]).collect();
    let applied = &ledger.applied;
    ledger.tries.retain(|id, _| applied.contains_key(id) || desired.contains(id));
}

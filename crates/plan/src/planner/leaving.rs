//! Nodes that are there and not wanted: told to finish, then deleted.

use std::collections::{BTreeMap, BTreeSet};

use super::Step;
use super::crowd::Crowd;
use super::drain::{Finished, all_taken, finished, may_serve, serves, take};
use super::view::View;
use crate::Millis;
use crate::action::Verb;
use crate::inventory::Inventory;
use crate::ledger::Ledger;
use crate::observed::{Facts, Phase, Sighting};
use crate::report::Weight;
use crate::resource::{NodeKey, Part, ResourceId};

/// Parts with nodes that the document does not want, as fast as those that it wants permit.
pub(super) fn part(view: &View<'_>, ledger: &mut Ledger) -> Step {
    let mut step = Step::default();
    let mut crowd = Crowd::default();
    let mut allowance = Allowance::new(view, ledger);
    for (id, sighting) in in_turn(view, ledger) {
        let Some(key) = id.node_key() else { continue };
        let Some(facts) = present(key, sighting, &mut crowd) else { continue };
        let counts = may_serve(ledger, id, facts, view.now_ms);
        if counts && !allowance.may_take(ledger, id, key, facts, view.now_ms) {
            let (weight, why) = all_taken(ledger, view.federation.upgrade.max_unavailable);
            crowd.tell(weight, key, format!("leaves later: {why}"));
            continue;
        }
        let can_drain = view.inventory.of(&id.site).drain;
        end(ledger, id, facts, can_drain, view.now_ms, &mut step, &mut crowd);
    }
    crowd.into_step(&mut step);
    step
}

/// Parts with everything of a federation that is to go: its nodes, then its coordinator.
pub(super) fn part_all(
    known: &BTreeMap<ResourceId, Sighting>,
    inventory: &Inventory,
    ledger: &mut Ledger,
    now_ms: Millis,
) -> Step {
    let mut step = Step::default();
    let mut crowd = Crowd::default();
    let mut nodes_left = 0;
    for (id, sighting) in known {
        let Some(key) = id.node_key() else { continue };
        let Some(facts) = present(key, sighting, &mut crowd) else { continue };
        nodes_left += 1;
        end(ledger, id, facts, inventory.of(&id.site).drain, now_ms, &mut step, &mut crowd);
    }
    crowd.into_step(&mut step);
    for (id, sighting) in known.iter().filter(|(id, _)| id.part == Part::Coordinator) {
        match sighting {
            Sighting::Absent => {}
            Sighting::Unknown { why } => step.tell(Weight::Waits, "coordinator", format!("is not deleted: {why}")),
            Sighting::Present { .. } if nodes_left > 0 => {
                step.tell(
                    Weight::Waits,
                    "coordinator",
                    format!("goes after its nodes, of which {nodes_left} are left"),
                );
            }
            Sighting::Present { facts, .. } if facts.phase == Phase::Stopping => {
                step.tell(Weight::Waits, "coordinator", "stops");
            }
            Sighting::Present { .. } => step.ask(Verb::Delete { id: id.clone() }),
        }
    }
    step
}

/// Those that were begun with first, then the last ones of each pool.
fn in_turn<'a>(view: &'a View<'_>, ledger: &Ledger) -> Vec<(&'a ResourceId, &'a Sighting)> {
    let mut leaving = view.leaving();
    leaving.reverse();
    leaving.sort_by_key(|(id, _)| !ledger.drains.contains_key(*id));
    leaving
}

/// The facts of what is there; a reason for what cannot be seen.
fn present<'a>(key: &NodeKey, sighting: &'a Sighting, crowd: &mut Crowd) -> Option<&'a Facts> {
    if let Sighting::Unknown { why } = sighting {
        crowd.tell(Weight::Waits, key, format!("not wanted, and not deleted: {why}"));
    }
    sighting.facts()
}

/// One step nearer to the end of a node that may be taken.
fn end(
    ledger: &mut Ledger,
    id: &ResourceId,
    facts: &Facts,
    can_drain: bool,
    now_ms: Millis,
    step: &mut Step,
    crowd: &mut Crowd,
) {
    let Some(key) = id.node_key() else { return };
    match facts.phase {
        Phase::Stopping => crowd.tell(Weight::Waits, key, "stops"),
        Phase::Starting | Phase::Failed { .. } => step.ask(Verb::Delete { id: id.clone() }),
        Phase::Ready => match finished(ledger, id, facts, can_drain, now_ms) {
            Finished::Yes => step.ask(Verb::Delete { id: id.clone() }),
            Finished::Tell => step.ask(Verb::Drain { id: id.clone() }),
            Finished::NotYet { why, until_ms } => {
                crowd.tell(Weight::Waits, key, format!("leaves, but {why}"));
                step.wake_at(until_ms);
            }
        },
    }
}

/// How many working nodes may go: as many as there are more than wanted, and then as many as may be missed.
struct Allowance<'a> {
    surplus: usize,
    max_unavailable: u32,
    /// Nodes that are wanted, if at another site: whoever takes their place is missing until it works.
    moving: BTreeSet<&'a NodeKey>,
}

impl<'a> Allowance<'a> {
    fn new(view: &'a View<'_>, ledger: &Ledger) -> Allowance<'a> {
        let wanted = view.nodes.iter().map(|node| (&node.id, &node.sighting));
        let serving = wanted.chain(view.leaving()).filter(|(id, sighting)| serves(ledger, id, sighting)).count();
        Allowance {
            surplus: serving.saturating_sub(view.nodes.len()),
            max_unavailable: view.federation.upgrade.max_unavailable,
            moving: view.nodes.iter().map(|node| &node.key).collect(),
        }
    }

    fn may_take(&mut self, ledger: &mut Ledger, id: &ResourceId, key: &NodeKey, facts: &Facts, now_ms: Millis) -> bool {
        if ledger.drains.contains_key(id) {
            return true;
        }
        if self.surplus > 0 && !self.moving.contains(key) {
            self.surplus -= 1;
            return true;
        }
        match ledger.shards.of(key).or(facts.shard) {
            Some(shard) => take(ledger, shard, self.max_unavailable, now_ms),
            // It was never one of those that hold data.
            None => true,
        }
    }
}

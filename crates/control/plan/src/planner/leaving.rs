//! Nodes that are there and not wanted: told to finish, then deleted.

use std::collections::BTreeMap;

use trellis_spec::Name;

use super::Step;
use super::coordinator::Gate;
use super::crowd::Crowd;
use super::drain::{Finished, all_taken, finished, may_serve, serves, take};
use super::view::{Node, View};
use crate::Millis;
use crate::action::Verb;
use crate::inventory::Inventory;
use crate::ledger::Ledger;
use crate::observed::{Facts, Phase, Sighting};
use crate::report::Weight;
use crate::resource::{NodeKey, Part, ResourceId};

/// Parts with nodes that the document does not want, as fast as those that it wants permit.
pub(super) fn part(view: &View<'_>, gate: &Gate, ledger: &mut Ledger) -> Step {
    let mut step = Step::default();
    let mut crowd = Crowd::default();
    let mut allowance = Allowance::new(view, gate, ledger);
    for (id, sighting) in in_turn(view, ledger) {
        let Some(key) = id.node_key() else { continue };
        let Some(facts) = present(key, sighting, &mut crowd) else { continue };
        if may_serve(ledger, id, facts, view.now_ms)
            && let Err((weight, why)) = allowance.take(ledger, id, key, facts)
        {
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

/// How many working nodes may go: as many as there are more than wanted, and then as many as may be missed until others
/// are in their place.
struct Allowance<'a> {
    view: &'a View<'a>,
    gate: &'a Gate,
    surplus: usize,
    /// Nodes that are wanted at another site.
    moving: BTreeMap<&'a NodeKey, &'a Node>,
    /// How many more each site can take of those.
    rooms: BTreeMap<&'a Name, Option<u32>>,
}

impl<'a> Allowance<'a> {
    fn new(view: &'a View<'a>, gate: &'a Gate, ledger: &Ledger) -> Allowance<'a> {
        let wanted = view.nodes.iter().map(|node| (&node.id, &node.sighting));
        let serving = wanted.chain(view.leaving()).filter(|(id, sighting)| serves(ledger, id, sighting)).count();
        let moving: BTreeMap<&NodeKey, &Node> = view.nodes.iter().map(|node| (&node.key, node)).collect();
        let rooms = view.federation.sites.iter().map(|site| (&site.name, free_room(view, &site.name, ledger)));
        Allowance { view, gate, surplus: serving.saturating_sub(view.nodes.len()), rooms: rooms.collect(), moving }
    }

    fn take(
        &mut self,
        ledger: &mut Ledger,
        id: &ResourceId,
        key: &NodeKey,
        facts: &Facts,
    ) -> Result<(), (Weight, String)> {
        let moves_to = self.moving.get(key).copied();
        if ledger.drains.contains_key(id) {
            return Ok(());
        }
        if self.surplus > 0 && moves_to.is_none() {
            self.surplus -= 1;
            return Ok(());
        }
        // It was never one of those that hold data.
        let Some(shard) = ledger.shards.of(key).or(facts.shard) else { return Ok(()) };
        if let Some(why) = self.gate.against_renewal() {
            return Err((Weight::Waits, why.to_owned()));
        }
        moves_to.map_or(Ok(()), |node| self.can_arrive(node))?;
        let max_unavailable = self.view.federation.upgrade.max_unavailable;
        if !take(ledger, shard, max_unavailable, self.view.now_ms) {
            return Err(all_taken(ledger, max_unavailable));
        }
        if let Some(room) = moves_to.and_then(|node| self.rooms.get_mut(&node.id.site)) {
            *room = room.map(|room| room.saturating_sub(1));
        }
        Ok(())
    }

    /// Nobody sets out for a place that may not take them.
    fn can_arrive(&self, node: &Node) -> Result<(), (Weight, String)> {
        let site = &node.id.site;
        match (&node.sighting, &node.hindrance) {
            (Sighting::Unknown { why }, _) => Err((Weight::Waits, why.clone())),
            (_, Some(why)) => Err((Weight::Stuck, why.clone())),
            _ if self.rooms.get(site) == Some(&Some(0)) => {
                Err((Weight::Stuck, format!("site {site} has no room for it")))
            }
            _ => Ok(()),
        }
    }
}

/// Room at a site that is not spoken for by nodes on their way there. `None`: no limit is known.
fn free_room(view: &View<'_>, site: &Name, ledger: &Ledger) -> Option<u32> {
    let limits = [view.room_by_document(site), view.observed.offer(site).room];
    let room = limits.into_iter().flatten().min()?;
    let sets_out = |node: &&Node| match view.elsewhere(&node.id) {
        Some((old, _)) => ledger.drains.contains_key(old),
        None => true,
    };
    let coming = view.nodes.iter().filter(|node| node.id.site == *site && node.sighting == Sighting::Absent);
    Some(room.saturating_sub(u32::try_from(coming.filter(sets_out).count()).unwrap_or(u32::MAX)))
}

//! Removal of nodes that are not desired: drained, then deleted.

use std::collections::BTreeMap;

use trellis_spec::Name;

use super::Step;
use super::coordinator::Gate;
use super::drain::{Finished, disrupt, disruption_limit, finished, may_serve, serves};
use super::grouped::GroupedReport;
use super::view::{Node, View};
use crate::Millis;
use crate::action::Verb;
use crate::inventory::Inventory;
use crate::ledger::Ledger;
use crate::observed::{Facts, Phase, Presence};
use crate::report::Weight;
use crate::resource::{NodeKey, Part, ResourceId};

/// Removes nodes that the document does not have, as fast as the desired nodes permit.
pub(super) fn remove_undesired(view: &View<'_>, gate: &Gate, ledger: &mut Ledger) -> Step {
    let mut step = Step::default();
    let mut grouped = GroupedReport::default();
    let mut allowance = Allowance::new(view, gate, ledger);
    for (id, presence) in in_removal_order(view, ledger) {
        let Some(key) = id.node_key() else { continue };
        let Some(facts) = present(key, presence, &mut grouped) else { continue };
        if may_serve(ledger, id, facts, view.now_ms)
            && let Err((weight, why)) = allowance.take(ledger, id, key, facts)
        {
            grouped.add(weight, key, format!("deleted later: {why}"));
            continue;
        }
        let can_drain = view.inventory.of(&id.site).drain;
        remove(ledger, id, facts, can_drain, view.now_ms, &mut step, &mut grouped);
    }
    grouped.into_step(&mut step);
    step
}

/// Removes everything of a deleted federation: its nodes, then its coordinator.
pub(super) fn remove_all(
    known: &BTreeMap<ResourceId, Presence>,
    inventory: &Inventory,
    ledger: &mut Ledger,
    now_ms: Millis,
) -> Step {
    let mut step = Step::default();
    let mut grouped = GroupedReport::default();
    let mut nodes_left = 0;
    for (id, presence) in known {
        let Some(key) = id.node_key() else { continue };
        let Some(facts) = present(key, presence, &mut grouped) else { continue };
        nodes_left += 1;
        remove(ledger, id, facts, inventory.of(&id.site).drain, now_ms, &mut step, &mut grouped);
    }
    grouped.into_step(&mut step);
    for (id, presence) in known.iter().filter(|(id, _)| id.part == Part::Coordinator) {
        match presence {
            Presence::Absent => {}
            Presence::Unknown { why } => step.report(Weight::Waits, "coordinator", format!("not deleted: {why}")),
            Presence::Present { .. } if nodes_left > 0 => {
                step.report(Weight::Waits, "coordinator", format!("deleted after its nodes; {nodes_left} are left"));
            }
            Presence::Present { facts, .. } if facts.phase == Phase::Stopping => {
                step.report(Weight::Waits, "coordinator", "stopping");
            }
            Presence::Present { .. } => step.act(Verb::Delete { id: id.clone() }),
        }
    }
    step
}

/// First the nodes whose removal has started, then by descending index.
fn in_removal_order<'a>(view: &'a View<'_>, ledger: &Ledger) -> Vec<(&'a ResourceId, &'a Presence)> {
    let mut leaving = view.undesired();
    leaving.reverse();
    leaving.sort_by_key(|(id, _)| !ledger.drains.contains_key(*id));
    leaving
}

/// The facts of a present node. Reports a node that cannot be observed.
fn present<'a>(key: &NodeKey, presence: &'a Presence, grouped: &mut GroupedReport) -> Option<&'a Facts> {
    if let Presence::Unknown { why } = presence {
        grouped.add(Weight::Waits, key, format!("not desired, but not deleted: {why}"));
    }
    presence.facts()
}

/// Next step of the removal of a node that may be stopped.
fn remove(
    ledger: &mut Ledger,
    id: &ResourceId,
    facts: &Facts,
    can_drain: bool,
    now_ms: Millis,
    step: &mut Step,
    grouped: &mut GroupedReport,
) {
    let Some(key) = id.node_key() else { return };
    match facts.phase {
        Phase::Stopping => grouped.add(Weight::Waits, key, "stopping"),
        Phase::Starting | Phase::Failed { .. } => step.act(Verb::Delete { id: id.clone() }),
        Phase::Ready => match finished(ledger, id, facts, can_drain, now_ms) {
            Finished::Yes => step.act(Verb::Delete { id: id.clone() }),
            Finished::Drain => step.act(Verb::Drain { id: id.clone() }),
            Finished::NotYet { why, until_ms } => {
                grouped.add(Weight::Waits, key, format!("to be deleted, but {why}"));
                step.wake_at(until_ms);
            }
        },
    }
}

/// How many serving nodes may be removed: the surplus over the desired number, then as many as `maxUnavailable` permits until their
/// replacements serve.
struct Allowance<'a> {
    view: &'a View<'a>,
    gate: &'a Gate,
    surplus: usize,
    /// Nodes that are desired at another site.
    moving: BTreeMap<&'a NodeKey, &'a Node>,
    /// How many of those each site can still hold.
    free_nodes: BTreeMap<&'a Name, Option<u32>>,
}

impl<'a> Allowance<'a> {
    fn new(view: &'a View<'a>, gate: &'a Gate, ledger: &Ledger) -> Allowance<'a> {
        let desired = view.nodes.iter().map(|node| (&node.id, &node.presence));
        let serving = desired.chain(view.undesired()).filter(|(id, presence)| serves(ledger, id, presence)).count();
        let moving: BTreeMap<&NodeKey, &Node> = view.nodes.iter().map(|node| (&node.key, node)).collect();
        let free_nodes = view.federation.sites.iter().map(|site| (&site.name, free_nodes(view, &site.name, ledger)));
        Allowance {
            view,
            gate,
            surplus: serving.saturating_sub(view.nodes.len()),
            free_nodes: free_nodes.collect(),
            moving,
        }
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
        // Without a shard it never held data.
        let Some(shard) = ledger.shards.of(key).or(facts.shard) else { return Ok(()) };
        if let Some(why) = self.gate.upgrade_blocker() {
            return Err((Weight::Waits, why.to_owned()));
        }
        moves_to.map_or(Ok(()), |node| self.can_create(node))?;
        let max_unavailable = self.view.federation.upgrade.max_unavailable;
        if !disrupt(ledger, shard, max_unavailable, self.view.now_ms) {
            return Err(disruption_limit(ledger, max_unavailable));
        }
        if let Some(free) = moves_to.and_then(|node| self.free_nodes.get_mut(&node.id.site)) {
            *free = free.map(|free| free.saturating_sub(1));
        }
        Ok(())
    }

    /// A node is not stopped at its old site if it cannot be created at the new one.
    fn can_create(&self, node: &Node) -> Result<(), (Weight, String)> {
        let site = &node.id.site;
        match (&node.presence, &node.blocker) {
            (Presence::Unknown { why }, _) => Err((Weight::Waits, why.clone())),
            (_, Some(why)) => Err((Weight::Stuck, why.clone())),
            _ if self.free_nodes.get(site) == Some(&Some(0)) => {
                Err((Weight::Stuck, format!("site {site} has no capacity for it")))
            }
            _ => Ok(()),
        }
    }
}

/// Capacity of a site that is not reserved for nodes that move there. `None`: no known limit.
fn free_nodes(view: &View<'_>, site: &Name, ledger: &Ledger) -> Option<u32> {
    let limits = [view.free_nodes_by_document(site), view.observed.capacity(site).free_nodes];
    let free = limits.into_iter().flatten().min()?;
    let is_moving = |node: &&Node| match view.elsewhere(&node.id) {
        Some((old, _)) => ledger.drains.contains_key(old),
        None => true,
    };
    let coming = view.nodes.iter().filter(|node| node.id.site == *site && node.presence == Presence::Absent);
    Some(free.saturating_sub(u32::try_from(coming.filter(is_moving).count()).unwrap_or(u32::MAX)))
}

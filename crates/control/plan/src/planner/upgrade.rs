//! Nodes that are there, but not as they are wanted: replaced, a few at a time, each when it has finished its work.

use super::Step;
use super::coordinator::Gate;
use super::crowd::Crowd;
use super::drain::{Finished, all_taken, finished, may_serve, take};
use super::view::{Node, View};
use crate::action::Verb;
use crate::ledger::Ledger;
use crate::observed::{Facts, Phase, Sighting};
use crate::report::Weight;

pub(super) fn renew(view: &View<'_>, gate: &Gate, ledger: &mut Ledger) -> Step {
    let mut step = Step::default();
    let mut crowd = Crowd::default();
    for node in in_turn(view, ledger) {
        let Sighting::Present { facts, .. } = &node.sighting else { continue };
        if let Some(why) = gate.against_renewal() {
            crowd.tell(Weight::Waits, &node.key, format!("renewed later: {why}"));
            continue;
        }
        if let Some(why) = &node.hindrance {
            crowd.tell(Weight::Stuck, &node.key, format!("left as it is: {why}"));
            continue;
        }
        renew_one(view, node, facts, ledger, &mut step, &mut crowd);
    }
    crowd.into_step(&mut step);
    step
}

/// Those that are away already first: they cost nobody anything.
fn in_turn<'a>(view: &'a View<'_>, ledger: &Ledger) -> Vec<&'a Node> {
    let mut nodes: Vec<&Node> = view.nodes.iter().filter(|node| !node.is_updated()).collect();
    nodes.sort_by_key(|node| !ledger.drains.contains_key(&node.id));
    nodes
}

fn renew_one(view: &View<'_>, node: &Node, facts: &Facts, ledger: &mut Ledger, step: &mut Step, crowd: &mut Crowd) {
    let Some((shard, desired)) = node.shard.zip(node.desired.as_ref()) else { return };
    let max_unavailable = view.federation.upgrade.max_unavailable;
    if facts.phase == Phase::Stopping {
        return crowd.tell(Weight::Waits, &node.key, "stops");
    }
    let counts = may_serve(ledger, &node.id, facts, view.now_ms);
    if counts && !take(ledger, shard, max_unavailable, view.now_ms) {
        let (weight, why) = all_taken(ledger, max_unavailable);
        return crowd.tell(weight, &node.key, format!("renewed later: {why}"));
    }
    match facts.phase {
        Phase::Starting | Phase::Failed { .. } | Phase::Stopping => step.ask(Verb::Replace(desired.clone())),
        Phase::Ready => {
            let can_drain = view.inventory.of(&node.id.site).drain;
            match finished(ledger, &node.id, facts, can_drain, view.now_ms) {
                Finished::Yes => step.ask(Verb::Replace(desired.clone())),
                Finished::Tell => step.ask(Verb::Drain { id: node.id.clone() }),
                Finished::NotYet { why, until_ms } => {
                    crowd.tell(Weight::Waits, &node.key, format!("to be renewed, but {why}"));
                    step.wake_at(until_ms);
                }
            }
        }
    }
}

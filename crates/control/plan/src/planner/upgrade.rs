//! Upgrade of outdated nodes: replaced within `maxUnavailable`, each after it has finished its work.

use super::Step;
use super::coordinator::Gate;
use super::drain::{Finished, disrupt, disruption_limit, finished, may_serve};
use super::grouped::GroupedReport;
use super::view::{Node, View};
use crate::action::Verb;
use crate::ledger::Ledger;
use crate::observed::{Facts, Phase, Presence};
use crate::report::Weight;

pub(super) fn upgrade(view: &View<'_>, gate: &Gate, ledger: &mut Ledger) -> Step {
    let mut step = Step::default();
    let mut grouped = GroupedReport::default();
    for node in in_upgrade_order(view, ledger) {
        let Presence::Present { facts, .. } = &node.presence else { continue };
        if let Some(why) = gate.upgrade_blocker() {
            grouped.add(Weight::Waits, &node.key, format!("upgraded later: {why}"));
            continue;
        }
        if let Some(why) = &node.blocker {
            grouped.add(Weight::Stuck, &node.key, format!("not upgraded: {why}"));
            continue;
        }
        upgrade_node(view, node, facts, ledger, &mut step, &mut grouped);
    }
    grouped.into_step(&mut step);
    step
}

/// Nodes that are unavailable already come first.
fn in_upgrade_order<'a>(view: &'a View<'_>, ledger: &Ledger) -> Vec<&'a Node> {
    let mut nodes: Vec<&Node> = view.nodes.iter().filter(|node| !node.is_updated()).collect();
    nodes.sort_by_key(|node| !ledger.drains.contains_key(&node.id));
    nodes
}

fn upgrade_node(
    view: &View<'_>,
    node: &Node,
    facts: &Facts,
    ledger: &mut Ledger,
    step: &mut Step,
    grouped: &mut GroupedReport,
) {
    let Some((shard, desired)) = node.shard.zip(node.desired.as_ref()) else { return };
    let max_unavailable = view.federation.upgrade.max_unavailable;
    if facts.phase == Phase::Stopping {
        return grouped.add(Weight::Waits, &node.key, "stopping");
    }
    let counts = may_serve(ledger, &node.id, facts, view.now_ms);
    if counts && !disrupt(ledger, shard, max_unavailable, view.now_ms) {
        let (weight, why) = disruption_limit(ledger, max_unavailable);
        return grouped.add(weight, &node.key, format!("upgraded later: {why}"));
    }
    match facts.phase {
        Phase::Starting | Phase::Failed { .. } | Phase::Stopping => step.act(Verb::Replace(desired.clone())),
        Phase::Ready => {
            let can_drain = view.inventory.of(&node.id.site).drain;
            match finished(ledger, &node.id, facts, can_drain, view.now_ms) {
                Finished::Yes => step.act(Verb::Replace(desired.clone())),
                Finished::Drain => step.act(Verb::Drain { id: node.id.clone() }),
                Finished::NotYet { why, until_ms } => {
                    grouped.add(Weight::Waits, &node.key, format!("to be upgraded, but {why}"));
                    step.wake_at(until_ms);
                }
            }
        }
    }
}

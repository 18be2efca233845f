//! Repair of up-to-date nodes that do not serve: restarted, and deleted and created again if restarts do not help.

use super::Step;
use super::coordinator::Gate;
use super::drain::{Finished, finished};
use super::grouped::GroupedReport;
use super::retry::{MAX_RESTARTS, START_TIMEOUT_MS, words};
use super::view::{Node, View};
use crate::action::Verb;
use crate::ledger::Ledger;
use crate::observed::{Facts, Phase, Presence};
use crate::report::Weight;

pub(super) fn repair(view: &View<'_>, gate: &Gate, ledger: &mut Ledger) -> Step {
    let mut repair = Repair { view, gate, ledger, step: Step::default(), grouped: GroupedReport::default() };
    for node in view.nodes.iter().filter(|node| node.is_updated()) {
        if let Presence::Present { facts, .. } = &node.presence {
            repair.node(node, facts);
        }
    }
    repair.grouped.into_step(&mut repair.step);
    repair.step
}

struct Repair<'a> {
    view: &'a View<'a>,
    gate: &'a Gate,
    ledger: &'a mut Ledger,
    step: Step,
    grouped: GroupedReport,
}

impl Repair<'_> {
    fn node(&mut self, node: &Node, facts: &Facts) {
        let lasts_ms = self.view.now_ms.saturating_sub(facts.since_ms);
        match &facts.phase {
            Phase::Ready if self.view.is_drained(&node.key) => self.drain(node, facts),
            Phase::Ready if facts.draining => self.undrain(node, facts),
            Phase::Ready => {}
            Phase::Stopping => self.grouped.add(Weight::Waits, &node.key, "stopping; created again once it is deleted"),
            Phase::Starting if lasts_ms < START_TIMEOUT_MS => {
                let text =
                    facts.waiting_for.as_ref().map_or_else(|| "starting".to_owned(), |why| format!("starting: {why}"));
                self.grouped.add(Weight::Waits, &node.key, text);
                self.step.wake_at(facts.since_ms + START_TIMEOUT_MS);
            }
            Phase::Starting => self.restart(node, facts, &format!("not ready after {}", words(lasts_ms))),
            Phase::Failed { why } => self.restart(node, facts, &format!("failed: {why}")),
        }
    }

    fn restart(&mut self, node: &Node, facts: &Facts, why: &str) {
        if let Some(closed) = self.gate.creation_blocker() {
            let text = format!("{why}; restarted later: {closed}");
            return self.grouped.add(Weight::Waits, &node.key, text);
        }
        let tries = self.ledger.tries.get(&node.id).map_or(0, |tries| tries.count);
        // A start that may still take effect must not race with the deletion.
        let settled = !self.ledger.is_unsettled(&node.id, self.view.now_ms);
        if settled && tries % (MAX_RESTARTS + 1) == MAX_RESTARTS {
            let text = format!("{why}; restarts did not help, it is deleted and created again");
            self.grouped.add(Weight::Waits, &node.key, text);
            self.step.act(Verb::Delete { id: node.id.clone() });
        } else {
            self.grouped.add(Weight::Waits, &node.key, format!("{why}; restarting"));
            self.step.act(restart_verb(node, facts));
        }
    }

    /// The document drains this node.
    fn drain(&mut self, node: &Node, facts: &Facts) {
        let (weight, text) = match (facts.draining, facts.busy) {
            (true, Some(true)) => (Weight::Note, "drained; finishing its work"),
            (true, _) => (Weight::Note, "drained"),
            (false, _) if self.view.inventory.of(&node.id.site).drain => {
                return self.step.act(Verb::Drain { id: node.id.clone() });
            }
            (false, _) => (Weight::Stuck, "cannot be drained at its site; remove it from `drained` of its pool"),
        };
        self.grouped.add(weight, &node.key, text);
    }

    /// The node was drained for removal and is desired again. Only a restart ends the drain.
    fn undrain(&mut self, node: &Node, facts: &Facts) {
        let now_ms = self.view.now_ms;
        if let Some(shard) = node.shard {
            self.ledger.taken.entry(shard).or_insert(now_ms);
        }
        match finished(self.ledger, &node.id, facts, false, now_ms) {
            Finished::Yes | Finished::Drain => self.step.act(restart_verb(node, facts)),
            Finished::NotYet { why, until_ms } => {
                let text = format!("was drained and is desired again, but {why}");
                self.grouped.add(Weight::Waits, &node.key, text);
                self.step.wake_at(until_ms);
            }
        }
    }
}

fn restart_verb(node: &Node, facts: &Facts) -> Verb {
    let generation = node.presence.generation().expect("only up-to-date nodes are restarted");
    Verb::Restart { id: node.id.clone(), generation, instance: facts.instance }
}

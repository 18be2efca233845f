//! Nodes that are as they are wanted, and do not work: started again, and made anew when that does not help.

use super::Step;
use super::coordinator::Gate;
use super::crowd::Crowd;
use super::drain::{Finished, finished};
use super::pace::{MOST_RESTARTS, START_PATIENCE_MS, words};
use super::view::{Node, View};
use crate::action::Verb;
use crate::ledger::Ledger;
use crate::observed::{Facts, Phase, Sighting};
use crate::report::Weight;

pub(super) fn mend(view: &View<'_>, gate: &Gate, ledger: &mut Ledger) -> Step {
    let mut repair = Repair { view, gate, ledger, step: Step::default(), crowd: Crowd::default() };
    for node in view.nodes.iter().filter(|node| node.is_updated()) {
        if let Sighting::Present { facts, .. } = &node.sighting {
            repair.mend(node, facts);
        }
    }
    repair.crowd.into_step(&mut repair.step);
    repair.step
}

struct Repair<'a> {
    view: &'a View<'a>,
    gate: &'a Gate,
    ledger: &'a mut Ledger,
    step: Step,
    crowd: Crowd,
}

impl Repair<'_> {
    fn mend(&mut self, node: &Node, facts: &Facts) {
        let lasts_ms = self.view.now_ms.saturating_sub(facts.since_ms);
        match &facts.phase {
            Phase::Ready if self.view.is_drained(&node.key) => self.drain(node, facts),
            Phase::Ready if facts.draining => self.bring_back(node, facts),
            Phase::Ready => {}
            Phase::Stopping => self.crowd.tell(Weight::Waits, &node.key, "stops; it is made again when it is gone"),
            Phase::Starting if lasts_ms < START_PATIENCE_MS => {
                let text = facts.hindrance.as_ref().map_or_else(|| "starts".to_owned(), |why| format!("starts: {why}"));
                self.crowd.tell(Weight::Waits, &node.key, text);
                self.step.wake_at(facts.since_ms + START_PATIENCE_MS);
            }
            Phase::Starting => self.start_again(node, facts, &format!("is not ready after {}", words(lasts_ms))),
            Phase::Failed { why } => self.start_again(node, facts, &format!("failed: {why}")),
        }
    }

    fn start_again(&mut self, node: &Node, facts: &Facts, why: &str) {
        if let Some(closed) = self.gate.against_repairs() {
            let text = format!("{why}; it is started again later: {closed}");
            return self.crowd.tell(Weight::Waits, &node.key, text);
        }
        let tries = self.ledger.tries.get(&node.id).map_or(0, |tries| tries.count);
        // A start that may still happen must not meet the end of what it started.
        let settled = !self.ledger.is_unsettled(&node.id, self.view.now_ms);
        if settled && tries % (MOST_RESTARTS + 1) == MOST_RESTARTS {
            let text = format!("{why}; starting it again did not help, so it is made anew");
            self.crowd.tell(Weight::Waits, &node.key, text);
            self.step.ask(Verb::Delete { id: node.id.clone() });
        } else {
            self.crowd.tell(Weight::Waits, &node.key, format!("{why}; it is started again"));
            self.step.ask(restart(node, facts));
        }
    }

    /// The document keeps it from new work.
    fn drain(&mut self, node: &Node, facts: &Facts) {
        let (weight, text) = match (facts.draining, facts.busy) {
            (true, Some(true)) => (Weight::Note, "is drained; it finishes its work"),
            (true, _) => (Weight::Note, "is drained"),
            (false, _) if self.view.inventory.of(&node.id.site).drain => {
                return self.step.ask(Verb::Drain { id: node.id.clone() });
            }
            (false, _) => (Weight::Stuck, "cannot be drained at its site; remove it from `drained` of its pool"),
        };
        self.crowd.tell(weight, &node.key, text);
    }

    /// It was told to finish, and is wanted after all: only a new start takes that back.
    fn bring_back(&mut self, node: &Node, facts: &Facts) {
        let now_ms = self.view.now_ms;
        if let Some(shard) = node.shard {
            self.ledger.taken.entry(shard).or_insert(now_ms);
        }
        match finished(self.ledger, &node.id, facts, false, now_ms) {
            Finished::Yes | Finished::Tell => self.step.ask(restart(node, facts)),
            Finished::NotYet { why, until_ms } => {
                let text = format!("was told to finish and is wanted after all, but {why}");
                self.crowd.tell(Weight::Waits, &node.key, text);
                self.step.wake_at(until_ms);
            }
        }
    }
}

fn restart(node: &Node, facts: &Facts) -> Verb {
    let generation = node.sighting.generation().expect("only what is of the wanted generation is started again");
    Verb::Restart { id: node.id.clone(), generation, instance: facts.instance }
}

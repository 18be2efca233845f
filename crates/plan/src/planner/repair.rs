//! Nodes that are as they are wanted, and do not work: started again, and made anew when that does not help.

use super::Step;
use super::coordinator::Gate;
use super::crowd::Crowd;
use super::drain::{Finished, finished};
use super::pace::{MOST_RESTARTS, START_PATIENCE_MS, words};
use super::view::{Node, View};
use crate::Millis;
use crate::action::Verb;
use crate::ledger::Ledger;
use crate::observed::{Facts, Phase, Sighting};
use crate::report::Weight;

pub(super) fn mend(view: &View<'_>, gate: &Gate, ledger: &mut Ledger) -> Step {
    let mut step = Step::default();
    let mut crowd = Crowd::default();
    for node in view.nodes.iter().filter(|node| node.is_updated()) {
        let Sighting::Present { facts, .. } = &node.sighting else { continue };
        let lasts_ms = view.now_ms.saturating_sub(facts.since_ms);
        match &facts.phase {
            Phase::Ready if facts.draining => bring_back(view, node, facts, ledger, &mut step, &mut crowd),
            Phase::Ready => {}
            Phase::Stopping => crowd.tell(Weight::Waits, &node.key, "stops; it is made again when it is gone"),
            Phase::Starting if lasts_ms < START_PATIENCE_MS => {
                crowd.tell(Weight::Waits, &node.key, "starts");
                step.wake_at(facts.since_ms + START_PATIENCE_MS);
            }
            Phase::Starting => {
                let why = format!("is not ready after {}", words(lasts_ms));
                start_again(node, facts, &why, gate, ledger, view.now_ms, &mut step, &mut crowd);
            }
            Phase::Failed { why } => {
                let why = format!("failed: {why}");
                start_again(node, facts, &why, gate, ledger, view.now_ms, &mut step, &mut crowd);
            }
        }
    }
    crowd.into_step(&mut step);
    step
}

fn start_again(
    node: &Node,
    facts: &Facts,
    why: &str,
    gate: &Gate,
    ledger: &Ledger,
    now_ms: Millis,
    step: &mut Step,
    crowd: &mut Crowd,
) {
    if let Some(closed) = gate.against_repairs() {
        crowd.tell(Weight::Waits, &node.key, format!("{why}; it is started again later: {closed}"));
        return;
    }
    let tries = ledger.tries.get(&node.id).map_or(0, |tries| tries.count);
    // A start that may still happen must not meet the end of what it started.
    let settled = !ledger.is_unsettled(&node.id, now_ms);
    if settled && tries % (MOST_RESTARTS + 1) == MOST_RESTARTS {
        let text = format!("{why}; starting it again did not help, so it is made anew");
        crowd.tell(Weight::Waits, &node.key, text);
        step.ask(Verb::Delete { id: node.id.clone() });
    } else {
        crowd.tell(Weight::Waits, &node.key, format!("{why}; it is started again"));
        step.ask(restart(node, facts));
    }
}

/// It was told to finish, and is wanted after all: only a new start takes that back.
fn bring_back(view: &View<'_>, node: &Node, facts: &Facts, ledger: &mut Ledger, step: &mut Step, crowd: &mut Crowd) {
    if let Some(shard) = node.shard {
        ledger.taken.entry(shard).or_insert(view.now_ms);
    }
    match finished(ledger, &node.id, facts, false, view.now_ms) {
        Finished::Yes | Finished::Tell => step.ask(restart(node, facts)),
        Finished::NotYet { why, until_ms } => {
            crowd.tell(Weight::Waits, &node.key, format!("was told to finish and is wanted after all, but {why}"));
            step.wake_at(until_ms);
        }
    }
}

fn restart(node: &Node, facts: &Facts) -> Verb {
    let generation = node.sighting.generation().expect("only what is of the wanted generation is started again");
    Verb::Restart { id: node.id.clone(), generation, instance: facts.instance }
}

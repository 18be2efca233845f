//! The coordinator: there before its nodes, renewed before them, and never two of it.

use trellis_spec::{Persistence, Runtime};

use super::Step;
use super::drain::{Finished, finished};
use super::pace::{START_PATIENCE_MS, words};
use super::view::View;
use crate::action::Verb;
use crate::ledger::Ledger;
use crate::observed::{Facts, Phase, Sighting};
use crate::report::Weight;
use crate::resource::ResourceId;

const ABOUT: &str = "coordinator";

/// What may be done to nodes, as far as the coordinator is concerned.
pub(super) enum Gate {
    Open,
    /// It cannot be seen. What is missing may be made as before; nothing is renewed.
    Repairs {
        why: String,
    },
    Closed {
        why: String,
    },
}

impl Gate {
    /// Why nothing may be made or started.
    pub fn against_repairs(&self) -> Option<&str> {
        match self {
            Gate::Open | Gate::Repairs { .. } => None,
            Gate::Closed { why } => Some(why),
        }
    }

    /// Why nothing may be renewed.
    pub fn against_renewal(&self) -> Option<&str> {
        match self {
            Gate::Open => None,
            Gate::Repairs { why } | Gate::Closed { why } => Some(why),
        }
    }
}

pub(super) fn attend(view: &View<'_>, ledger: &mut Ledger) -> (Gate, Step) {
    let mut step = Step::default();
    let gate = match view.elsewhere(&view.coordinator.id) {
        Some((old, sighting)) => move_away(view, ledger, old, sighting, &mut step),
        None => stay(view, ledger, &mut step),
    };
    (gate, step)
}

/// The document has another site for it. Two at once would be two federations: the old one goes first.
fn move_away(view: &View<'_>, ledger: &mut Ledger, old: &ResourceId, sighting: &Sighting, step: &mut Step) -> Gate {
    let to = &view.coordinator.id.site;
    let why = format!("the coordinator moves from site {} to {to}", old.site);
    match sighting {
        Sighting::Unknown { why } => {
            let text = format!("is not made at site {to}: one may still be at site {}: {why}", old.site);
            step.tell(Weight::Waits, ABOUT, text);
        }
        Sighting::Absent => {}
        Sighting::Present { facts, .. } if facts.phase == Phase::Stopping => {
            step.tell(Weight::Waits, ABOUT, format!("moves to site {to}: it stops at site {}", old.site));
        }
        Sighting::Present { facts, .. } => {
            let text =
                format!("moves from site {} to {to}: its runs and its nodes' keys do not move with it", old.site);
            step.tell(Weight::Note, ABOUT, text);
            if may_go(view, ledger, old, facts, false, step) {
                step.ask(Verb::Delete { id: old.clone() });
            }
        }
    }
    Gate::Closed { why }
}

fn stay(view: &View<'_>, ledger: &mut Ledger, step: &mut Step) -> Gate {
    let coordinator = &view.coordinator;
    let closed = |text: &str| Gate::Closed { why: format!("the coordinator {text}") };
    match &coordinator.sighting {
        Sighting::Absent => {
            step.ask(Verb::Create(coordinator.desired.clone()));
            closed("is not there yet")
        }
        Sighting::Unknown { why } => {
            step.tell(Weight::Waits, ABOUT, format!("nothing is done to it: {why}"));
            let applied = ledger.applied.get(&coordinator.id).and_then(|applied| applied.generation);
            let why = "the coordinator cannot be seen".to_owned();
            let as_wanted = applied == Some(coordinator.desired.generation);
            if as_wanted { Gate::Repairs { why } } else { Gate::Closed { why } }
        }
        Sighting::Present { facts, .. } if facts.phase == Phase::Stopping => {
            step.tell(Weight::Waits, ABOUT, "it stops; it is made again when it is gone");
            closed("stops")
        }
        Sighting::Present { facts, .. } if !coordinator.is_updated() => {
            renew(view, ledger, facts, step);
            closed("is renewed before its nodes")
        }
        Sighting::Present { facts, .. } => mend(view, facts, step),
    }
}

fn renew(view: &View<'_>, ledger: &mut Ledger, facts: &Facts, step: &mut Step) {
    let federation = view.federation;
    // Ours goes on where it was, and its apps outlive it.
    let goes_on = federation.runtime == Runtime::Trellis
        && matches!(federation.coordinator.persistence, Persistence::Disk { .. });
    if may_go(view, ledger, &view.coordinator.id, facts, goes_on, step) {
        step.ask(Verb::Replace(view.coordinator.desired.clone()));
    }
}

/// `goes_on`: whoever takes its place takes up its runs too.
fn may_go(
    view: &View<'_>,
    ledger: &mut Ledger,
    id: &ResourceId,
    facts: &Facts,
    goes_on: bool,
    step: &mut Step,
) -> bool {
    if goes_on || facts.phase != Phase::Ready {
        return true;
    }
    match finished(ledger, id, facts, false, view.now_ms) {
        Finished::Yes => true,
        Finished::Tell => false,
        Finished::NotYet { why, until_ms } => {
            step.tell(Weight::Waits, ABOUT, format!("{why}, as its runs would be lost"));
            step.wake_at(until_ms);
            false
        }
    }
}

fn mend(view: &View<'_>, facts: &Facts, step: &mut Step) -> Gate {
    let lasts_ms = view.now_ms.saturating_sub(facts.since_ms);
    let restart = || Verb::Restart {
        id: view.coordinator.id.clone(),
        generation: view.coordinator.desired.generation,
        instance: facts.instance,
    };
    match &facts.phase {
        Phase::Ready => return Gate::Open,
        Phase::Failed { why } => {
            step.tell(Weight::Waits, ABOUT, format!("failed: {why}; it is started again"));
            step.ask(restart());
        }
        Phase::Starting if lasts_ms >= START_PATIENCE_MS => {
            step.tell(Weight::Stuck, ABOUT, format!("is not ready after {}; it is started again", words(lasts_ms)));
            step.ask(restart());
        }
        Phase::Starting | Phase::Stopping => {
            let why = facts.hindrance.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            step.tell(Weight::Waits, ABOUT, format!("starts since {}{why}", words(lasts_ms)));
            step.wake_at(facts.since_ms + START_PATIENCE_MS);
        }
    }
    Gate::Closed { why: "the coordinator is not ready".to_owned() }
}

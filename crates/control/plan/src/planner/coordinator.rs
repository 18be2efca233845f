//! The coordinator: created and upgraded before its nodes, and never more than one.

use trellis_spec::{Persistence, Runtime};

use super::Step;
use super::drain::{Finished, finished};
use super::retry::{START_TIMEOUT_MS, words};
use super::view::View;
use crate::action::Verb;
use crate::ledger::Ledger;
use crate::observed::{Facts, Phase, Presence};
use crate::report::Weight;
use crate::resource::ResourceId;

const ABOUT: &str = "coordinator";

/// Which actions on nodes the state of the coordinator allows.
pub(super) enum Gate {
    Open,
    /// It cannot be observed. Missing nodes are created as before; no node is upgraded.
    NoUpgrades {
        why: String,
    },
    Closed {
        why: String,
    },
}

impl Gate {
    /// Why no node may be created or restarted.
    pub fn creation_blocker(&self) -> Option<&str> {
        match self {
            Gate::Open | Gate::NoUpgrades { .. } => None,
            Gate::Closed { why } => Some(why),
        }
    }

    /// Why no node may be upgraded.
    pub fn upgrade_blocker(&self) -> Option<&str> {
        match self {
            Gate::Open => None,
            Gate::NoUpgrades { why } | Gate::Closed { why } => Some(why),
        }
    }
}

pub(super) fn reconcile(view: &View<'_>, ledger: &mut Ledger) -> (Gate, Step) {
    let mut step = Step::default();
    let gate = match view.elsewhere(&view.coordinator.id) {
        Some((old, presence)) => relocate(view, ledger, old, presence, &mut step),
        None => in_place(view, ledger, &mut step),
    };
    (gate, step)
}

/// Moves the coordinator to another site. Two at once would be two federations, so the old one is deleted first.
fn relocate(view: &View<'_>, ledger: &mut Ledger, old: &ResourceId, presence: &Presence, step: &mut Step) -> Gate {
    let to = &view.coordinator.id.site;
    let why = format!("the coordinator is moving from site {} to {to}", old.site);
    match presence {
        Presence::Unknown { why } => {
            let text = format!("not created at site {to}: it may still exist at site {}: {why}", old.site);
            step.report(Weight::Waits, ABOUT, text);
        }
        Presence::Absent => {}
        Presence::Present { facts, .. } if facts.phase == Phase::Stopping => {
            step.report(Weight::Waits, ABOUT, format!("moving to site {to}: stopping at site {}", old.site));
        }
        Presence::Present { facts, .. } => {
            let text = format!("moving from site {} to {to}: its runs and its nodes' keys are not moved", old.site);
            step.report(Weight::Note, ABOUT, text);
            if may_stop(view, ledger, old, facts, false, step) {
                step.act(Verb::Delete { id: old.clone() });
            }
        }
    }
    Gate::Closed { why }
}

fn in_place(view: &View<'_>, ledger: &mut Ledger, step: &mut Step) -> Gate {
    let coordinator = &view.coordinator;
    let closed = |text: &str| Gate::Closed { why: format!("the coordinator {text}") };
    match &coordinator.presence {
        Presence::Absent => {
            step.act(Verb::Create(coordinator.desired.clone()));
            closed("does not exist yet")
        }
        Presence::Unknown { why } => {
            step.report(Weight::Waits, ABOUT, format!("left unchanged: {why}"));
            let applied = ledger.applied.get(&coordinator.id).and_then(|applied| applied.generation);
            let why = "the coordinator cannot be observed".to_owned();
            let is_updated = applied == Some(coordinator.desired.generation);
            if is_updated { Gate::NoUpgrades { why } } else { Gate::Closed { why } }
        }
        Presence::Present { facts, .. } if facts.phase == Phase::Stopping => {
            step.report(Weight::Waits, ABOUT, "stopping; created again once it is deleted");
            closed("is stopping")
        }
        Presence::Present { facts, .. } if !coordinator.is_updated() => {
            upgrade(view, ledger, facts, step);
            closed("is upgraded before its nodes")
        }
        Presence::Present { facts, .. } => repair(view, facts, step),
    }
}

fn upgrade(view: &View<'_>, ledger: &mut Ledger, facts: &Facts, step: &mut Step) {
    let federation = view.federation;
    // Ours resumes its runs, and its apps survive the restart.
    let resumes = federation.runtime == Runtime::Trellis
        && matches!(federation.coordinator.persistence, Persistence::Disk { .. });
    if may_stop(view, ledger, &view.coordinator.id, facts, resumes, step) {
        step.act(Verb::Replace(view.coordinator.desired.clone()));
    }
}

/// `resumes`: the next coordinator resumes the runs of this one.
fn may_stop(
    view: &View<'_>,
    ledger: &mut Ledger,
    id: &ResourceId,
    facts: &Facts,
    resumes: bool,
    step: &mut Step,
) -> bool {
    if resumes || facts.phase != Phase::Ready {
        return true;
    }
    match finished(ledger, id, facts, false, view.now_ms) {
        Finished::Yes => true,
        Finished::Drain => false,
        Finished::NotYet { why, until_ms } => {
            step.report(Weight::Waits, ABOUT, format!("{why}; its runs would be lost"));
            step.wake_at(until_ms);
            false
        }
    }
}

fn repair(view: &View<'_>, facts: &Facts, step: &mut Step) -> Gate {
    let lasts_ms = view.now_ms.saturating_sub(facts.since_ms);
    let restart = || Verb::Restart {
        id: view.coordinator.id.clone(),
        generation: view.coordinator.desired.generation,
        instance: facts.instance,
    };
    match &facts.phase {
        Phase::Ready => return Gate::Open,
        Phase::Failed { why } => {
            step.report(Weight::Waits, ABOUT, format!("failed: {why}; restarting"));
            step.act(restart());
        }
        Phase::Starting if lasts_ms >= START_TIMEOUT_MS => {
            step.report(Weight::Stuck, ABOUT, format!("not ready after {}; restarting", words(lasts_ms)));
            step.act(restart());
        }
        Phase::Starting | Phase::Stopping => {
            let why = facts.waiting_for.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            step.report(Weight::Waits, ABOUT, format!("starting for {}{why}", words(lasts_ms)));
            step.wake_at(facts.since_ms + START_TIMEOUT_MS);
        }
    }
    Gate::Closed { why: "the coordinator is not ready".to_owned() }
}

//! The planner: a pure function from desired state, observed state and ledger to actions and a report.
//!
//! The planner is a sequence of steps. Each step reads the view (`view.rs`), may update the ledger, and returns actions, and reasons
//! for what it does not do. Actions of one plan are independent: an action that depends on another is in a later plan, after the
//! result of the first was observed. Resources that cannot be observed are neither created nor deleted.

mod blueprint;
mod coordinator;
mod creation;
mod drain;
mod existing;
mod grouped;
mod joined;
mod links;
mod numbering;
mod removal;
mod repair;
mod retry;
mod scaling;
mod selection;
mod skew;
mod status;
mod upgrade;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trellis_spec::{Federation, Name};

use crate::Millis;
use crate::action::{Action, Order, Verb};
use crate::inventory::Inventory;
use crate::ledger::Ledger;
use crate::observed::Observed;
use crate::report::{Weight, Why};
use crate::resource::{Desired, ResourceId};
use crate::status::Status;

pub(crate) use retry::{UNSETTLED_MS, millis};

/// The desired state of a federation.
#[derive(Debug, Clone, PartialEq)]
pub enum DesiredState {
    Federation(Arc<Federation>),
    /// Delete everything.
    Deleted(Name),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// Independent of each other.
    pub actions: Vec<Action>,
    /// What is not done and why, by severity.
    pub report: Vec<Why>,
    pub status: Status,
    /// Must be stored before an action is applied.
    pub ledger: Ledger,
    /// When the plan changes without any other event.
    pub wake_ms: Option<Millis>,
    /// The desired state of all parts for which it can be computed.
    pub blueprints: Vec<Desired>,
    /// Which nodes runs may select. Must reach the SuperLink before an action is applied. `None` if its nodes are unknown, or if it
    /// has no such call.
    pub selection: Option<Selection>,
}

/// Nodes of one numbering of the data, and the shards of nodes that joined by themselves. By SuperLink id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    pub total: u32,
    /// `None`: no shard is left for the node.
    pub shards: BTreeMap<String, Option<u32>>,
    pub left_out: BTreeSet<String>,
    /// During a renumbering: only these nodes, because a new node may have either numbering. Disjoint from `left_out`.
    pub only: Option<BTreeSet<String>>,
}

impl Selection {
    pub fn has(&self, id: &str) -> bool {
        !self.left_out.contains(id) && self.only.as_ref().is_none_or(|only| only.contains(id))
    }
}

/// Result of one step of the planner.
#[derive(Debug, Default)]
struct Step {
    verbs: Vec<Verb>,
    report: Vec<Why>,
    wake_ms: Option<Millis>,
}

/// Plans. `ledger` is from the previous plan; `seed` spreads the retries of different resources in time.
pub fn plan(
    desired: &DesiredState,
    observed: &Observed,
    inventory: &Inventory,
    ledger: &Ledger,
    now_ms: Millis,
    seed: u64,
) -> Planned {
    match desired {
        DesiredState::Federation(federation) => plan_federation(federation, observed, inventory, ledger, now_ms, seed),
        DesiredState::Deleted(name) => plan_deletion(name, observed, inventory, ledger, now_ms, seed),
    }
}

/// The desired state of each part of a document for which it can be computed.
pub fn blueprints(
    federation: &Federation,
    observed: &Observed,
    inventory: &Inventory,
    ledger: &Ledger,
    now_ms: Millis,
) -> BTreeMap<ResourceId, Desired> {
    let mut ledger = ledger.clone();
    let known = existing::find(&federation.name, observed, &mut ledger, now_ms);
    let (counts, _) = scaling::counts(federation, observed, &known, &mut ledger, now_ms);
    joined::adopt(federation, observed, &known, &mut ledger);
    let (numbered, _) = numbering::number(federation, &counts, &known, &mut ledger);
    links::number_gateways(federation, &known, &mut ledger);
    let (view, _) = view::build(federation, inventory, observed, known, numbered, &ledger, now_ms);
    view.into_blueprints().into_iter().map(|desired| (desired.id.clone(), desired)).collect()
}

fn plan_federation(
    federation: &Federation,
    observed: &Observed,
    inventory: &Inventory,
    ledger: &Ledger,
    now_ms: Millis,
    seed: u64,
) -> Planned {
    let mut ledger = ledger.clone();
    let mut step = Step::default();
    ledger.drain_timeout_ms = retry::millis(federation.upgrade.drain_timeout);
    let known = existing::find(&federation.name, observed, &mut ledger, now_ms);
    let counts = step.then(scaling::counts(federation, observed, &known, &mut ledger, now_ms));
    joined::adopt(federation, observed, &known, &mut ledger);
    let numbered = step.then(numbering::number(federation, &counts, &known, &mut ledger));
    links::number_gateways(federation, &known, &mut ledger);
    let view = step.then(view::build(federation, inventory, observed, known, numbered, &ledger, now_ms));
    existing::update_ledger(&view, &mut ledger);

    let sites = federation.sites.iter().map(|site| &site.name);
    step.join(existing::report_unreachable(sites.chain(view.known.keys().map(|id| &id.site)), observed));
    step.join(skew::report(&view));
    let gate = step.then(coordinator::reconcile(&view, &mut ledger));
    step.join(removal::remove_undesired(&view, &gate, &mut ledger));
    step.join(upgrade::upgrade(&view, &gate, &mut ledger));
    step.join(repair::repair(&view, &gate, &mut ledger));
    step.join(creation::create(&view, &gate));

    let mut admitted = retry::admit(step, &mut ledger, now_ms, seed);
    let selection = admitted.then(selection::select(&view, &mut ledger));
    let status = status::of_federation(&view, &admitted, &ledger);
    Planned { selection, ..admitted.into_planned(status, ledger, view.into_blueprints()) }
}

fn plan_deletion(
    name: &Name,
    observed: &Observed,
    inventory: &Inventory,
    ledger: &Ledger,
    now_ms: Millis,
    seed: u64,
) -> Planned {
    let mut ledger = ledger.clone();
    let known = existing::find(name, observed, &mut ledger, now_ms);
    let mut step = removal::remove_all(&known, inventory, &mut ledger, now_ms);
    step.join(existing::report_unreachable(known.keys().map(|id| &id.site), observed));
    let admitted = retry::admit(step, &mut ledger, now_ms, seed);
    let status = status::of_deletion(name, &known, observed, &admitted, now_ms);
    admitted.into_planned(status, ledger, Vec::new())
}

impl Step {
    fn act(&mut self, verb: Verb) {
        self.verbs.push(verb);
    }

    fn report(&mut self, weight: Weight, about: impl Into<String>, text: impl Into<String>) {
        self.report.push(Why { weight, about: about.into(), text: text.into() });
    }

    fn wake_at(&mut self, at_ms: Millis) {
        self.wake_ms = Some(self.wake_ms.map_or(at_ms, |before| before.min(at_ms)));
    }

    fn join(&mut self, other: Step) {
        self.verbs.extend(other.verbs);
        self.report.extend(other.report);
        if let Some(at_ms) = other.wake_ms {
            self.wake_at(at_ms);
        }
    }

    /// Joins a step that also has a result.
    fn then<T>(&mut self, (result, other): (T, Step)) -> T {
        self.join(other);
        result
    }

    fn into_planned(mut self, status: Status, mut ledger: Ledger, blueprints: Vec<Desired>) -> Planned {
        self.report.sort();
        self.report.dedup();
        let mut actions = Vec::with_capacity(self.verbs.len());
        for verb in self.verbs {
            ledger.serial += 1;
            actions.push(Action { order: Order { fence: 0, serial: ledger.serial }, verb });
        }
        Planned { actions, report: self.report, status, ledger, wake_ms: self.wake_ms, blueprints, selection: None }
    }
}

//! What to do next, decided: a pure function from what is wanted, seen and remembered to actions and reasons.
//!
//! The planner is a row of steps. Each looks at the view (`view.rs`), may note something in the ledger, and returns what it
//! would do and why it does not do the rest. Actions of one plan do not depend on each other: what must come later is
//! in a later plan, when the earlier thing was seen to be there. Nothing that could not be seen is made or deleted.

mod blueprint;
mod coordinator;
mod crowd;
mod drain;
mod joined;
mod leaving;
mod links;
mod missing;
mod numbering;
mod pace;
mod repair;
mod scaling;
mod selection;
mod sight;
mod skew;
mod tell;
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

pub(crate) use pace::UNSETTLED_MS;

/// What a federation is to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    Federation(Arc<Federation>),
    /// Nothing of it is to be left.
    Gone(Name),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// May be carried out all at once.
    pub actions: Vec<Action>,
    /// What is not done, and why; the gravest first.
    pub report: Vec<Why>,
    pub status: Status,
    /// To be stored before any action is carried out.
    pub ledger: Ledger,
    /// When time alone will change the plan.
    pub wake_ms: Option<Millis>,
    /// All that is wanted, as far as it is known what it is to be.
    pub blueprints: Vec<Desired>,
    /// Which nodes runs may select, to be told to the SuperLink before any action is carried out; `None`: the SuperLink did not
    /// say which nodes it has, or cannot be told.
    pub selection: Option<Selection>,
}

/// Nodes of one numbering of the data, and the shards of those that joined from elsewhere. By the ids of the SuperLink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    pub total: u32,
    /// `None`: there is none for the node.
    pub shards: BTreeMap<String, Option<u32>>,
    pub left_out: BTreeSet<String>,
    /// While a new numbering rolls: no others than these, as a node that comes may have either. They are not among `left_out`.
    pub only: Option<BTreeSet<String>>,
}

impl Selection {
    pub fn has(&self, id: &str) -> bool {
        !self.left_out.contains(id) && self.only.as_ref().is_none_or(|only| only.contains(id))
    }
}

/// What one step would do, and why it does not do more.
#[derive(Debug, Default)]
struct Step {
    verbs: Vec<Verb>,
    report: Vec<Why>,
    wake_ms: Option<Millis>,
}

/// Decides. `ledger` is the one of the plan before; `seed` spreads retries of many in time.
pub fn plan(
    wanted: &Wanted,
    observed: &Observed,
    inventory: &Inventory,
    ledger: &Ledger,
    now_ms: Millis,
    seed: u64,
) -> Planned {
    match wanted {
        Wanted::Federation(federation) => keep(federation, observed, inventory, ledger, now_ms, seed),
        Wanted::Gone(name) => remove(name, observed, inventory, ledger, now_ms, seed),
    }
}

/// What each part is to be by a document, whether it is there or not, as far as that is known yet.
pub fn blueprints(
    federation: &Federation,
    observed: &Observed,
    inventory: &Inventory,
    ledger: &Ledger,
    now_ms: Millis,
) -> BTreeMap<ResourceId, Desired> {
    let mut ledger = ledger.clone();
    let known = sight::known(&federation.name, observed, &mut ledger, now_ms);
    let (counts, _) = scaling::counts(federation, observed, &known, &mut ledger, now_ms);
    joined::adopt(federation, observed, &known, &mut ledger);
    let (numbered, _) = numbering::number(federation, &counts, &known, &mut ledger);
    links::number_gateways(federation, &known, &mut ledger);
    let (view, _) = view::draw(federation, inventory, observed, known, numbered, &ledger, now_ms);
    view.into_blueprints().into_iter().map(|desired| (desired.id.clone(), desired)).collect()
}

fn keep(
    federation: &Federation,
    observed: &Observed,
    inventory: &Inventory,
    ledger: &Ledger,
    now_ms: Millis,
    seed: u64,
) -> Planned {
    let mut ledger = ledger.clone();
    let mut step = Step::default();
    ledger.drain_timeout_ms = pace::millis(federation.upgrade.drain_timeout);
    let known = sight::known(&federation.name, observed, &mut ledger, now_ms);
    let counts = step.then(scaling::counts(federation, observed, &known, &mut ledger, now_ms));
    joined::adopt(federation, observed, &known, &mut ledger);
    let numbered = step.then(numbering::number(federation, &counts, &known, &mut ledger));
    links::number_gateways(federation, &known, &mut ledger);
    let view = step.then(view::draw(federation, inventory, observed, known, numbered, &ledger, now_ms));
    sight::tidy(&view, &mut ledger);

    let sites = federation.sites.iter().map(|site| &site.name);
    step.join(sight::tell(sites.chain(view.known.keys().map(|id| &id.site)), observed));
    step.join(skew::tell(&view));
    let gate = step.then(coordinator::attend(&view, &mut ledger));
    step.join(leaving::part(&view, &gate, &mut ledger));
    step.join(upgrade::renew(&view, &gate, &mut ledger));
    step.join(repair::mend(&view, &gate, &mut ledger));
    step.join(missing::make(&view, &gate));

    let mut admitted = pace::admit(step, &mut ledger, now_ms, seed);
    let selection = admitted.then(selection::select(&view, &mut ledger));
    let status = tell::status(&view, &admitted, &ledger);
    Planned { selection, ..admitted.into_planned(status, ledger, view.into_blueprints()) }
}

fn remove(
    name: &Name,
    observed: &Observed,
    inventory: &Inventory,
    ledger: &Ledger,
    now_ms: Millis,
    seed: u64,
) -> Planned {
    let mut ledger = ledger.clone();
    let known = sight::known(name, observed, &mut ledger, now_ms);
    let mut step = leaving::part_all(&known, inventory, &mut ledger, now_ms);
    step.join(sight::tell(known.keys().map(|id| &id.site), observed));
    let admitted = pace::admit(step, &mut ledger, now_ms, seed);
    let status = tell::status_of_removal(name, &known, observed, &admitted, now_ms);
    admitted.into_planned(status, ledger, Vec::new())
}

impl Step {
    fn ask(&mut self, verb: Verb) {
        self.verbs.push(verb);
    }

    fn tell(&mut self, weight: Weight, about: impl Into<String>, text: impl Into<String>) {
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

    /// Joins a step that also found something out.
    fn then<T>(&mut self, (found, other): (T, Step)) -> T {
        self.join(other);
        found
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

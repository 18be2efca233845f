//! Observe, plan, apply, again: the loop that keeps one federation as its document says.
//!
//! It remembers nothing between passes: what must be remembered is in the store before anything is done, so a
//! controller that ends anywhere is followed by another as if nothing had happened. It decides nothing: [`crate::plan`]
//! does. It knows no runtime: dropping the future of [`Controller::run`] stops it at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream;
use trellis_spec::{Federation, Name};

use crate::Millis;
use crate::action::{Action, Outcome};
use crate::clock::Clock;
use crate::driver::{Driver, Rendering};
use crate::fleet::Fleet;
use crate::inventory::Inventory;
use crate::ledger::Ledger;
use crate::observed::{Observation, Observed};
use crate::planner::{Planned, Wanted, blueprints, plan};
use crate::resource::Desired;
use crate::store::{Kept, Lease, Store, StoreError};

#[derive(Debug, Clone)]
pub struct Settings {
    /// Who this is: another name for each process.
    pub holder: String,
    /// The version of our own program.
    pub program: String,
    pub seed: u64,
    /// A lease that is not extended so long is another's to take. More than twice the patience, or little gets done.
    pub lease_ms: Millis,
    /// It looks at least so often.
    pub interval_ms: Millis,
    /// After something was done it looks again so soon.
    pub settle_ms: Millis,
    /// While something starts, stops or finishes its work it looks so often.
    pub watch_ms: Millis,
    /// A driver that has not answered after this long is not waited for.
    pub patience_ms: Millis,
    /// Actions under way at once.
    pub most_at_once: usize,
    pub heard: Heard,
}

/// What was heard of the runs by others than drivers. A driver that knows better is believed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heard {
    /// How long the last round took, the longest of the runs at work.
    pub round_ms: Option<Millis>,
    /// How many nodes they wait for.
    pub waits_for: Option<u32>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            holder: "controller".to_owned(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            seed: 0,
            lease_ms: 90_000,
            interval_ms: 15_000,
            settle_ms: 200,
            watch_ms: 1_000,
            patience_ms: 30_000,
            most_at_once: 16,
            heard: Heard::default(),
        }
    }
}

/// What came of one look.
#[derive(Debug, Clone, PartialEq)]
pub enum Pass {
    /// What was decided, and what became of each action.
    Acted { planned: Box<Planned>, outcomes: Vec<Outcome> },
    /// Another controller acts.
    Stood { until_ms: Millis },
    /// The store does not work; nothing was done.
    Failed { why: String },
}

/// What would be done.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    pub planned: Planned,
    pub observed: Observed,
}

/// Stands for the coordinator in what is shown before it was ever seen.
const UNSEEN_COORDINATOR: &str = "address-of-the-coordinator";
const USUAL_FLEET_PORT: u16 = 9092;

pub struct Controller {
    pub drivers: BTreeMap<Name, Arc<dyn Driver>>,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    /// `None`: the SuperLink is not asked for its nodes, and told nothing about them.
    pub fleet: Option<Arc<dyn Fleet>>,
    pub settings: Settings,
}

impl Controller {
    /// Keeps the federation until nothing of it is left, and it was to go. `told` hears of each pass.
    pub async fn run(&self, mut told: impl FnMut(&Pass)) {
        loop {
            let pass = self.pass().await;
            told(&pass);
            if matches!(&pass, Pass::Acted { planned, .. } if planned.status.gone) {
                return;
            }
            select(self.clock.sleep_until(self.next_look_ms(&pass)), self.clock.woken()).await;
        }
    }

    /// Looks once, and does what is to be done.
    pub async fn pass(&self) -> Pass {
        match self.try_pass().await {
            Ok(pass) => pass,
            Err(StoreError::Held { until_ms }) => Pass::Stood { until_ms },
            Err(StoreError::Lost { .. }) => Pass::Stood { until_ms: self.clock.now_ms() + self.settings.interval_ms },
            Err(error @ StoreError::Broken(_)) => Pass::Failed { why: error.to_string() },
        }
    }

    /// What it would decide for another document, or the same. Nothing is done, and nothing is kept.
    pub async fn preview(&self, wanted: &Wanted, ledger: &Ledger) -> Preview {
        let observed = self.observe(wanted, ledger.applied.keys().map(|id| &id.site)).await;
        let planned = plan(wanted, &observed, &self.inventory(), ledger, self.clock.now_ms(), self.settings.seed);
        Preview { planned, observed }
    }

    /// Renders what the drivers would send to their sites for all parts of a document.
    pub fn render(&self, federation: &Federation, observed: &Observed, ledger: &Ledger) -> Vec<(Name, Rendering)> {
        let mut ledger = ledger.clone();
        ledger.coordinator_address.get_or_insert_with(|| {
            let port = federation.coordinator.endpoints.fleet.map_or(USUAL_FLEET_PORT, |port| port.get());
            format!("{UNSEEN_COORDINATOR}:{port}")
        });
        let all = blueprints(federation, observed, &self.inventory(), &ledger, self.clock.now_ms());
        let all: Vec<Desired> = all.into_values().collect();
        let mut renderings = Vec::new();
        for (site, of_site) in by_site(&all) {
            let Some(driver) = self.drivers.get(site) else { continue };
            let of_site: Vec<Desired> = of_site.into_iter().cloned().collect();
            let rendered = driver.preview(&federation.name, site, &of_site);
            renderings.extend(rendered.into_iter().map(|rendering| (site.clone(), rendering)));
        }
        renderings
    }

    /// Drivers hear what is wanted before anything is asked of them. One whose site has nothing hears that too.
    fn tell_drivers(&self, federation: &Name, wanted: &[Desired]) {
        let mut of_sites = by_site(wanted);
        for (site, driver) in &self.drivers {
            driver.hear(federation, site, &of_sites.remove(site).unwrap_or_default());
        }
    }

    /// Lets the next controller begin without waiting for the end of this one's lease.
    pub async fn hand_over(&self) -> Result<(), StoreError> {
        let lease = self.lease().await?;
        self.store.release(&lease).await
    }

    async fn lease(&self) -> Result<Lease, StoreError> {
        let settings = &self.settings;
        self.store.lease(&settings.holder, self.clock.now_ms(), settings.lease_ms).await
    }

    async fn try_pass(&self) -> Result<Pass, StoreError> {
        self.lease().await?;
        let Kept { wanted, ledger } = self.store.read().await?;
        let observed = self.observe(&wanted, ledger.applied.keys().map(|id| &id.site)).await;
        let inventory = self.inventory();
        let planned = plan(&wanted, &observed, &inventory, &ledger, self.clock.now_ms(), self.settings.seed);
        // Looking may have taken long: what follows must not outlast the lease.
        let lease = self.lease().await?;
        self.store.save(&lease, &planned.ledger, &planned.status).await?;
        if let Wanted::Federation(federation) = &wanted {
            self.tell_drivers(&federation.name, &planned.blueprints);
        }
        // Before the actions: a node that is about to have another numbering must not be selected any more.
        if let (Some(fleet), Some(selection)) = (&self.fleet, &planned.selection) {
            self.wait_for(fleet.select(selection)).await;
        }
        let outcomes = self.apply_all(&planned.actions, &lease).await;
        let mut ledger = planned.ledger.clone();
        for (action, outcome) in planned.actions.iter().zip(&outcomes) {
            ledger.record(action, outcome);
        }
        if ledger != planned.ledger {
            self.store.save(&lease, &ledger, &planned.status).await?;
        }
        Ok(Pass::Acted { planned: Box::new(planned), outcomes })
    }

    pub fn inventory(&self) -> Inventory {
        let capabilities = self.drivers.iter().map(|(site, driver)| (site.clone(), driver.capabilities()));
        Inventory { program: self.settings.program.clone(), capabilities: capabilities.collect() }
    }

    /// All sites at once: those of the document, and those where something may be left.
    async fn observe(&self, wanted: &Wanted, remembered: impl Iterator<Item = &Name>) -> Observed {
        let mut sites: BTreeSet<Name> = remembered.cloned().collect();
        let federation = match wanted {
            Wanted::Federation(federation) => {
                sites.extend(federation.sites.iter().map(|site| site.name.clone()));
                &federation.name
            }
            Wanted::Gone(name) => {
                sites.extend(self.drivers.keys().cloned());
                name
            }
        };
        let look = |site: Name| async move {
            let observation = self.observe_site(federation, &site).await;
            (site, observation)
        };
        let looks = stream::iter(sites).map(look).buffer_unordered(self.settings.most_at_once);
        let link = self.fleet.as_ref().and_then(|fleet| fleet.nodes());
        Observed { sites: looks.collect().await, link }
    }

    async fn observe_site(&self, federation: &Name, site: &Name) -> Observation {
        let Some(driver) = self.drivers.get(site) else {
            let why = "no driver is configured for it".to_owned();
            return Observation::Unreachable { why };
        };
        match self.wait_for(driver.observe(federation, site)).await {
            Some(mut observation) => {
                observation.take_in(self.settings.heard);
                observation
            }
            None => Observation::Unreachable { why: self.no_answer() },
        }
    }

    async fn apply_all(&self, actions: &[Action], lease: &Lease) -> Vec<Outcome> {
        let apply = |(index, action): (usize, &Action)| {
            let mut action = action.clone();
            action.order.fence = lease.fence;
            async move { (index, self.apply(&action, lease).await) }
        };
        let under_way =
            stream::iter(actions.iter().enumerate()).map(apply).buffer_unordered(self.settings.most_at_once);
        let mut outcomes: Vec<(usize, Outcome)> = under_way.collect().await;
        outcomes.sort_by_key(|(index, _)| *index);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    async fn apply(&self, action: &Action, lease: &Lease) -> Outcome {
        // An action that would outlast the lease is left for the next pass, which extends it first.
        if self.clock.now_ms() + self.settings.patience_ms >= lease.until_ms {
            return Outcome::Refused { why: "the lease would end before it is done".to_owned(), retry: true };
        }
        let site = &action.id().site;
        let Some(driver) = self.drivers.get(site) else {
            return Outcome::Refused { why: format!("no driver is configured for site {site}"), retry: true };
        };
        let answer = self.wait_for(driver.apply(action)).await;
        answer.unwrap_or_else(|| Outcome::Failed { why: self.no_answer() })
    }

    fn no_answer(&self) -> String {
        format!("no answer after {} s", self.settings.patience_ms / 1000)
    }

    /// `None`: it took too long.
    async fn wait_for<T>(&self, call: impl Future<Output = T> + Unpin) -> Option<T> {
        let limit = self.clock.sleep_until(self.clock.now_ms() + self.settings.patience_ms);
        match select(call, limit).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(((), _)) => None,
        }
    }

    /// When the pass after this one is due, unless something wakes it before.
    pub fn next_look_ms(&self, pass: &Pass) -> Millis {
        let now_ms = self.clock.now_ms();
        let latest_ms = now_ms + self.settings.interval_ms;
        match pass {
            Pass::Acted { planned, .. } => {
                let latest_ms = match planned {
                    planned if !planned.actions.is_empty() => now_ms + self.settings.settle_ms,
                    planned if planned.status.is_in_motion() => latest_ms.min(now_ms + self.settings.watch_ms),
                    _ => latest_ms,
                };
                planned.wake_ms.map_or(latest_ms, |at_ms| at_ms.clamp(now_ms, latest_ms))
            }
            Pass::Stood { until_ms } => (*until_ms).clamp(now_ms, latest_ms),
            Pass::Failed { .. } => latest_ms,
        }
    }
}

fn by_site(wanted: &[Desired]) -> BTreeMap<&Name, Vec<&Desired>> {
    let mut of_sites: BTreeMap<&Name, Vec<&Desired>> = BTreeMap::new();
    for desired in wanted {
        of_sites.entry(&desired.id.site).or_default().push(desired);
    }
    of_sites
}

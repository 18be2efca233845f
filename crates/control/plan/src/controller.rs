//! Reconciles one federation: observes its sites, plans, and applies the plan.
//!
//! A controller keeps no state between reconciles. What the next reconcile must know is stored before an action is applied, so that
//! another controller can continue at any point. Decisions are made by [`crate::plan()`]. The controller uses no async runtime:
//! dropping the future of [`Controller::run`] stops it at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream;
use trellis_reconcile::{self as reconcile, Backoff, End, Next, Reconciler};
use trellis_spec::{Federation, Name};

use crate::Millis;
use crate::action::{Action, Outcome};
use crate::clock::Clock;
use crate::driver::{Call, Driver, Rendering};
use crate::fleet::Fleet;
use crate::inventory::Inventory;
use crate::ledger::Ledger;
use crate::observed::{Observation, Observed};
use crate::planner::{DesiredState, Planned, blueprints, millis, plan};
use crate::resource::Desired;
use crate::store::{Lease, Store, StoreError, Stored};

#[derive(Debug, Clone)]
pub struct Settings {
    /// The name of this lease holder. Each process has its own.
    pub holder: String,
    /// The version of our own program.
    pub program: String,
    pub seed: u64,
    /// A lease that is not extended for this long can be taken by another controller. Must be more than twice the timeout, or
    /// most actions are postponed.
    pub lease_ms: Millis,
    /// Maximum delay between two reconciles.
    pub interval_ms: Millis,
    /// Delay after a reconcile that started actions.
    pub settle_ms: Millis,
    /// Delay while a part starts, stops or drains.
    pub poll_ms: Millis,
    /// Timeout of each call to a driver.
    pub timeout_ms: Millis,
    pub max_concurrent_actions: usize,
    pub run_metrics: RunMetrics,
}

/// Metrics of the active runs that are not from a driver. Values that a driver reports take precedence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunMetrics {
    /// Duration of the last round; of several runs, the longest.
    pub round_ms: Option<Millis>,
    /// How many nodes the runs wait for.
    pub required_nodes: Option<u32>,
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
            poll_ms: 1_000,
            timeout_ms: 30_000,
            max_concurrent_actions: 16,
            run_metrics: RunMetrics::default(),
        }
    }
}

/// Result of one reconcile.
#[derive(Debug, Clone, PartialEq)]
pub enum Reconciled {
    /// The plan, and the outcome of each of its actions.
    Acted { planned: Box<Planned>, outcomes: Vec<Outcome> },
    /// Another controller holds the lease.
    Standby { until_ms: Millis },
    /// The store failed; no action was applied.
    Failed { why: String },
}

/// The process that runs a controller.
pub trait Host: Send {
    /// Updates the drivers and settings of the controller before a reconcile. `Break` ends the loop.
    fn prepare<'a>(&'a mut self, controller: &'a mut Controller) -> Call<'a, ControlFlow<()>>;

    /// Receives the result of a reconcile. `Break` ends the loop: the federation was deleted.
    fn report<'a>(&'a mut self, result: &'a Reconciled) -> Call<'a, ControlFlow<()>>;
}

/// A plan that is not applied, and the observation that it is based on.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    pub planned: Planned,
    pub observed: Observed,
}

/// Placeholder for the address of a coordinator that was never observed.
const COORDINATOR_PLACEHOLDER: &str = "address-of-the-coordinator";
const USUAL_FLEET_PORT: u16 = 9092;

pub struct Controller {
    pub drivers: BTreeMap<Name, Arc<dyn Driver>>,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    /// `None`: the controller does not exchange nodes with the SuperLink.
    pub fleet: Option<Arc<dyn Fleet>>,
    pub settings: Settings,
}

impl Controller {
    /// Runs the reconcile loop until the host ends it or `stop` resolves. If stopped, releases the lease, so that the next
    /// controller need not wait for its end.
    pub async fn run(&mut self, host: &mut dyn Host, stop: impl Future<Output = ()> + Send) -> Result<(), StoreError> {
        let clock = Arc::clone(&self.clock);
        let sleep = |delay| clock.sleep_until(clock.now_ms().saturating_add(millis(delay)));
        let interval = Duration::from_millis(self.settings.interval_ms);
        let mut hosted = Hosted { controller: self, host };
        match reconcile::run(&mut hosted, Backoff::new(interval, interval), sleep, stop).await {
            End::Done => Ok(()),
            End::Stopped => self.release_lease().await,
        }
    }

    /// Observes, plans and applies once.
    pub async fn reconcile(&self) -> Reconciled {
        match self.try_reconcile().await {
            Ok(result) => result,
            Err(StoreError::Held { until_ms }) => Reconciled::Standby { until_ms },
            Err(StoreError::Lost { .. }) => {
                Reconciled::Standby { until_ms: self.clock.now_ms() + self.settings.interval_ms }
            }
            Err(error @ StoreError::Broken(_)) => Reconciled::Failed { why: error.to_string() },
        }
    }

    /// Plans for the stored document or another one. Applies and stores nothing.
    pub async fn preview(&self, desired: &DesiredState, ledger: &Ledger) -> Preview {
        let observed = self.observe(desired, ledger.applied.keys().map(|id| &id.site)).await;
        let planned = plan(desired, &observed, &self.inventory(), ledger, self.clock.now_ms(), self.settings.seed);
        Preview { planned, observed }
    }

    /// Renders what the drivers would send to their sites for all parts of a document.
    pub fn render(&self, federation: &Federation, observed: &Observed, ledger: &Ledger) -> Vec<(Name, Rendering)> {
        let mut ledger = ledger.clone();
        ledger.coordinator_address.get_or_insert_with(|| {
            let port = federation.coordinator.endpoints.fleet.map_or(USUAL_FLEET_PORT, |port| port.get());
            format!("{COORDINATOR_PLACEHOLDER}:{port}")
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

    /// Passes the desired state to the drivers before any action. A driver whose site has none receives an empty list.
    fn set_desired(&self, federation: &Name, desired: &[Desired]) {
        let mut of_sites = by_site(desired);
        for (site, driver) in &self.drivers {
            driver.set_desired(federation, site, &of_sites.remove(site).unwrap_or_default());
        }
    }

    /// Lets the next controller start without waiting for the lease to end.
    pub async fn release_lease(&self) -> Result<(), StoreError> {
        let lease = self.lease().await?;
        self.store.release(&lease).await
    }

    async fn lease(&self) -> Result<Lease, StoreError> {
        let settings = &self.settings;
        self.store.lease(&settings.holder, self.clock.now_ms(), settings.lease_ms).await
    }

    async fn try_reconcile(&self) -> Result<Reconciled, StoreError> {
        self.lease().await?;
        let Stored { desired, ledger } = self.store.read().await?;
        let observed = self.observe(&desired, ledger.applied.keys().map(|id| &id.site)).await;
        let inventory = self.inventory();
        let planned = plan(&desired, &observed, &inventory, &ledger, self.clock.now_ms(), self.settings.seed);
        // Observing may have taken long, and the actions must not outlast the lease.
        let lease = self.lease().await?;
        self.store.save(&lease, &planned.ledger, &planned.status).await?;
        if let DesiredState::Federation(federation) = &desired {
            self.set_desired(&federation.name, &planned.blueprints);
        }
        // Before the actions: a node that is about to be renumbered must no longer be selected.
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
        Ok(Reconciled::Acted { planned: Box::new(planned), outcomes })
    }

    pub fn inventory(&self) -> Inventory {
        let capabilities = self.drivers.iter().map(|(site, driver)| (site.clone(), driver.capabilities()));
        Inventory { program: self.settings.program.clone(), capabilities: capabilities.collect() }
    }

    /// Observes all sites concurrently: those of the document, and those where parts may be left.
    async fn observe(&self, desired: &DesiredState, remembered: impl Iterator<Item = &Name>) -> Observed {
        let mut sites: BTreeSet<Name> = remembered.cloned().collect();
        let federation = match desired {
            DesiredState::Federation(federation) => {
                sites.extend(federation.sites.iter().map(|site| site.name.clone()));
                &federation.name
            }
            DesiredState::Deleted(name) => {
                sites.extend(self.drivers.keys().cloned());
                name
            }
        };
        let observe = |site: Name| async move {
            let observation = self.observe_site(federation, &site).await;
            (site, observation)
        };
        let observations = stream::iter(sites).map(observe).buffer_unordered(self.settings.max_concurrent_actions);
        let link = self.fleet.as_ref().and_then(|fleet| fleet.nodes());
        Observed { sites: observations.collect().await, link }
    }

    async fn observe_site(&self, federation: &Name, site: &Name) -> Observation {
        let Some(driver) = self.drivers.get(site) else {
            let why = "no driver is configured for this site".to_owned();
            return Observation::Unreachable { why };
        };
        match self.wait_for(driver.observe(federation, site)).await {
            Some(mut observation) => {
                observation.add_run_metrics(self.settings.run_metrics);
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
        let running =
            stream::iter(actions.iter().enumerate()).map(apply).buffer_unordered(self.settings.max_concurrent_actions);
        let mut outcomes: Vec<(usize, Outcome)> = running.collect().await;
        outcomes.sort_by_key(|(index, _)| *index);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    async fn apply(&self, action: &Action, lease: &Lease) -> Outcome {
        // An action that could outlast the lease is left for the next reconcile, which extends the lease first.
        if self.clock.now_ms() + self.settings.timeout_ms >= lease.until_ms {
            return Outcome::Refused { why: "the lease would end before the action is done".to_owned(), retry: true };
        }
        let site = &action.id().site;
        let Some(driver) = self.drivers.get(site) else {
            return Outcome::Refused { why: format!("no driver is configured for site {site}"), retry: true };
        };
        let answer = self.wait_for(driver.apply(action)).await;
        answer.unwrap_or_else(|| Outcome::Failed { why: self.no_answer() })
    }

    fn no_answer(&self) -> String {
        format!("no answer after {} s", self.settings.timeout_ms / 1000)
    }

    /// Returns `None` after the timeout.
    async fn wait_for<T>(&self, call: impl Future<Output = T> + Unpin) -> Option<T> {
        let limit = self.clock.sleep_until(self.clock.now_ms() + self.settings.timeout_ms);
        match select(call, limit).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(((), _)) => None,
        }
    }

    /// When the next reconcile is due, unless the controller is woken before.
    fn next(&self, result: &Reconciled) -> Next {
        let settings = &self.settings;
        let now_ms = self.clock.now_ms();
        let latest_ms = now_ms + settings.interval_ms;
        let due_ms = match result {
            Reconciled::Acted { planned, .. } => {
                let latest_ms = match planned {
                    planned if !planned.actions.is_empty() => now_ms + settings.settle_ms,
                    planned if planned.status.is_in_motion() => latest_ms.min(now_ms + settings.poll_ms),
                    _ => latest_ms,
                };
                planned.wake_ms.map_or(latest_ms, |at_ms| at_ms.clamp(now_ms, latest_ms))
            }
            Reconciled::Standby { until_ms } => (*until_ms).clamp(now_ms, latest_ms),
            Reconciled::Failed { .. } => return Next::Retry,
        };
        Next::After(Duration::from_millis(due_ms - now_ms))
    }
}

struct Hosted<'a> {
    controller: &'a mut Controller,
    host: &'a mut dyn Host,
}

impl Reconciler for Hosted<'_> {
    async fn reconcile(&mut self) -> Next {
        if self.host.prepare(self.controller).await.is_break() {
            return Next::Done;
        }
        let result = self.controller.reconcile().await;
        match self.host.report(&result).await {
            ControlFlow::Continue(()) => self.controller.next(&result),
            ControlFlow::Break(()) => Next::Done,
        }
    }

    async fn woken(&mut self) {
        self.controller.clock.woken().await;
    }
}

fn by_site(all: &[Desired]) -> BTreeMap<&Name, Vec<&Desired>> {
    let mut of_sites: BTreeMap<&Name, Vec<&Desired>> = BTreeMap::new();
    for desired in all {
        of_sites.entry(&desired.id.site).or_default().push(desired);
    }
    of_sites
}

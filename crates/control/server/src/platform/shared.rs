//! State shared by the whole platform: the registry, the drivers, the views, and the reconcile loop of each federation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use trellis_api::Run;
use trellis_plan::{Clock, Controller, Fleet, RunMetrics, Settings, Store};
use trellis_registry::{Registry, RegistryError};
use trellis_spec::{Federation, Name};

use super::clock::TokioClock;
use super::reconcile::supervise;
use super::sites::{Remembered, Sites};
use super::view::Views;

/// The version of our own program, which new processes run.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");
/// After this time another controller can take over from one whose process was killed.
const LEASE_MS: u64 = 10_000;
/// Maximum delay between reconciles. Drivers wake the controller earlier if they notice a change.
const INTERVAL_MS: u64 = 4_000;
const SETTLE_MS: u64 = 20;
/// While a part starts. Short, so that a federation is ready right after its last node.
const POLL_MS: u64 = 50;
const TIMEOUT_MS: u64 = 3_000;
const MAX_CONCURRENT_ACTIONS: usize = 32;
/// How long a stop waits for reconciles in progress: the outcome of an interrupted action would be unknown.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);

pub struct Shared {
    pub registry: Registry,
    pub sites: Sites,
    pub views: Views,
    /// The holder name of this process in leases.
    holder: String,
    /// The reconcile loop of each federation.
    loops: Mutex<BTreeMap<Name, JoinHandle<()>>>,
    wakers: Arc<Wakers>,
    stopping: watch::Sender<bool>,
}

/// Wakes the reconcile loops, by federation.
#[derive(Default)]
pub struct Wakers(Mutex<BTreeMap<Name, Arc<Notify>>>);

impl Wakers {
    pub fn wake(&self, name: &Name) {
        if let Some(waker) = self.all().get(name) {
            waker.notify_one();
        }
    }

    fn of(&self, name: &Name) -> Arc<Notify> {
        Arc::clone(self.all().entry(name.clone()).or_default())
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Name, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    pub fn new(registry: Registry, sites: Sites, wakers: Arc<Wakers>, holder: String) -> Arc<Shared> {
        let (views, loops, stopping) = (Views::new(), Mutex::default(), watch::Sender::new(false));
        Arc::new(Shared { registry, sites, views, holder, loops, wakers, stopping })
    }

    /// Reconciles a federation now. Starts its loop if there is none.
    pub fn reconcile(self: &Arc<Self>, name: &Name) {
        let mut loops = self.loops();
        if *self.stopping.borrow() {
            return;
        }
        if loops.get(name).is_none_or(JoinHandle::is_finished) {
            let task = tokio::spawn(supervise(Arc::clone(self), name.clone(), self.wakers.of(name)));
            loops.insert(name.clone(), task);
        }
        self.wakers.wake(name);
    }

    /// Forgets the loop of a deleted federation. `false`: there is a new federation of the same name.
    pub fn release(&self, name: &Name) -> bool {
        let mut loops = self.loops();
        if self.views.contains(name) {
            return false;
        }
        loops.remove(name);
        self.wakers.all().remove(name);
        true
    }

    /// Creates a controller without drivers.
    pub fn controller(
        &self,
        name: &Name,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        fleet: Arc<dyn Fleet>,
    ) -> Controller {
        let seed = name.as_str().bytes().fold(0, |seed: u64, byte| seed.wrapping_mul(31) + u64::from(byte));
        let settings = Settings {
            holder: self.holder.clone(),
            program: PROGRAM.to_owned(),
            seed,
            lease_ms: LEASE_MS,
            interval_ms: INTERVAL_MS,
            settle_ms: SETTLE_MS,
            poll_ms: POLL_MS,
            timeout_ms: TIMEOUT_MS,
            max_concurrent_actions: MAX_CONCURRENT_ACTIONS,
            run_metrics: RunMetrics::default(),
        };
        Controller { drivers: BTreeMap::new(), store, clock, fleet: Some(fleet), settings }
    }

    /// The given sites as the last document that named them had them. Empty if the current document names them all.
    pub async fn remember(
        &self,
        name: &Name,
        federation: Option<&Federation>,
        sites: BTreeSet<Name>,
    ) -> Result<Remembered, RegistryError> {
        let is_named =
            |site: &Name| federation.is_some_and(|federation| federation.sites.iter().any(|named| named.name == *site));
        if sites.iter().all(is_named) {
            return Ok(Remembered::new());
        }
        let mut kept = self.registry.sites(name).await?;
        Ok(sites.into_iter().map(|site| (site.clone(), kept.remove(&site))).collect())
    }

    /// The users who started runs, by run id. Empty if the registry fails.
    pub async fn starters(&self, name: &Name) -> BTreeMap<String, String> {
        self.registry.starters(name).await.unwrap_or_else(|error| {
            tracing::error!(federation = %name, "the users who started its runs cannot be read: {error}");
            BTreeMap::new()
        })
    }

    /// Notes a run, and stores it if the run is new or its state changed.
    pub async fn note_run(&self, name: &Name, run: Run) {
        let Some(run) = self.views.note_run(name, run) else { return };
        let text = serde_json::to_string(&run).expect("a run is plain data");
        let kept = self.registry.store_run(name, &run.id, (run.submitted_at * 1000.0) as u64, text).await;
        if let Err(error) = kept {
            tracing::error!(federation = %name, run = run.id, "the run cannot be stored: {error}");
        }
    }

    /// The stored runs of a federation, which may be deleted; newest first.
    pub async fn stored_runs(&self, name: &Name) -> Result<Vec<Run>, RegistryError> {
        let texts = self.registry.runs(name).await?;
        // Runs that another version stored in another form are ignored.
        Ok(texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect())
    }

    /// Adds the stored runs to the view of a federation.
    pub async fn recall(&self, name: &Name) -> Result<(), RegistryError> {
        self.views.recall(name, self.stored_runs(name).await?);
        Ok(())
    }

    /// A clock that is never woken, for a single reconcile.
    pub fn clock() -> Arc<dyn Clock> {
        Arc::new(TokioClock { wake: Arc::default() })
    }

    /// Resolves when the platform stops.
    pub async fn stopped(&self) {
        // Cannot fail: `self` owns the sender.
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    pub async fn stop(&self) {
        self.stopping.send_replace(true);
        let loops = std::mem::take(&mut *self.loops());
        let until = tokio::time::Instant::now() + STOP_TIMEOUT;
        for (name, mut task) in loops {
            if tokio::time::timeout_at(until, &mut task).await.is_err() {
                tracing::warn!(federation = %name, "its controller did not stop within the timeout and is aborted");
                task.abort();
            }
        }
    }

    /// Aborts all loops, as a crash would.
    pub fn abandon(&self) {
        self.stopping.send_replace(true);
        for task in self.loops().values() {
            task.abort();
        }
    }

    fn loops(&self) -> MutexGuard<'_, BTreeMap<Name, JoinHandle<()>>> {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

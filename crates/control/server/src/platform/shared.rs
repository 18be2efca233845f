//! What everybody in the platform works with: the registry, the drivers, what is known, and who keeps which federation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use trellis_api::Run;
use trellis_plan::{Clock, Controller, Driver, Fleet, Settings, Store};
use trellis_registry::{Registry, RegistryError};
use trellis_spec::{Federation, Name};

use super::clock::TokioClock;
use super::keep;
use super::sites::{Remembered, Sites};
use super::view::Views;

/// The version of our own program: what new processes will run.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");
/// A controller whose process was killed is followed by another after this long.
const LEASE_MS: u64 = 10_000;
/// It looks at least so often; what drivers notice by themselves wakes it before.
const INTERVAL_MS: u64 = 4_000;
const SETTLE_MS: u64 = 20;
/// While something starts: a federation is ready a moment after its last node.
const WATCH_MS: u64 = 50;
const PATIENCE_MS: u64 = 3_000;
const MOST_ACTIONS_AT_ONCE: usize = 32;
/// A pass that is under way when the platform stops is waited for: what it asked for would be in doubt.
const STOP_PATIENCE: Duration = Duration::from_secs(8);

pub struct Shared {
    pub registry: Registry,
    pub sites: Sites,
    pub views: Views,
    /// Whose leases they are.
    holder: String,
    /// Who keeps which federation.
    keepers: Mutex<BTreeMap<Name, JoinHandle<()>>>,
    bells: Arc<Bells>,
    stopping: watch::Sender<bool>,
}

/// The bells of all federations, for those who know when to ring one.
#[derive(Default)]
pub struct Bells(Mutex<BTreeMap<Name, Arc<Notify>>>);

impl Bells {
    pub fn ring(&self, name: &Name) {
        if let Some(bell) = self.all().get(name) {
            bell.notify_one();
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
    pub fn new(registry: Registry, sites: Sites, bells: Arc<Bells>, holder: String) -> Arc<Shared> {
        let (views, keepers, stopping) = (Views::new(), Mutex::default(), watch::Sender::new(false));
        Arc::new(Shared { registry, sites, views, holder, keepers, bells, stopping })
    }

    /// Sees to it that somebody keeps a federation, and looks at it now.
    pub fn attend(self: &Arc<Self>, name: &Name) {
        let mut keepers = self.keepers();
        if *self.stopping.borrow() {
            return;
        }
        if keepers.get(name).is_none_or(JoinHandle::is_finished) {
            let bell = self.bells.of(name);
            let task = tokio::spawn(keep::supervise(Arc::clone(self), name.clone(), bell));
            keepers.insert(name.clone(), task);
        }
        self.bells.ring(name);
    }

    /// Lets the keeper of a federation go of which nothing is left. `false`: there is a new one of the same name.
    pub fn dismiss(&self, name: &Name) -> bool {
        let mut keepers = self.keepers();
        if self.views.contains(name) {
            return false;
        }
        keepers.remove(name);
        self.bells.all().remove(name);
        true
    }

    /// Creates a controller for a federation with these drivers.
    pub fn controller(
        &self,
        name: &Name,
        drivers: BTreeMap<Name, Arc<dyn Driver>>,
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
            watch_ms: WATCH_MS,
            patience_ms: PATIENCE_MS,
            most_at_once: MOST_ACTIONS_AT_ONCE,
            heard: self.views.get(name).map(|view| view.runs.heard()).unwrap_or_default(),
        };
        Controller { drivers, store, clock, fleet: Some(fleet), settings }
    }

    /// These sites as the last document had them that named them. Those of the document need not be looked up.
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

    /// Who started which run, by its id. Without the registry nobody is known.
    pub async fn starters(&self, name: &Name) -> BTreeMap<String, String> {
        self.registry.starters(name).await.unwrap_or_else(|error| {
            tracing::error!(federation = %name, "who started its runs cannot be read: {error}");
            BTreeMap::new()
        })
    }

    /// Notes a run, and stores it if it is new or in another state.
    pub async fn note_run(&self, name: &Name, run: Run) {
        let Some(run) = self.views.note_run(name, run) else { return };
        let text = serde_json::to_string(&run).expect("a run is plain data");
        let kept = self.registry.keep_run(name, &run.id, (run.submitted_at * 1000.0) as u64, text).await;
        if let Err(error) = kept {
            tracing::error!(federation = %name, run = run.id, "the run cannot be stored: {error}");
        }
    }

    /// The stored runs of a federation, newest first; it may be gone.
    pub async fn stored_runs(&self, name: &Name) -> Result<Vec<Run>, RegistryError> {
        let texts = self.registry.runs(name).await?;
        // A run that another version stored in another form is no loss.
        Ok(texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect())
    }

    /// Adds the stored runs to what is known of a federation.
    pub async fn recall(&self, name: &Name) -> Result<(), RegistryError> {
        self.views.recall(name, self.stored_runs(name).await?);
        Ok(())
    }

    /// A clock that nothing wakes, for who looks once.
    pub fn clock() -> Arc<dyn Clock> {
        Arc::new(TokioClock { bell: Arc::default() })
    }

    /// Resolves when the platform stops.
    pub async fn stopped(&self) {
        // The sender is in `self`, so that it cannot be gone.
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    pub async fn stop(&self) {
        self.stopping.send_replace(true);
        let keepers = std::mem::take(&mut *self.keepers());
        let until = tokio::time::Instant::now() + STOP_PATIENCE;
        for (name, mut task) in keepers {
            if tokio::time::timeout_at(until, &mut task).await.is_err() {
                tracing::warn!(federation = %name, "its controller did not stop in time, and is left where it stands");
                task.abort();
            }
        }
    }

    /// Ends everybody where they stand, as a crash would.
    pub fn abandon(&self) {
        self.stopping.send_replace(true);
        for keeper in self.keepers().values() {
            keeper.abort();
        }
    }

    fn keepers(&self) -> MutexGuard<'_, BTreeMap<Name, JoinHandle<()>>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

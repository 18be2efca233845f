//! All parts of one federation at one site: records, orders, and the last observation. Accepts orders, and reports the status
//! of parts. The [`crate::reconciler`] observes the cloud and executes what the records require.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard as StdGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use tokio::sync::{Mutex, MutexGuard, Notify, watch};
use trellis_clock::now_ms;
use trellis_files::private;
use trellis_one::keys::TRELLIS_INSTANCE;
use trellis_plan::{
    Action, Capacity, Desired, DriverRetries, Millis, Observation, ObservedSite, Orders, Outcome, PoolRules, Presence,
    ResourceId, Spec, Verb, Wake,
};
use trellis_spec::Name;

use crate::cloud::{Cloud, CloudError};
use crate::driver::OneSettings;
use crate::history::{History, Limits};
use crate::home::Home;
use crate::next::{Document, Next, Step, update_records};
use crate::reconciler::PollIntervals;
use crate::record::{AgentState, Record, VERSION};
use crate::render::RoleOf;
use crate::render::labels;
use crate::status::{Inputs, status};
use crate::view::{Life, View, VmView};

const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Maximum wait of a caller for a new observation, shorter than a controller's timeout for a driver. If the cloud is
/// slower, the caller gets the last observation.
const OBSERVE_WAIT: Duration = Duration::from_secs(2);
/// A cloud without any answer for this long is unreachable. Real ones take up to 14 s under load.
const MAX_SILENCE: Duration = Duration::from_secs(60);
const NOT_ANSWERED: &str = "the cloud has not responded yet";

pub struct Fleet {
    pub federation: Name,
    pub site: Name,
    pub home: Home,
    /// The site in the current document.
    cloud: StdMutex<Arc<Cloud>>,
    pub limits: Limits,
    pub retries: DriverRetries,
    pub wake: Wake,
    /// Authorities of a coordinator that another driver runs.
    pub trust: Option<PathBuf>,
    pub intervals: PollIntervals,
    /// Wakes the reconciler for an observation.
    pub wakeup: Notify,
    /// The desired state changed: the next observation must be a full one.
    changed: AtomicBool,
    /// Number of finished observations, including failed ones.
    observations: watch::Sender<u64>,
    state: Mutex<State>,
    /// Desired state of the document at this site; `None` until a controller sends it.
    document: StdMutex<Option<Document>>,
    /// Locked as long as the fleet exists.
    _lock: File,
}

pub struct State {
    pub records: BTreeMap<ResourceId, Record>,
    /// Parts whose records cannot be read, with the error.
    pub unreadable: BTreeMap<ResourceId, String>,
    pub orders: Orders,
    pub history: History,
    /// Why parts without a VM have failed.
    pub stuck: Option<String>,
    /// The part of `stuck` that a retry does not resolve: the document or the site must change.
    pub blocked: Option<String>,
    /// Why parts without a VM or join token wait. It may resolve by itself.
    pub waiting_for: Option<String>,
    /// Error of the last create step, until that step succeeds or is no longer needed.
    pub refused: Option<CloudError>,
    /// The last observation.
    pub view: Option<View>,
    pub viewed_at: Option<Instant>,
    /// Time of the last response of the cloud.
    pub answered_at: Option<Instant>,
    /// Error of the last observation.
    pub failure: Option<CloudError>,
}

impl Fleet {
    /// Reads the records of earlier drivers.
    pub fn open(settings: &OneSettings, federation: &Name, site: &Name, cloud: &Arc<Cloud>) -> io::Result<Fleet> {
        let home = Home::new(&settings.directory, federation, site);
        private::make_directory(&home.records())?;
        let lock = File::create(home.lock())?;
        if !take(&lock) {
            let text = format!("another control plane uses {}", home.site().display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        let (mut records, mut unreadable) = (BTreeMap::new(), BTreeMap::new());
        for (id, record) in read_records(&home, federation, site)? {
            match record {
                Ok(record) => drop(records.insert(id, record)),
                Err(why) => drop(unreadable.insert(id, why)),
            }
        }
        let orders = private::read_json(&home.orders())?.unwrap_or_default();
        let state = State {
            records,
            unreadable,
            orders,
            history: History::default(),
            stuck: None,
            blocked: None,
            waiting_for: None,
            refused: None,
            view: None,
            viewed_at: None,
            answered_at: None,
            failure: None,
        };
        Ok(Fleet {
            federation: federation.clone(),
            site: site.clone(),
            home,
            cloud: StdMutex::new(Arc::clone(cloud)),
            limits: settings.limits,
            retries: settings.retries,
            wake: Arc::clone(&settings.wake),
            trust: (settings.trust)(federation),
            intervals: settings.intervals,
            wakeup: Notify::new(),
            changed: AtomicBool::new(true),
            observations: watch::Sender::new(0),
            state: Mutex::new(state),
            document: StdMutex::default(),
            _lock: lock,
        })
    }

    pub async fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().await
    }

    pub fn cloud(&self) -> Arc<Cloud> {
        Arc::clone(&locked(&self.cloud))
    }

    /// Replaces the cloud if the document has another network or other credentials.
    pub fn set_cloud(&self, cloud: &Arc<Cloud>) {
        let mut known = locked(&self.cloud);
        if known.one != cloud.one {
            *known = Arc::clone(cloud);
            self.change();
        }
    }

    /// The desired state changed: wakes the reconciler for a full observation.
    fn change(&self) {
        self.changed.store(true, Ordering::Relaxed);
        self.wakeup.notify_one();
    }

    /// Whether the desired state changed since the last call.
    pub fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }

    /// Counts a finished observation and notifies its subscribers.
    pub fn observed(&self) {
        self.observations.send_modify(|observations| *observations += 1);
    }

    /// Stores the desired state of the document at this site.
    pub fn hear(&self, wanted: &[&Desired]) {
        let wanted: Document = wanted.iter().map(|desired| (desired.id.clone(), (*desired).clone())).collect();
        let mut known = locked(&self.document);
        if known.as_ref() != Some(&wanted) {
            *known = Some(wanted);
            self.change();
        }
    }

    /// The VM of a part in the last observation.
    pub async fn vm_of(&self, id: &ResourceId) -> Option<VmView> {
        let state = self.lock().await;
        state.view.as_ref()?.vm(state.records.get(id)?.vm?).cloned()
    }

    pub fn document(&self) -> Option<Document> {
        locked(&self.document).clone()
    }

    /// Scaling rules that OneFlow evaluates, by pool.
    pub fn rules(&self) -> BTreeMap<Name, PoolRules> {
        let document = locked(&self.document);
        let rules = document.iter().flatten().filter_map(|(id, desired)| match &desired.spec {
            Spec::Node(spec) => Some((id.node_key()?.pool.clone(), spec.rules.clone()?)),
            Spec::Coordinator(_) => None,
        });
        rules.collect()
    }

    pub async fn observe(&self, cloud: &Cloud) -> Observation {
        if cloud.one != self.cloud().one {
            // The call plans for another connection, whose cloud the reconciler does not observe.
            return match cloud.observe_partial(&self.federation, &self.site).await {
                Ok(view) => self.observation(&*self.lock().await, &view),
                Err(CloudError { why, .. }) => {
                    cloud.forget().await;
                    Observation::Unreachable { why }
                }
            };
        }
        self.await_observation().await;
        let state = self.lock().await;
        let silent = state.answered_at.is_none_or(|at| at.elapsed() > MAX_SILENCE);
        match (&state.view, &state.failure) {
            (_, Some(failure)) if silent || !failure.transient => Observation::Unreachable { why: failure.why.clone() },
            (Some(_), None) if silent => {
                let why = format!("no response for {} s", MAX_SILENCE.as_secs());
                Observation::Unreachable { why }
            }
            (Some(view), _) => self.observation(&state, view),
            (None, _) => state.unseen(),
        }
    }

    /// Waits for the next observation, at most [`OBSERVE_WAIT`]. Returns at once if the last one is recent.
    async fn await_observation(&self) {
        let mut observations = self.observations.subscribe();
        let is_fresh = |at: Instant| at.elapsed() <= self.intervals.idle + self.intervals.idle / 2;
        if self.lock().await.viewed_at.is_some_and(is_fresh) {
            return;
        }
        observations.mark_unchanged();
        self.wakeup.notify_one();
        let _ = tokio::time::timeout(OBSERVE_WAIT, observations.changed()).await;
    }

    fn observation(&self, state: &State, view: &View) -> Observation {
        let document = self.document();
        let mut resources = state.statuses(view, document.as_ref(), &self.limits, now_ms());
        let lost = state.unreadable.iter().map(|(id, why)| (id.clone(), Presence::Unknown { why: why.clone() }));
        resources.extend(lost);
        let sizes = sizes(view, &self.rules());
        Observation::Reached(ObservedSite { resources, complete: true, capacity: Capacity::default(), sizes })
    }

    /// Accepts an order. The record is durable when this returns.
    pub async fn apply(&self, action: &Action) -> io::Result<Outcome> {
        let id = action.id();
        let mut state = self.lock().await;
        if let Some(why) = state.unreadable.get(id) {
            return Ok(Outcome::Failed { why: format!("the record cannot be read: {why}") });
        }
        if let Some(refused) = state.orders.taken_over(&action.order) {
            return Ok(refused);
        }
        let mut orders = state.orders.clone();
        if orders.advance(action.order.fence) {
            private::replace_json(&self.home.orders(), &orders)?;
            state.orders = orders;
        }
        let outcome = match state.records.get(id).cloned() {
            Some(record) => self.update(&mut state, &record, action)?,
            None => self.create(&mut state, action).await?,
        };
        self.change();
        Ok(outcome)
    }

    fn update(&self, state: &mut State, record: &Record, action: &Action) -> io::Result<Outcome> {
        if let (Verb::Restart { .. }, None, Some(why)) = (&action.verb, record.vm, &state.blocked) {
            return Ok(Outcome::Refused { why: why.clone(), retry: false });
        }
        let agent_state = state.agent_state(record);
        match record.apply(action, &agent_state, now_ms()) {
            Err(refused) => Ok(refused),
            Ok(update) => {
                if matches!(action.verb, Verb::Restart { .. } | Verb::Replace(_)) {
                    state.history.reset_recoveries();
                    state.stuck = None;
                }
                if update.record != *record {
                    self.save(state, update.record)?;
                }
                Ok(update.outcome)
            }
        }
    }

    async fn create(&self, state: &mut State, action: &Action) -> io::Result<Outcome> {
        let id = action.id();
        if let Some(refused) = state.orders.gone.get(id).and_then(|gone| action.order.too_late(gone)) {
            return Ok(refused);
        }
        match &action.verb {
            Verb::Create(desired) => {
                self.save(state, Record::new(desired.clone(), action.order, now_ms()))?;
                Ok(Outcome::Started)
            }
            Verb::Replace(_) | Verb::Restart { .. } => {
                Ok(Outcome::Refused { why: "the part does not exist".to_owned(), retry: true })
            }
            Verb::Drain { .. } => Ok(Outcome::Done),
            Verb::Delete { .. } => {
                // A VM with its mark may exist without a record.
                let view = match &state.view {
                    Some(view) => view.clone(),
                    None => match self.observe_first().await {
                        Ok(view) => view,
                        Err(why) => return Ok(Outcome::Refused { why, retry: true }),
                    },
                };
                if let Some(record) = update_records(&state.records, &view, None, now_ms()).found(id) {
                    return self.update(state, &record, action);
                }
                self.save_gone(state, id, action.order)?;
                Ok(Outcome::Done)
            }
        }
    }

    /// Observes VMs and services for a caller that cannot wait for the reconciler's first observation.
    async fn observe_first(&self) -> Result<View, String> {
        let cloud = self.cloud();
        match tokio::time::timeout(OBSERVE_WAIT, cloud.observe_partial(&self.federation, &self.site)).await {
            Ok(glanced) => glanced.map_err(|stuck| stuck.why),
            Err(_) => Err(NOT_ANSWERED.to_owned()),
        }
    }

    pub fn save(&self, state: &mut State, record: Record) -> io::Result<()> {
        private::replace_json(&self.home.record(&record.id), &record)?;
        state.records.insert(record.id.clone(), record);
        Ok(())
    }

    fn save_gone(&self, state: &mut State, id: &ResourceId, order: trellis_plan::Order) -> io::Result<()> {
        let mut orders = state.orders.clone();
        orders.gone.insert(id.clone(), order);
        private::replace_json(&self.home.orders(), &orders)?;
        state.orders = orders;
        Ok(())
    }

    /// Deletes the record of a part.
    pub fn delete_record(&self, state: &mut State, id: &ResourceId) -> io::Result<()> {
        let Some(order) = state.records.get(id).map(|record| record.order) else { return Ok(()) };
        self.save_gone(state, id, order)?;
        private::remove(&self.home.record(id))?;
        state.records.remove(id);
        Ok(())
    }
}

impl State {
    /// Status of every part, including parts that this observation discovers.
    pub fn statuses(
        &self,
        view: &View,
        document: Option<&Document>,
        limits: &Limits,
        now_ms: Millis,
    ) -> BTreeMap<ResourceId, Presence> {
        let mut records = self.records.clone();
        for record in update_records(&self.records, view, document, now_ms).changed {
            records.insert(record.id.clone(), record);
        }
        let (stuck, waiting_for) = (self.stuck.as_deref(), self.waiting_for.as_deref());
        let observed = Inputs { view, history: &self.history, limits, stuck, waiting_for, now_ms };
        records.values().map(|record| (record.id.clone(), status(record, &observed))).collect()
    }

    /// Stores the outcome of a decision, and the errors of joining.
    pub fn store_decision(&mut self, decided: &Next, join_errors: &[String], view: &View) {
        if !decided.steps.iter().any(Step::creates) {
            self.refused = None;
        }
        let refused = |transient: bool| self.refused.as_ref().filter(|refused| refused.transient == transient);
        let permanent = refused(false).map(|refused| refused.why.clone());
        let transient_error = refused(true).map(|refused| refused.why.clone());
        let blockers = (!decided.blockers.is_empty()).then(|| decided.blockers.join("; "));
        let joining = (!join_errors.is_empty()).then(|| join_errors.join("; "));
        self.blocked = blockers.or(permanent);
        self.stuck = self.blocked.clone().or_else(|| decided.exhausted.clone());
        self.waiting_for = joining.or_else(|| view.failure()).or(transient_error);
    }

    /// Without a response of the cloud the state of every part is unknown.
    fn unseen(&self) -> Observation {
        let unknown = || Presence::Unknown { why: NOT_ANSWERED.to_owned() };
        let resources = self.records.keys().map(|id| (id.clone(), unknown())).collect();
        Observation::Reached(ObservedSite { resources, complete: false, ..ObservedSite::default() })
    }

    fn agent_state(&self, record: &Record) -> AgentState {
        let (Some(view), Some(id)) = (&self.view, record.vm) else { return AgentState::default() };
        match view.vm(id) {
            None => AgentState { lost: true, ..AgentState::default() },
            Some(vm) => AgentState {
                instance: vm.attribute(TRELLIS_INSTANCE).map(str::to_owned),
                runs: vm.life == Life::Running,
                lost: matches!(vm.life, Life::Stopping | Life::Failed),
            },
        }
    }
}

/// Sizes of the pools that OneFlow scales: the sum of the cardinalities of their roles.
fn sizes(view: &View, rules: &BTreeMap<Name, PoolRules>) -> BTreeMap<Name, u32> {
    let size = |(pool, rules): (&Name, &PoolRules)| {
        let of_pool = |vm: &&VmView| vm.attribute(labels::POOL) == Some(pool.as_str());
        let long = RoleOf::long_name(pool);
        let name = view.vms.iter().find(of_pool).and_then(|vm| vm.role()).unwrap_or(&long);
        let roles = view.services.iter().filter_map(|service| service.role(name));
        let sum = roles.map(|role| role.cardinality).reduce(|sum, more| sum.saturating_add(more))?;
        Some((pool.clone(), if view.services.len() > 1 { sum.min(rules.max) } else { sum }))
    };
    rules.iter().filter_map(size).collect()
}

type Found = (ResourceId, Result<Record, String>);

fn read_records(home: &Home, federation: &Name, site: &Name) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(home.records())? {
        let path = entry?.path();
        let is_record = path.extension().is_some_and(|extension| extension == "json");
        let name = path.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_record);
        let Some(id) = name.and_then(|name| id_of(federation, site, name)) else { continue };
        let record = match private::read_json::<Record>(&path) {
            Ok(Some(record)) if record.version == VERSION => Ok(record),
            Ok(Some(record)) => {
                Err(format!("{} has version {}, and this program supports {VERSION}", path.display(), record.version))
            }
            Ok(None) => continue,
            Err(error) => Err(error.to_string()),
        };
        found.push((id, record));
    }
    Ok(found)
}

fn id_of(federation: &Name, site: &Name, name: &str) -> Option<ResourceId> {
    let text = match name {
        "coordinator" => format!("{federation}/{site}/coordinator"),
        node => format!("{federation}/{site}/node/{node}"),
    };
    ResourceId::try_from(text).ok()
}

/// A driver that is being dropped may hold the lock for a moment.
fn take(lock: &File) -> bool {
    for _ in 0..LOCK_TRIES {
        if flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    false
}

fn locked<T>(mutex: &StdMutex<T>) -> StdGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

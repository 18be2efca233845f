//! All parts of one federation at one site: their records, whose orders count, what was seen last. Takes orders, and tells what
//! is there. The [`crate::keeper`] observes the cloud and executes what the records ask for.

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
    Action, Desired, Millis, Observation, Offer, Orders, Outcome, PoolRules, ResourceId, Seen, Sighting, Spec, Verb,
    Wake,
};
use trellis_spec::Name;

use crate::cloud::{Cloud, Trouble};
use crate::driver::OneSettings;
use crate::home::Home;
use crate::keeper::Pace;
use crate::memory::{Limits, Memory};
use crate::next::{Heard, Next, Step, settle};
use crate::record::{Record, Told, VERSION};
use crate::render::RoleOf;
use crate::render::labels;
use crate::sight::{Looked, sight};
use crate::view::{Life, View, VmSeen};

const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Maximum wait of a caller for a new observation, shorter than a controller's timeout for a driver. If the cloud is
/// slower, the caller gets the last observation.
const OBSERVE_WAIT: Duration = Duration::from_secs(2);
/// A cloud without any answer for this long is unreachable. Real ones take up to 14 s under load.
const MAX_SILENCE: Duration = Duration::from_secs(60);
const NOT_ANSWERED: &str = "the cloud has not answered yet";

pub struct Fleet {
    pub federation: Name,
    pub site: Name,
    pub home: Home,
    /// As the document has it now.
    cloud: StdMutex<Arc<Cloud>>,
    pub limits: Limits,
    pub wake: Wake,
    /// The authorities of a coordinator that another driver made.
    pub trust: Option<PathBuf>,
    pub pace: Pace,
    /// Wakes the keeper for an observation.
    pub woken: Notify,
    /// The desired state changed: the next observation must be a full one.
    changed: AtomicBool,
    /// Number of finished observations, including failed ones.
    looks: watch::Sender<u64>,
    state: Mutex<State>,
    /// Desired state of the document at this site; `None` until a controller sends it.
    heard: StdMutex<Option<Heard>>,
    /// Held as long as the fleet is there.
    _lock: File,
}

pub struct State {
    pub records: BTreeMap<ResourceId, Record>,
    /// Parts whose records cannot be read. Nobody knows what they are.
    pub unreadable: BTreeMap<ResourceId, String>,
    pub orders: Orders,
    pub memory: Memory,
    /// What stands in the way of parts that have no VM, and does not go by itself.
    pub trouble: Option<String>,
    /// The part of `trouble` that a retry does not resolve: the document or the site must change.
    pub blocked: Option<String>,
    /// Why parts without a VM or join token wait. It may resolve by itself.
    pub hindrance: Option<String>,
    /// Error of the last create step, until that step succeeds or is no longer needed.
    pub refused: Option<Trouble>,
    /// As it was seen last.
    pub view: Option<View>,
    pub viewed: Option<Instant>,
    /// Time of the last answer of the cloud.
    pub answered: Option<Instant>,
    /// Error of the last observation.
    pub failure: Option<Trouble>,
}

impl Fleet {
    /// Reads what earlier drivers left. `Err`: why nothing can be done here.
    pub fn open(settings: &OneSettings, federation: &Name, site: &Name, cloud: &Arc<Cloud>) -> io::Result<Fleet> {
        let home = Home::new(&settings.directory, federation, site);
        private::make_directory(&home.records())?;
        let lock = File::create(home.lock())?;
        if !take(&lock) {
            let text = format!("another control plane is at work in {}", home.site().display());
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
            memory: Memory::default(),
            trouble: None,
            blocked: None,
            hindrance: None,
            refused: None,
            view: None,
            viewed: None,
            answered: None,
            failure: None,
        };
        Ok(Fleet {
            federation: federation.clone(),
            site: site.clone(),
            home,
            cloud: StdMutex::new(Arc::clone(cloud)),
            limits: settings.limits,
            wake: Arc::clone(&settings.wake),
            trust: (settings.trust)(federation),
            pace: settings.pace,
            woken: Notify::new(),
            changed: AtomicBool::new(true),
            looks: watch::Sender::new(0),
            state: Mutex::new(state),
            heard: StdMutex::default(),
            _lock: lock,
        })
    }

    pub async fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().await
    }

    pub fn cloud(&self) -> Arc<Cloud> {
        Arc::clone(&locked(&self.cloud))
    }

    /// The document may have another network, or another file of who calls.
    pub fn move_to(&self, cloud: &Arc<Cloud>) {
        let mut known = locked(&self.cloud);
        if known.one != cloud.one {
            *known = Arc::clone(cloud);
            self.change();
        }
    }

    /// The desired state changed: wakes the keeper for a full observation.
    fn change(&self) {
        self.changed.store(true, Ordering::Relaxed);
        self.woken.notify_one();
    }

    /// Whether the desired state changed since the last call.
    pub fn take_change(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }

    /// Counts a finished observation and notifies its subscribers.
    pub fn looked(&self) {
        self.looks.send_modify(|looks| *looks += 1);
    }

    /// Stores the desired state of the document at this site.
    pub fn hear(&self, wanted: &[&Desired]) {
        let wanted: Heard = wanted.iter().map(|desired| (desired.id.clone(), (*desired).clone())).collect();
        let mut known = locked(&self.heard);
        if known.as_ref() != Some(&wanted) {
            *known = Some(wanted);
            self.change();
        }
    }

    /// The VM of a part, as it was seen last.
    pub async fn vm_of(&self, id: &ResourceId) -> Option<VmSeen> {
        let state = self.lock().await;
        state.view.as_ref()?.vm(state.records.get(id)?.vm?).cloned()
    }

    pub fn heard(&self) -> Option<Heard> {
        locked(&self.heard).clone()
    }

    /// Scaling rules that OneFlow evaluates, by pool.
    pub fn rules(&self) -> BTreeMap<Name, PoolRules> {
        let heard = locked(&self.heard);
        let rules = heard.iter().flatten().filter_map(|(id, desired)| match &desired.spec {
            Spec::Node(spec) => Some((id.node_key()?.pool.clone(), spec.rules.clone()?)),
            Spec::Coordinator(_) => None,
        });
        rules.collect()
    }

    pub async fn observe(&self, cloud: &Cloud) -> Observation {
        if cloud.one != self.cloud().one {
            // A plan of a document with another connection: the keeper does not observe that cloud.
            return match cloud.glance(&self.federation, &self.site).await {
                Ok(view) => self.seen(&*self.lock().await, &view),
                Err(Trouble { why, .. }) => {
                    cloud.forget().await;
                    Observation::Unreachable { why }
                }
            };
        }
        self.await_look().await;
        let state = self.lock().await;
        let silent = state.answered.is_none_or(|at| at.elapsed() > MAX_SILENCE);
        match (&state.view, &state.failure) {
            (_, Some(failure)) if silent || !failure.passes => Observation::Unreachable { why: failure.why.clone() },
            (Some(_), None) if silent => {
                let why = format!("no answer for {} s", MAX_SILENCE.as_secs());
                Observation::Unreachable { why }
            }
            (Some(view), _) => self.seen(&state, view),
            (None, _) => state.unseen(),
        }
    }

    /// Waits for the next observation, at most [`OBSERVE_WAIT`]. Returns at once if the last one is recent.
    async fn await_look(&self) {
        let mut looks = self.looks.subscribe();
        let is_fresh = |at: Instant| at.elapsed() <= self.pace.resting + self.pace.resting / 2;
        if self.lock().await.viewed.is_some_and(is_fresh) {
            return;
        }
        looks.mark_unchanged();
        self.woken.notify_one();
        let _ = tokio::time::timeout(OBSERVE_WAIT, looks.changed()).await;
    }

    fn seen(&self, state: &State, view: &View) -> Observation {
        let heard = self.heard();
        let mut resources = state.sightings(view, heard.as_ref(), &self.limits, now_ms());
        let lost = state.unreadable.iter().map(|(id, why)| (id.clone(), Sighting::Unknown { why: why.clone() }));
        resources.extend(lost);
        let sizes = sizes(view, &self.rules());
        Observation::Seen(Seen { resources, complete: true, offer: Offer::default(), sizes })
    }

    /// Takes an order. It is on disk before anything is done.
    pub async fn apply(&self, action: &Action) -> io::Result<Outcome> {
        let id = action.id();
        let mut state = self.lock().await;
        if let Some(why) = state.unreadable.get(id) {
            return Ok(Outcome::Failed { why: format!("nobody knows what it is: {why}") });
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
            Some(record) => self.turn(&mut state, &record, action)?,
            None => self.begin(&mut state, action).await?,
        };
        self.change();
        Ok(outcome)
    }

    fn turn(&self, state: &mut State, record: &Record, action: &Action) -> io::Result<Outcome> {
        if let (Verb::Restart { .. }, None, Some(why)) = (&action.verb, record.vm, &state.blocked) {
            return Ok(Outcome::Refused { why: why.clone(), retry: false });
        }
        let told = state.told(record);
        match record.apply(action, &told, now_ms()) {
            Err(refused) => Ok(refused),
            Ok(turn) => {
                if matches!(action.verb, Verb::Restart { .. } | Verb::Replace(_)) {
                    state.memory.forgive();
                    state.trouble = None;
                }
                if turn.record != *record {
                    self.note(state, turn.record)?;
                }
                Ok(turn.outcome)
            }
        }
    }

    async fn begin(&self, state: &mut State, action: &Action) -> io::Result<Outcome> {
        let id = action.id();
        if let Some(refused) = state.orders.gone.get(id).and_then(|gone| action.order.too_late(gone)) {
            return Ok(refused);
        }
        match &action.verb {
            Verb::Create(desired) => {
                self.note(state, Record::new(desired.clone(), action.order, now_ms()))?;
                Ok(Outcome::Started)
            }
            Verb::Replace(_) | Verb::Restart { .. } => {
                Ok(Outcome::Refused { why: "there is none".to_owned(), retry: true })
            }
            Verb::Drain { .. } => Ok(Outcome::Done),
            Verb::Delete { .. } => {
                // A VM with its mark may be there although nobody remembers it.
                let view = match &state.view {
                    Some(view) => view.clone(),
                    None => match self.first_glance().await {
                        Ok(view) => view,
                        Err(why) => return Ok(Outcome::Refused { why, retry: true }),
                    },
                };
                if let Some(record) = settle(&state.records, &view, None, now_ms()).found(id) {
                    return self.turn(state, &record, action);
                }
                self.note_gone(state, id, action.order)?;
                Ok(Outcome::Done)
            }
        }
    }

    /// Observes VMs and services for a caller that cannot wait for the keeper's first observation.
    async fn first_glance(&self) -> Result<View, String> {
        let cloud = self.cloud();
        match tokio::time::timeout(OBSERVE_WAIT, cloud.glance(&self.federation, &self.site)).await {
            Ok(glanced) => glanced.map_err(|trouble| trouble.why),
            Err(_) => Err(NOT_ANSWERED.to_owned()),
        }
    }

    pub fn note(&self, state: &mut State, record: Record) -> io::Result<()> {
        private::replace_json(&self.home.record(&record.id), &record)?;
        state.records.insert(record.id.clone(), record);
        Ok(())
    }

    fn note_gone(&self, state: &mut State, id: &ResourceId, order: trellis_plan::Order) -> io::Result<()> {
        let mut orders = state.orders.clone();
        orders.gone.insert(id.clone(), order);
        private::replace_json(&self.home.orders(), &orders)?;
        state.orders = orders;
        Ok(())
    }

    /// Nothing is left of a part. Its record goes last.
    pub fn note_over(&self, state: &mut State, id: &ResourceId) -> io::Result<()> {
        let Some(order) = state.records.get(id).map(|record| record.order) else { return Ok(()) };
        self.note_gone(state, id, order)?;
        private::remove(&self.home.record(id))?;
        state.records.remove(id);
        Ok(())
    }
}

impl State {
    /// What is told of every part, with what this look shows for the first time.
    pub fn sightings(
        &self,
        view: &View,
        heard: Option<&Heard>,
        limits: &Limits,
        now_ms: Millis,
    ) -> BTreeMap<ResourceId, Sighting> {
        let mut records = self.records.clone();
        for record in settle(&self.records, view, heard, now_ms).changed {
            records.insert(record.id.clone(), record);
        }
        let (trouble, hindrance) = (self.trouble.as_deref(), self.hindrance.as_deref());
        let looked = Looked { view, memory: &self.memory, limits, trouble, hindrance, now_ms };
        records.values().map(|record| (record.id.clone(), sight(record, &looked))).collect()
    }

    /// Stores the outcome of a decision, and the errors of joining.
    pub fn take_in(&mut self, decided: &Next, waits: &[String], view: &View) {
        if !decided.steps.iter().any(Step::makes) {
            self.refused = None;
        }
        let refused = |passes: bool| self.refused.as_ref().filter(|refused| refused.passes == passes);
        let lasting = refused(false).map(|refused| refused.why.clone());
        let passing = refused(true).map(|refused| refused.why.clone());
        let troubles = (!decided.troubles.is_empty()).then(|| decided.troubles.join("; "));
        let joining = (!waits.is_empty()).then(|| waits.join("; "));
        self.blocked = troubles.or(lasting);
        self.trouble = self.blocked.clone().or_else(|| decided.gave_up.clone());
        self.hindrance = joining.or_else(|| view.failure()).or(passing);
    }

    /// The cloud has not answered yet: the state of every part is unknown.
    fn unseen(&self) -> Observation {
        let unknown = || Sighting::Unknown { why: NOT_ANSWERED.to_owned() };
        let resources = self.records.keys().map(|id| (id.clone(), unknown())).collect();
        Observation::Seen(Seen { resources, complete: false, ..Seen::default() })
    }

    fn told(&self, record: &Record) -> Told {
        let (Some(view), Some(id)) = (&self.view, record.vm) else { return Told::default() };
        match view.vm(id) {
            None => Told { lost: true, ..Told::default() },
            Some(vm) => Told {
                instance: vm.attribute(TRELLIS_INSTANCE).map(str::to_owned),
                runs: vm.life == Life::Runs,
                lost: matches!(vm.life, Life::Stops | Life::Failed),
            },
        }
    }
}

/// Sizes of the pools that OneFlow scales: the cardinality summed over all services with that role.
fn sizes(view: &View, rules: &BTreeMap<Name, PoolRules>) -> BTreeMap<Name, u32> {
    let size = |(pool, rules): (&Name, &PoolRules)| {
        let of_pool = |vm: &&VmSeen| vm.attribute(labels::POOL) == Some(pool.as_str());
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
                Err(format!("{} is of form {}, and this program knows {VERSION}", path.display(), record.version))
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

/// A driver that is just being dropped may hold its lock for a moment.
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

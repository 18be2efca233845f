//! The driver port on this machine. A newly opened driver adopts the processes that an earlier one started.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use rustix::fs::{FlockOperation, flock};
use tokio::task::JoinSet;
use trellis_clock::now_ms;
use trellis_files::private;
use trellis_plan::{
    Action, Call, Capabilities, Capacity, Desired, Driver, DriverContext, DriverKind, Observation, ObservedSite,
    OpenDriver, Order, Orders, Outcome, Presence, ResourceId, Spec, Verb, Wake,
};
use trellis_spec::{LocalSite, Name, Site, SiteConfig, SiteKind, Tls};

use crate::home::Home;
use crate::mark::{Marked, scan};
use crate::observation::{infer_idle, observe};
use crate::part::{Part, Running, State, blocking, write};
use crate::process::Process;
use crate::recipe::admin_token;
use crate::record::Record;
use crate::shared::{Claim, Shared};
use crate::{gpus, launch, reconciler, tls};

/// Limit of concurrent probes of parts.
const MAX_CONCURRENT_PROBES: usize = 64;
/// Interval between checks of the certificates. Each is renewed when a third of its validity is left.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3600);

const MAX_LOCK_ATTEMPTS: u32 = 50;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub struct LocalSettings {
    /// The home of the control plane.
    pub directory: PathBuf,
    /// Our own program. The driver starts it, and through it all other programs.
    pub program: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the directory {path} cannot be used")]
    Directory { path: PathBuf, source: io::Error },
    #[error("another control plane uses {path}")]
    InUse { path: PathBuf },
    #[error("the processes of this machine cannot be listed")]
    Processes { source: io::Error },
}

pub struct LocalDriver {
    shared: Arc<Shared>,
    /// Parts whose records cannot be read, so that their desired state is unknown.
    unreadable: Mutex<BTreeSet<ResourceId>>,
    reconcilers: Mutex<JoinSet<()>>,
    /// Locks the home for the lifetime of the driver.
    _lock: File,
}

impl LocalDriver {
    /// Adopts existing parts and resumes their actions. Needs a runtime. `wake` is called with the name of the federation when a
    /// part becomes ready, ends or is removed.
    pub fn open(settings: LocalSettings, wake: Wake) -> Result<LocalDriver, OpenError> {
        let failed = |path: &PathBuf| {
            let path = path.clone();
            move |source| OpenError::Directory { path, source }
        };
        let directory = &settings.directory;
        private::make_directory(directory).map_err(failed(directory))?;
        let home = Home::new(directory.canonicalize().map_err(failed(directory))?);
        private::make_directory(&home.federations()).map_err(failed(directory))?;
        let lock = File::create(home.lock()).map_err(failed(directory))?;
        if !acquire(&lock) {
            return Err(OpenError::InUse { path: settings.directory });
        }
        let marked = scan(&home.hash()).map_err(|source| OpenError::Processes { source })?;
        let records = home.records().map_err(failed(directory))?;
        let program = std::path::absolute(&settings.program).unwrap_or(settings.program);
        let shared = Arc::new(Shared::new(home, program, wake));
        let (unreadable, reconcilers) = (Mutex::default(), Mutex::new(JoinSet::new()));
        let driver = LocalDriver { shared, unreadable, reconcilers, _lock: lock };
        driver.adopt_all(&records, marked);
        driver.spawn_renewal();
        Ok(driver)
    }

    fn coordinator(&self, federation: &Name) -> Option<Desired> {
        let coordinator = self.shared.coordinator(federation)?;
        match coordinator.peek() {
            Some(state) => state.record.desired.clone(),
            // Another task is changing the part: read what was written last.
            None => Record::read(&self.shared.home.record(&coordinator.id)).ok()??.desired,
        }
    }

    /// Adopts the parts of earlier drivers: by their records, and by marked processes if a record is missing.
    fn adopt_all(&self, records: &[PathBuf], marked: Vec<Marked>) {
        let mut programs: BTreeMap<ResourceId, Vec<Marked>> = BTreeMap::new();
        for marked in marked.into_iter().filter(|marked| marked.is_program) {
            programs.entry(marked.mark.id.clone()).or_default().push(marked);
        }
        for path in records {
            let Some(id) = Home::id_of(path) else {
                tracing::warn!("{} is not the record of a part; ignored", path.display());
                continue;
            };
            match Record::read(path) {
                Ok(Some(record)) => self.adopt(record, programs.remove(&id).unwrap_or_default()),
                // A record is written before anything is started, so the part was never created, or is removed.
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(part = %id, "{error}");
                    programs.remove(&id);
                    locked(&self.unreadable).insert(id);
                }
            }
        }
        for (id, marked) in programs {
            let instance = marked.iter().map(|marked| marked.mark.instance).max().unwrap_or_default();
            tracing::warn!(part = %id, "found a running process without a record");
            self.adopt(Record::without_desired(id, instance, now_ms()), marked);
        }
    }

    fn adopt(&self, record: Record, marked: Vec<Marked>) {
        let mut running: Vec<Running> = marked
            .into_iter()
            .filter_map(|marked| {
                let process = Process::find(marked.process)?;
                Some(Running { instance: marked.mark.instance, role: marked.mark.role, process })
            })
            .collect();
        // A program may hide its mark; its process is in the record then.
        for (role, identity) in record.processes.iter().enumerate() {
            if !running.iter().any(|running| running.process.identity == *identity) {
                let process = Process::find(identity.clone());
                running.extend(process.map(|process| Running { instance: record.instance, role: Some(role), process }));
            }
        }
        let mut state = State::new(record, running);
        let spec = state.record.desired.as_ref().map(|desired| &desired.spec);
        let present = spec.and_then(|spec| launch::present(&self.shared, &state.record, spec).ok());
        state.recipe = present.map(|(_, recipe)| Arc::new(recipe));
        self.insert(Part::new(state.record.id.clone(), state));
    }

    fn insert(&self, part: Arc<Part>) {
        let claim = part.peek().map(|state| Claim { ports: state.record.ports, gpus: state.record.gpus.clone() });
        self.shared.insert(&part, claim.unwrap_or_default());
        let mut reconcilers = locked(&self.reconcilers);
        while reconcilers.try_join_next().is_some() {}
        reconcilers.spawn(reconciler::run(Arc::clone(&self.shared), part));
    }

    /// Renews certificates until the driver is dropped.
    fn spawn_renewal(&self) {
        let shared = Arc::clone(&self.shared);
        locked(&self.reconcilers).spawn(async move {
            loop {
                tokio::time::sleep(RENEWAL_INTERVAL).await;
                for coordinator in shared.parts(|id| id.node_key().is_none()) {
                    let desired = coordinator.lock().await.record.desired.clone();
                    let Some(Spec::Coordinator(spec)) = desired.map(|desired| desired.spec) else { continue };
                    if spec.tls != Tls::Auto {
                        continue;
                    }
                    let (shared, federation) = (Arc::clone(&shared), coordinator.id.federation.clone());
                    let issue = move || {
                        tls::issue(&shared.home, &federation, &spec.endpoints.advertise).map_err(io::Error::other)
                    };
                    if let Err(error) = blocking(issue).await {
                        tracing::warn!(part = %coordinator.id, "cannot renew the certificate: {error}");
                    }
                }
            }
        });
    }

    /// Reads unreadable records again, since the user may have repaired them.
    fn retry_unreadable(&self, federation: &Name, site: &Name) -> BTreeMap<ResourceId, Presence> {
        let is_of_site = |id: &&ResourceId| id.federation == *federation && id.site == *site;
        let ids: Vec<ResourceId> = locked(&self.unreadable).iter().filter(is_of_site).cloned().collect();
        let mut unknown = BTreeMap::new();
        for id in ids {
            match Record::read(&self.shared.home.record(&id)) {
                Err(error) => {
                    unknown.insert(id, Presence::Unknown { why: error.to_string() });
                    continue;
                }
                Ok(None) => {}
                Ok(Some(record)) => {
                    let marked = scan(&self.shared.home.hash()).unwrap_or_default();
                    let programs = marked.into_iter().filter(|marked| marked.mark.id == id && marked.is_program);
                    self.adopt(record, programs.collect());
                }
            }
            locked(&self.unreadable).remove(&id);
        }
        unknown
    }

    async fn observe_site(&self, federation: &Name, site: &Name) -> ObservedSite {
        let mut resources = self.retry_unreadable(federation, site);
        let parts = self.shared.parts(|id| id.federation == *federation && id.site == *site);
        let observe_part = |part: Arc<Part>| async move {
            let presence = observe(&self.shared, &part).await;
            presence.map(|presence| (part.id.clone(), presence))
        };
        let mut observations = stream::iter(parts).map(observe_part).buffer_unordered(MAX_CONCURRENT_PROBES);
        while let Some(observed) = observations.next().await {
            resources.extend(observed);
        }
        infer_idle(&mut resources);
        ObservedSite {
            resources,
            complete: true,
            capacity: Capacity { free_nodes: None, gpus: Some(gpus::count()) },
            sizes: BTreeMap::new(),
        }
    }

    async fn execute(&self, action: &Action) -> io::Result<Outcome> {
        let id = action.id();
        if locked(&self.unreadable).contains(id) {
            let why = format!("its desired state is unknown: {} cannot be read", self.shared.home.record(id).display());
            return Ok(Outcome::Failed { why });
        }
        let orders = self.shared.orders(&id.federation)?;
        let mut orders = orders.lock().await;
        if let Some(refused) = orders.taken_over(&action.order) {
            return Ok(refused);
        }
        let mut latest = orders.clone();
        if latest.advance(action.order.fence) {
            self.write_orders(&id.federation, &latest).await?;
            *orders = latest;
        }
        if let Some(part) = self.shared.part(id) {
            drop(orders);
            return Ok(part.apply(&self.shared.home, action).await);
        }
        if let Some(refused) = orders.gone.get(id).and_then(|gone| action.order.too_late(gone)) {
            return Ok(refused);
        }
        match &action.verb {
            Verb::Create(desired) => self.create(desired, action.order).await,
            Verb::Replace(_) | Verb::Restart { .. } => {
                Ok(Outcome::Refused { why: "it does not exist".to_owned(), retry: true })
            }
            Verb::Drain { .. } => Ok(Outcome::Done),
            Verb::Delete { .. } => {
                let mut latest = orders.clone();
                latest.gone.insert(id.clone(), action.order);
                self.write_orders(&id.federation, &latest).await?;
                *orders = latest;
                Ok(Outcome::Done)
            }
        }
    }

    async fn write_orders(&self, federation: &Name, orders: &Orders) -> io::Result<()> {
        let (orders, path, directory) =
            (orders.clone(), self.shared.home.orders(federation), self.shared.home.federation(federation));
        blocking(move || {
            private::make_directory(&directory)?;
            private::replace_json(&path, &orders)
        })
        .await
    }

    /// The record is written and fsynced before the part is started.
    async fn create(&self, desired: &Desired, order: Order) -> io::Result<Outcome> {
        let record = Record::new(desired.clone(), order, now_ms());
        let directory = self.shared.home.part(&desired.id);
        blocking(move || private::make_directory(&directory)).await?;
        write(&self.shared.home, &record).await?;
        let state = State { is_new: true, ..State::new(record, Vec::new()) };
        self.insert(Part::new(desired.id.clone(), state));
        Ok(Outcome::Started)
    }
}

impl Driver for LocalDriver {
    fn capabilities(&self) -> Capabilities {
        Local.capabilities()
    }

    fn observe<'a>(&'a self, federation: &'a Name, site: &'a Name) -> Call<'a, Observation> {
        Box::pin(async move { Observation::Reached(self.observe_site(federation, site).await) })
    }

    fn apply<'a>(&'a self, action: &'a Action) -> Call<'a, Outcome> {
        Box::pin(async move {
            let outcome = self.execute(action).await;
            outcome.unwrap_or_else(|error| Outcome::Failed { why: error.to_string() })
        })
    }
}

impl OpenDriver for LocalDriver {
    fn site(self: Arc<Self>, _site: &Site) -> Arc<dyn Driver> {
        self
    }

    fn has_parts(&self, federation: &Name, site: &Name) -> bool {
        !self.shared.parts(|id| id.federation == *federation && id.site == *site).is_empty()
    }

    fn log_path(&self, id: &ResourceId) -> Option<PathBuf> {
        Some(self.shared.home.log(id))
    }

    /// Models are kept when the federation is deleted.
    fn models_path(&self, federation: &Name) -> Option<PathBuf> {
        Some(self.shared.home.models(federation))
    }

    fn trust_path(&self, federation: &Name) -> Option<PathBuf> {
        let tls = self.coordinator(federation).and_then(|desired| match desired.spec {
            Spec::Coordinator(spec) => Some(spec.tls),
            Spec::Node(_) => None,
        })?;
        tls::trust(&self.shared.home, federation, &tls)
    }

    fn token_path(&self, federation: &Name) -> Option<PathBuf> {
        let desired = self.coordinator(federation)?;
        let Spec::Coordinator(spec) = &desired.spec else { return None };
        Some(admin_token(spec, &self.shared.home.state(&desired.id))).filter(|path| path.exists())
    }
}

/// The local driver in the registry of drivers.
#[derive(Debug)]
pub struct Local;

impl DriverKind for Local {
    fn site_kind(&self) -> SiteKind {
        SiteKind::of::<LocalSite>()
    }

    fn open(&self, context: DriverContext) -> Result<Arc<dyn OpenDriver>, trellis_plan::OpenError> {
        let settings = LocalSettings { directory: context.directory, program: context.program };
        Ok(Arc::new(LocalDriver::open(settings, context.wake)?))
    }

    fn capabilities(&self) -> Capabilities {
        // Only the kernel's support is known here. Nodes check whether they are permitted to set limits.
        Capabilities { drain: true, limits: has_cgroups(), gpu: true, images: false }
    }

    /// All sites of this kind are the machine of the control plane.
    fn is_same_connection(&self, _one: &SiteConfig, _other: &SiteConfig) -> bool {
        true
    }
}

/// A process that the previous driver was starting may hold the lock until it has executed its own program.
fn acquire(lock: &File) -> bool {
    for _ in 0..MAX_LOCK_ATTEMPTS {
        if flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        std::thread::sleep(LOCK_RETRY_DELAY);
    }
    false
}

/// Whether the kernel supports cgroups v2.
fn has_cgroups() -> bool {
    std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The driver port on this machine. Whoever opens it finds again what was begun, whatever became of who began it.

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
use crate::part::{Part, Running, State, blocking, write};
use crate::process::Process;
use crate::recipe::admin_token;
use crate::record::Record;
use crate::sight::{sight, tell_idle};
use crate::world::{Claim, World};
use crate::{gpus, keeper, launch, tls};

/// Parts that are asked at the same time.
const ASKED_AT_ONCE: usize = 64;
/// Certificates are looked at so often; each is renewed when a third of its time is left.
const RENEWAL: Duration = Duration::from_secs(3600);

const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub struct LocalSettings {
    /// The home of the control plane.
    pub directory: PathBuf,
    /// Our own program: what is started, and what starts others.
    pub program: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the directory {path} cannot be used")]
    Directory { path: PathBuf, source: io::Error },
    #[error("another control plane is at work in {path}")]
    InUse { path: PathBuf },
    #[error("the processes of this machine cannot be listed")]
    Processes { source: io::Error },
}

pub struct LocalDriver {
    world: Arc<World>,
    /// Parts whose records cannot be read. Nobody knows what they are.
    unreadable: Mutex<BTreeSet<ResourceId>>,
    keepers: Mutex<JoinSet<()>>,
    /// Held as long as the driver is there.
    _lock: File,
}

impl LocalDriver {
    /// Finds what is there, and goes on with what was begun. Needs a runtime. `wake` is called with the name of a
    /// federation of which a part became ready, ended or went.
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
        if !take(&lock) {
            return Err(OpenError::InUse { path: settings.directory });
        }
        let marked = scan(&home.hash()).map_err(|source| OpenError::Processes { source })?;
        let records = home.records().map_err(failed(directory))?;
        let program = std::path::absolute(&settings.program).unwrap_or(settings.program);
        let world = Arc::new(World::new(home, program, wake));
        let (unreadable, keepers) = (Mutex::default(), Mutex::new(JoinSet::new()));
        let driver = LocalDriver { world, unreadable, keepers, _lock: lock };
        driver.find(&records, marked);
        driver.renew();
        Ok(driver)
    }

    fn coordinator(&self, federation: &Name) -> Option<Desired> {
        let coordinator = self.world.coordinator(federation)?;
        match coordinator.peek() {
            Some(state) => state.record.desired.clone(),
            // It is just being changed: what was written last counts.
            None => Record::read(&self.world.home.record(&coordinator.id)).ok()??.desired,
        }
    }

    /// Takes up what earlier drivers left: by records, and by marks where a record is missing.
    fn find(&self, records: &[PathBuf], marked: Vec<Marked>) {
        let mut programs: BTreeMap<ResourceId, Vec<Marked>> = BTreeMap::new();
        for marked in marked.into_iter().filter(|marked| marked.is_program) {
            programs.entry(marked.mark.id.clone()).or_default().push(marked);
        }
        for path in records {
            let Some(id) = Home::id_of(path) else {
                tracing::warn!("{} is no part, and left alone", path.display());
                continue;
            };
            match Record::read(path) {
                Ok(Some(record)) => self.take_up(record, programs.remove(&id).unwrap_or_default()),
                // Nothing is begun before there is a record: it was never made, or is gone.
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
            tracing::warn!(part = %id, "it runs, and there is no record of it");
            self.take_up(Record::found(id, instance, now_ms()), marked);
        }
    }

    fn take_up(&self, record: Record, marked: Vec<Marked>) {
        let mut running: Vec<Running> = marked
            .into_iter()
            .filter_map(|marked| {
                let process = Process::find(marked.process)?;
                Some(Running { instance: marked.mark.instance, role: marked.mark.role, process })
            })
            .collect();
        // A program may hide its mark; it was noted then.
        for (role, identity) in record.processes.iter().enumerate() {
            if !running.iter().any(|running| running.process.identity == *identity) {
                let process = Process::find(identity.clone());
                running.extend(process.map(|process| Running { instance: record.instance, role: Some(role), process }));
            }
        }
        let mut state = State::new(record, running);
        let spec = state.record.desired.as_ref().map(|desired| &desired.spec);
        let present = spec.and_then(|spec| launch::present(&self.world, &state.record, spec).ok());
        state.recipe = present.map(|(_, recipe)| Arc::new(recipe));
        self.insert(Part::new(state.record.id.clone(), state));
    }

    fn insert(&self, part: Arc<Part>) {
        let claim = part.peek().map(|state| Claim { ports: state.record.ports, gpus: state.record.gpus.clone() });
        self.world.insert(&part, claim.unwrap_or_default());
        let mut keepers = locked(&self.keepers);
        while keepers.try_join_next().is_some() {}
        keepers.spawn(keeper::keep(Arc::clone(&self.world), part));
    }

    /// Renews certificates, as long as the driver is there.
    fn renew(&self) {
        let world = Arc::clone(&self.world);
        locked(&self.keepers).spawn(async move {
            loop {
                tokio::time::sleep(RENEWAL).await;
                for coordinator in world.parts(|id| id.node_key().is_none()) {
                    let desired = coordinator.lock().await.record.desired.clone();
                    let Some(Spec::Coordinator(spec)) = desired.map(|desired| desired.spec) else { continue };
                    if spec.tls != Tls::Auto {
                        continue;
                    }
                    let (world, federation) = (Arc::clone(&world), coordinator.id.federation.clone());
                    let issue = move || {
                        tls::issue(&world.home, &federation, &spec.endpoints.advertise).map_err(io::Error::other)
                    };
                    if let Err(error) = blocking(issue).await {
                        tracing::warn!(part = %coordinator.id, "its certificate is not renewed: {error}");
                    }
                }
            }
        });
    }

    /// Looks again at records that could not be read: somebody may have mended them.
    fn look_again(&self, federation: &Name, site: &Name) -> BTreeMap<ResourceId, Presence> {
        let of_here = |id: &&ResourceId| id.federation == *federation && id.site == *site;
        let ids: Vec<ResourceId> = locked(&self.unreadable).iter().filter(of_here).cloned().collect();
        let mut unknown = BTreeMap::new();
        for id in ids {
            match Record::read(&self.world.home.record(&id)) {
                Err(error) => {
                    unknown.insert(id, Presence::Unknown { why: error.to_string() });
                    continue;
                }
                Ok(None) => {}
                Ok(Some(record)) => {
                    let marked = scan(&self.world.home.hash()).unwrap_or_default();
                    let programs = marked.into_iter().filter(|marked| marked.mark.id == id && marked.is_program);
                    self.take_up(record, programs.collect());
                }
            }
            locked(&self.unreadable).remove(&id);
        }
        unknown
    }

    async fn seen(&self, federation: &Name, site: &Name) -> ObservedSite {
        let mut resources = self.look_again(federation, site);
        let parts = self.world.parts(|id| id.federation == *federation && id.site == *site);
        let look = |part: Arc<Part>| async move {
            let presence = sight(&self.world, &part).await;
            presence.map(|presence| (part.id.clone(), presence))
        };
        let mut looks = stream::iter(parts).map(look).buffer_unordered(ASKED_AT_ONCE);
        while let Some(seen) = looks.next().await {
            resources.extend(seen);
        }
        tell_idle(&mut resources);
        ObservedSite {
            resources,
            complete: true,
            capacity: Capacity { free_nodes: None, gpus: Some(gpus::count()) },
            sizes: BTreeMap::new(),
        }
    }

    async fn carry_out(&self, action: &Action) -> io::Result<Outcome> {
        let id = action.id();
        if locked(&self.unreadable).contains(id) {
            let why = format!("nobody knows what it is: {} cannot be read", self.world.home.record(id).display());
            return Ok(Outcome::Failed { why });
        }
        let orders = self.world.orders(&id.federation)?;
        let mut orders = orders.lock().await;
        if let Some(refused) = orders.taken_over(&action.order) {
            return Ok(refused);
        }
        let mut latest = orders.clone();
        if latest.advance(action.order.fence) {
            self.note_orders(&id.federation, &latest).await?;
            *orders = latest;
        }
        if let Some(part) = self.world.part(id) {
            drop(orders);
            return Ok(part.apply(&self.world.home, action).await);
        }
        if let Some(refused) = orders.gone.get(id).and_then(|gone| action.order.too_late(gone)) {
            return Ok(refused);
        }
        match &action.verb {
            Verb::Create(desired) => self.create(desired, action.order).await,
            Verb::Replace(_) | Verb::Restart { .. } => {
                Ok(Outcome::Refused { why: "there is none".to_owned(), retry: true })
            }
            Verb::Drain { .. } => Ok(Outcome::Done),
            Verb::Delete { .. } => {
                let mut latest = orders.clone();
                latest.gone.insert(id.clone(), action.order);
                self.note_orders(&id.federation, &latest).await?;
                *orders = latest;
                Ok(Outcome::Done)
            }
        }
    }

    async fn note_orders(&self, federation: &Name, orders: &Orders) -> io::Result<()> {
        let (orders, path, directory) =
            (orders.clone(), self.world.home.orders(federation), self.world.home.federation(federation));
        blocking(move || {
            private::make_directory(&directory)?;
            private::replace_json(&path, &orders)
        })
        .await
    }

    /// What is to be is on disk before anything is.
    async fn create(&self, desired: &Desired, order: Order) -> io::Result<Outcome> {
        let record = Record::new(desired.clone(), order, now_ms());
        let directory = self.world.home.part(&desired.id);
        blocking(move || private::make_directory(&directory)).await?;
        write(&self.world.home, &record).await?;
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
        Box::pin(async move { Observation::Reached(self.seen(federation, site).await) })
    }

    fn apply<'a>(&'a self, action: &'a Action) -> Call<'a, Outcome> {
        Box::pin(async move {
            let outcome = self.carry_out(action).await;
            outcome.unwrap_or_else(|error| Outcome::Failed { why: error.to_string() })
        })
    }
}

impl OpenDriver for LocalDriver {
    fn site(self: Arc<Self>, _site: &Site) -> Arc<dyn Driver> {
        self
    }

    fn has_parts(&self, federation: &Name, site: &Name) -> bool {
        !self.world.parts(|id| id.federation == *federation && id.site == *site).is_empty()
    }

    fn log_path(&self, id: &ResourceId) -> Option<PathBuf> {
        Some(self.world.home.log(id))
    }

    /// Models stay when the federation is deleted.
    fn models_path(&self, federation: &Name) -> Option<PathBuf> {
        Some(self.world.home.models(federation))
    }

    fn trust_path(&self, federation: &Name) -> Option<PathBuf> {
        let tls = self.coordinator(federation).and_then(|desired| match desired.spec {
            Spec::Coordinator(spec) => Some(spec.tls),
            Spec::Node(_) => None,
        })?;
        tls::trust(&self.world.home, federation, &tls)
    }

    fn token_path(&self, federation: &Name) -> Option<PathBuf> {
        let desired = self.coordinator(federation)?;
        let Spec::Coordinator(spec) = &desired.spec else { return None };
        Some(admin_token(spec, &self.world.home.state(&desired.id))).filter(|path| path.exists())
    }
}

/// The driver of this machine, for the registry of drivers.
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
        // Only the kernel's limits are known here. Nodes find out whether they may use them.
        Capabilities { drain: true, limits: has_cgroups(), gpu: true, images: false }
    }

    /// There is one machine of the control plane.
    fn is_same_connection(&self, _one: &SiteConfig, _other: &SiteConfig) -> bool {
        true
    }
}

/// What a driver was starting when it ended may hold its lock for a moment: until it has become its own program.
fn take(lock: &File) -> bool {
    for _ in 0..LOCK_TRIES {
        if flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    false
}

/// Whether the kernel can hold processes to limits.
fn has_cgroups() -> bool {
    std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

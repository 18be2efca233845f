//! Federations and their runs: a controller and a watcher of the SuperLink for each federation, and events of all changes. Does not
//! know HTTP.
//!
//! ```text
//! reconcile --> controller (plan) --> sites (drivers)       actions
//!           \-> watcher --> superlink                       runs
//!           \-> view <-- all reads                          state in memory; events
//! document, report, submit, runs, part_log, models, apps    requests
//! ```

mod apps;
mod book;
mod clock;
mod convert;
mod difference;
mod document;
mod fleet;
mod mask;
mod models;
mod part_log;
mod preview;
mod reconcile;
mod report;
mod runs;
mod shared;
mod simulated;
mod sites;
mod submit;
mod superlink;
mod view;
mod watcher;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::broadcast;
use trellis_api::{
    Apps, Connection, Detail, Event, FederationDetail, FederationSummary, LogPart, ModelFile, NewRun, Node,
    PastFederation, PlanReport, Role, Run, TrainingRounds,
};
use trellis_clock::now_ms;
use trellis_plan::{DesiredState, NodeKey, OpenError, Part, ResourceId};
use trellis_registry::{Entry, Put, Registry, RegistryError};
use trellis_spec::{Federation, Name, Pool, Runtime, to_yaml};
use trellis_wire::call::{ApproveIdentity, RevokeNode};

use document::{Document, invalid, unknown, wrong};
use shared::{Shared, Wakers};
use sites::Sites;
use view::View;

pub use simulated::SimulatedSites;
pub use sites::{SiteDrivers, copy_command, register_site_kinds};

/// Attempts to change a document that another caller changes concurrently.
const MAX_ATTEMPTS: usize = 3;
/// Maximum number of nodes in a document planned by a caller without the role administrator.
const MAX_PREVIEW_NODES: u64 = 5_000;

#[derive(Debug, Clone)]
pub struct PlatformSettings {
    /// The state directory: the registry, and the files of the local driver.
    pub directory: PathBuf,
    /// Our own program, which the local driver starts.
    pub program: PathBuf,
    pub sites: SiteDrivers,
    /// No other process uses the directory, so that leases of an earlier process are taken over at once instead of after they
    /// expire. Always the case with real sites, as the local driver locks the directory.
    pub exclusive: bool,
}

impl PlatformSettings {
    pub fn new(directory: PathBuf, program: PathBuf) -> PlatformSettings {
        PlatformSettings { directory, program, sites: SiteDrivers::default(), exclusive: false }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the registry in {} cannot be opened", directory.display())]
    Registry { directory: PathBuf, source: RegistryError },
    #[error("{kind} sites cannot be used")]
    Driver { kind: &'static str, source: OpenError },
}

/// Why a request failed. `http` turns it into a problem document.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The federation, node or run does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The request cannot be used; all problems.
    #[error("{what}")]
    Invalid { what: String, problems: Vec<Detail> },
    /// The request conflicts with the current state: another revision, or being deleted.
    #[error("{0}")]
    Conflict(String),
    /// The role of the caller does not permit the operation.
    #[error("{0}")]
    Forbidden(String),
    /// The request may succeed later: the SuperLink does not answer yet.
    #[error("{0}")]
    NotNow(String),
    /// The SuperLink refused the request.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Broken(String),
}

impl From<RegistryError> for Refusal {
    fn from(error: RegistryError) -> Refusal {
        match error {
            RegistryError::Conflict { .. } | RegistryError::Leaving => Refusal::Conflict(error.to_string()),
            error => {
                tracing::error!(%error, source = ?std::error::Error::source(&error), "the registry");
                Refusal::Broken(error.to_string())
            }
        }
    }
}

#[derive(Debug)]
pub struct Applied {
    pub detail: FederationDetail,
    pub created: bool,
    pub changed: bool,
    /// Of the document.
    pub warnings: Vec<String>,
}

pub struct Platform {
    shared: Arc<Shared>,
}

impl Platform {
    /// Opens the registry and starts the controllers of all federations.
    pub async fn start(settings: PlatformSettings) -> Result<Arc<Platform>, StartError> {
        let failed = |source| StartError::Registry { directory: settings.directory.clone(), source };
        let registry = Registry::open(&settings.directory).map_err(failed)?;
        let wakers = Arc::new(Wakers::default());
        let sites = Sites::open(&settings, Arc::clone(&wakers))?;
        let holder = match settings.exclusive || matches!(settings.sites, SiteDrivers::Real(_)) {
            true => "server".to_owned(),
            false => format!("{}-{:016x}", std::process::id(), RandomState::new().build_hasher().finish()),
        };
        let entries = registry.federations().await.map_err(failed)?;
        let shared = Shared::new(registry, sites, wakers, holder);
        for entry in entries {
            let name = entry.name.clone();
            shared.views.put(entry);
            shared.recall(&name).await.map_err(failed)?;
            shared.reconcile(&name);
        }
        Ok(Arc::new(Platform { shared }))
    }

    /// For plans and past runs without a server: reads the state that a server left in `directory`. Observes no site and writes
    /// nothing.
    pub async fn offline(directory: Option<&Path>) -> Result<Platform, StartError> {
        let failed = |source| StartError::Registry { directory: directory.unwrap_or(Path::new("")).to_owned(), source };
        let registry = Registry::copy(directory).map_err(failed)?;
        let entries = registry.federations().await.map_err(failed)?;
        let shared = Shared::new(registry, Sites::closed(), Arc::default(), String::new());
        for entry in entries {
            let name = entry.name.clone();
            shared.views.put(entry);
            shared.recall(&name).await.map_err(failed)?;
            // No watcher adds further runs.
            shared.views.note(&name, |view| Arc::make_mut(&mut view.runs).complete = true);
        }
        Ok(Platform { shared })
    }

    /// Stops the controllers. Federations keep running.
    pub async fn stop(&self) {
        self.shared.stop().await;
    }

    /// For the tokens of callers.
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// All events from now on. A receiver that lags misses events.
    pub fn events(&self) -> broadcast::Receiver<Arc<Event>> {
        self.shared.views.events()
    }

    /// Sorted by name. Answered from memory.
    pub fn federations(&self) -> Vec<Arc<FederationSummary>> {
        self.shared.views.summaries()
    }

    /// Only administrators see the values of `env`.
    pub fn federation(&self, name: &str, role: Role) -> Result<FederationDetail, Refusal> {
        Ok(self.view(name)?.detail(may_see_secrets(role)))
    }

    /// Sorted by pool and index. Answered from memory.
    pub fn nodes(&self, name: &str) -> Result<Vec<Node>, Refusal> {
        let view = self.view(name)?;
        Ok(view.decided.map(|decided| decided.nodes.to_vec()).unwrap_or_default())
    }

    /// The changes that `apply` would make for a document. `file` is the file name in diagnostics.
    pub async fn plan(&self, text: &str, file: &str, role: Role) -> Result<PlanReport, Refusal> {
        let document = self.read(text, file, None)?;
        check_size(&document.federation, role)?;
        report::plan(&self.shared, document, may_see_secrets(role)).await
    }

    /// The current plan of a federation, with reasons for what is not done.
    pub async fn current_plan(&self, name: &str, role: Role) -> Result<PlanReport, Refusal> {
        report::current(&self.shared, self.view(name)?, may_see_secrets(role)).await
    }

    /// Whether [`Platform::apply`] could use the document.
    pub fn check(&self, name: &str, text: &str) -> Result<(), Refusal> {
        self.read(text, name, Some(name)).map(drop)
    }

    /// Applies a document with exactly one federation of this name. `expected`: the required revision (0: must be new).
    pub async fn apply(&self, name: &str, text: &str, expected: Option<u64>) -> Result<Applied, Refusal> {
        let document = self.read(text, name, Some(name))?;
        let applied = self.put(document.federation, expected).await?;
        Ok(Applied { warnings: document.warnings, ..applied })
    }

    /// Changes the count of a pool in the document. `repartition` also sets the number of shards to the number of nodes.
    pub async fn scale(&self, name: &str, pool: &str, to: &trellis_api::Pool) -> Result<Applied, Refusal> {
        let joined = self.view(name)?.decided.map_or(0, |decided| {
            let holders = decided.nodes.iter().filter(|node| node.joined && node.shard.is_some());
            u32::try_from(holders.count()).unwrap_or(u32::MAX)
        });
        self.change(name, |federation| scaled(federation, pool, to, joined)).await
    }

    /// Drains a node, or ends its drain: a node of a pool by changing the document, a joined node by excluding it from the selection
    /// of runs.
    pub async fn drain(&self, name: &str, node: &str, drained: bool) -> Result<Applied, Refusal> {
        let view = self.view(name)?;
        if let Some(id) = view.joined(node).and_then(|joined| joined.id.clone()) {
            let changed = view.drained.contains(&id) != drained;
            self.drain_joined(&view.name, &id, drained).await?;
            let detail = self.view(name)?.detail(true);
            return Ok(Applied { detail, created: false, changed, warnings: Vec::new() });
        }
        let Part::Node(key) = part_id(&view, node)?.part else {
            return Err(Refusal::NotFound("the coordinator cannot be drained".to_owned()));
        };
        self.change(name, |federation| with_drained(federation, &key, drained)).await
    }

    async fn drain_joined(&self, name: &Name, id: &str, drained: bool) -> Result<(), Refusal> {
        self.shared.registry.drain(name, id, drained).await?;
        self.shared.views.note(name, |view| {
            let nodes = Arc::make_mut(&mut view.drained);
            if drained {
                nodes.insert(id.to_owned())
            } else {
                nodes.remove(id)
            };
        });
        self.shared.reconcile(name);
        Ok(())
    }

    /// Revokes a joined node in the SuperLink, which refuses its further calls.
    pub async fn revoke(&self, name: &str, node: &str) -> Result<(), Refusal> {
        let view = self.view(name)?;
        let Some(id) = view.joined(node).and_then(|joined| joined.id.clone()) else {
            return Err(match part_id(&view, node)?.part {
                Part::Coordinator => Refusal::Conflict("the coordinator is deleted with its federation".to_owned()),
                Part::Node(key) => Refusal::Conflict(format!(
                    "{key} is a node of pool {}, which would create it again; `trellis scale {}=COUNT` removes the last nodes \
                     of the pool, and `drained` drains this one",
                    key.pool, key.pool
                )),
            });
        };
        let superlink = superlink::superlink(&self.shared.sites, &view)?;
        superlink.call(&RevokeNode { id: id.clone() }).await.map_err(|error| superlink::refusal(&error))?;
        self.shared.views.note(&view.name, |view| {
            let nodes = view.link.iter().flat_map(|nodes| nodes.iter()).filter(|node| node.id != id);
            view.link = Some(nodes.cloned().collect());
        });
        self.drain_joined(&view.name, &id, false).await
    }

    async fn change(
        &self,
        name: &str,
        change: impl Fn(&Federation) -> Result<Federation, Refusal>,
    ) -> Result<Applied, Refusal> {
        let mut attempts = MAX_ATTEMPTS;
        loop {
            let view = self.view(name)?;
            let Some(federation) = view.federation.as_ref().filter(|_| !view.leaving) else {
                return Err(RegistryError::Leaving.into());
            };
            let changed = change(federation)?;
            attempts -= 1;
            match self.put(changed, Some(view.revision)).await {
                // The document changed concurrently: apply the change to the new document.
                Err(Refusal::Conflict(_)) if attempts > 0 => {
                    if let Some(entry) = self.shared.registry.federation(&view.name).await? {
                        self.shared.views.put(entry);
                    }
                }
                applied => return applied,
            }
        }
    }

    /// Deletes a federation. Its runs stay listed, unless `purge` is set. Idempotent.
    pub async fn delete(&self, name: &str, purge: bool) -> Result<(), Refusal> {
        let name = document::name(name)?;
        if !self.shared.registry.leave(&name, purge, now_ms()).await? {
            let purged = purge && self.shared.registry.purge(&name).await?;
            return if purged { Ok(()) } else { Err(unknown(name.as_str())) };
        }
        if self.shared.views.contains(&name) {
            self.shared.views.note(&name, |view| view.leaving = true);
        } else if let Some(entry) = self.shared.registry.federation(&name).await? {
            // Its document could not be parsed, so that it has no view.
            self.shared.views.put(entry);
        }
        self.shared.reconcile(&name);
        Ok(())
    }

    pub async fn connection(&self, name: &str) -> Result<Connection, Refusal> {
        superlink::connection(&self.shared.sites, &self.view(name)?).await
    }

    /// Newest first. Includes runs of deleted federations.
    pub async fn runs(&self, name: &str) -> Result<Vec<Run>, Refusal> {
        match self.view(name) {
            Ok(view) => runs::list(&view),
            Err(gone) => {
                let past = runs::past(&self.shared, &document::name(name)?).await?;
                if past.is_empty() { Err(gone) } else { Ok(past) }
            }
        }
    }

    pub async fn run(&self, name: &str, run: &str) -> Result<Run, Refusal> {
        match self.view(name) {
            Ok(view) => runs::get(&self.shared, &view, run).await,
            Err(gone) => self.past_run(name, run, gone).await,
        }
    }

    /// A run of a deleted federation.
    async fn past_run(&self, name: &str, run: &str, gone: Refusal) -> Result<Run, Refusal> {
        let past = runs::past(&self.shared, &document::name(name)?).await?;
        past.into_iter().find(|past| past.id == run).ok_or(gone)
    }

    /// Deleted federations whose runs are stored, by name.
    pub async fn past_federations(&self) -> Result<Vec<PastFederation>, Refusal> {
        let past = self.shared.registry.past().await?.into_iter();
        Ok(past
            .map(|past| PastFederation {
                name: past.federation,
                runs: past.runs,
                last_run_at: past.last_submitted_ms as f64 / 1000.0,
            })
            .collect())
    }

    /// `by`: the name of the caller's token.
    pub async fn start_run(&self, name: &str, new: &NewRun, by: &str) -> Result<Run, Refusal> {
        runs::start(&self.shared, &self.view(name)?, new, by).await
    }

    /// Approves a waiting `flwr login` for the account of this name, which gets the role.
    pub async fn approve_login(
        &self,
        name: &str,
        code: &str,
        account: &str,
        role: Role,
        ttl_s: f64,
    ) -> Result<(), Refusal> {
        let superlink = superlink::superlink(&self.shared.sites, &self.view(name)?)?;
        let (code, name, role) = (code.to_owned(), account.to_owned(), role.name().to_owned());
        let approval = ApproveIdentity { code, name, role, ttl_s };
        superlink.call(&approval).await.map(drop).map_err(|error| superlink::refusal(&error))
    }

    /// A finished run is returned unchanged.
    pub async fn stop_run(&self, name: &str, run: &str) -> Result<Run, Refusal> {
        runs::stop(&self.shared, &self.view(name)?, run).await
    }

    /// Reports after a round.
    pub async fn rounds(&self, name: &str, run: &str, after: Option<u64>) -> Result<TrainingRounds, Refusal> {
        match self.view(name) {
            Ok(view) => runs::rounds(&self.shared, &view, run, after).await,
            // The reports were deleted with the SuperLink.
            Err(gone) => self.past_run(name, run, gone).await.map(|_| TrainingRounds::default()),
        }
    }

    /// The log of a run after a position (empty: from the beginning). `wait`: waits for more, with a timeout.
    pub async fn run_log(&self, name: &str, run: &str, after: &str, wait: bool) -> Result<LogPart, Refusal> {
        match self.view(name) {
            Ok(view) => runs::log(&self.shared, &view, run, after, wait).await,
            Err(gone) => Err(self.no_log(name, run, gone).await),
        }
    }

    /// The output of ClientApps of a node in a run, after a position; without one, from the beginning.
    pub async fn app_log(
        &self,
        name: &str,
        run: &str,
        node: &str,
        after: Option<&str>,
        wait: bool,
    ) -> Result<LogPart, Refusal> {
        match self.view(name) {
            Ok(view) => part_log::of_apps(&self.shared, &view, run, node, after, wait).await,
            Err(gone) => Err(self.no_log(name, run, gone).await),
        }
    }

    /// Why a deleted federation has no log of a run.
    async fn no_log(&self, name: &str, run: &str, gone: Refusal) -> Refusal {
        match self.past_run(name, run, gone).await {
            Ok(run) => runs::without_log(name, &run.id),
            Err(gone) => gone,
        }
    }

    /// The log of the coordinator or a node, after a position; without one, its last lines.
    pub async fn part_log(&self, name: &str, part: &str, after: Option<&str>, wait: bool) -> Result<LogPart, Refusal> {
        let view = self.view(name)?;
        if let Some(joined) = view.joined(part) {
            return Err(Refusal::NotFound(format!(
                "{} joined by itself: its logs are on its own machine; `trellis logs RUN --node {}` shows what its apps wrote",
                joined.name, joined.name
            )));
        }
        let id = part_id(&view, part)?;
        match (self.shared.sites.log_path(&view, &id), &id.part) {
            (Some(path), _) => part_log::read(&self.shared, path, after, wait).await,
            (None, Part::Coordinator) => part_log::of_superlink(&self.shared, &view, &id, after, wait).await,
            (None, Part::Node(_)) => Err(Refusal::NotFound(self.shared.sites.describe_log(&view, &id).await)),
        }
    }

    /// Models of native runs.
    pub async fn models(&self, name: &str) -> Result<Vec<ModelFile>, Refusal> {
        models::list(&self.shared.sites, &self.view(name)?).await
    }

    /// The file of a model, by its path in that list.
    pub async fn model(&self, name: &str, path: &str) -> Result<std::fs::File, Refusal> {
        models::open(&self.shared.sites, &self.view(name)?, path).await
    }

    /// Built-in apps.
    pub fn apps(&self) -> Apps {
        apps::apps()
    }

    /// Reads a document from a caller. Masked values are replaced by the values of the applied document.
    fn read(&self, text: &str, file: &str, name: Option<&str>) -> Result<Document, Refusal> {
        let mut document = document::read(text, file, name)?;
        let applied = self.shared.views.get(&document.federation.name).and_then(|view| view.federation);
        let mut problems = mask::unmask(&mut document.federation, applied.as_deref());
        problems.extend(self.shared.sites.reject(&document.federation));
        match problems.is_empty() {
            true => Ok(document),
            false => Err(invalid("the document cannot be used", problems)),
        }
    }

    fn view(&self, name: &str) -> Result<View, Refusal> {
        self.shared.views.get(&document::name(name)?).ok_or_else(|| unknown(name))
    }

    async fn put(&self, federation: Federation, expected: Option<u64>) -> Result<Applied, Refusal> {
        let changed_ms = now_ms();
        let put = self.shared.registry.put(&federation, expected, changed_ms).await?;
        let (revision, created, changed) = match put {
            Put::Created { revision } => (revision, true, true),
            Put::Changed { revision } => (revision, false, true),
            Put::Unchanged { revision } => (revision, false, false),
        };
        let name = federation.name.clone();
        if changed || !self.shared.views.contains(&name) {
            let document = to_yaml(&federation);
            let desired = DesiredState::Federation(Arc::new(federation));
            self.shared.views.put(Entry { name: name.clone(), desired, document, revision, changed_ms, status: None });
        }
        if created {
            self.shared.recall(&name).await?;
        }
        self.shared.reconcile(&name);
        let detail = self.view(name.as_str())?.detail(true);
        Ok(Applied { detail, created, changed, warnings: Vec::new() })
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}

fn may_see_secrets(role: Role) -> bool {
    role == Role::Admin
}

/// Limits the number of nodes, because planning takes time and memory for each node.
fn check_size(federation: &Federation, role: Role) -> Result<(), Refusal> {
    let max = |pool: &Pool| pool.scaling.as_ref().map_or(0, |scaling| scaling.max).max(pool.count);
    let nodes: u64 = federation.pools.iter().map(|pool| u64::from(max(pool))).sum();
    if role == Role::Admin || nodes <= MAX_PREVIEW_NODES {
        return Ok(());
    }
    Err(Refusal::Forbidden(format!(
        "The document is for up to {nodes} nodes. Plans of more than {MAX_PREVIEW_NODES} nodes need the role admin."
    )))
}

/// The federation with another count, if it is still valid.
fn scaled(
    federation: &Federation,
    pool: &str,
    &trellis_api::Pool { count, repartition }: &trellis_api::Pool,
    joined: u32,
) -> Result<Federation, Refusal> {
    let mut federation = federation.clone();
    let Some(index) = federation.pools.iter().position(|each| each.name.as_str() == pool) else {
        return Err(Refusal::NotFound(format!("federation {} has no pool {pool:?}", federation.name)));
    };
    let refused = |detail| invalid("the pool cannot have so many nodes", vec![detail]);
    if let Some(scaling) = &federation.pools[index].scaling
        && !(scaling.min..=scaling.max).contains(&count)
    {
        let what = format!("{count} is not within scaling, which is {} to {}", scaling.min, scaling.max);
        return Err(refused(wrong("count", what, "give a count within, or change spec.pools.scaling in the document")));
    }
    federation.pools[index].count = count;
    if repartition {
        let nodes = federation.pools.iter().map(|pool| pool.count).fold(joined, u32::saturating_add);
        federation.training.partitions = Some(nodes.max(1));
    }
    // A `Federation` is always valid: parse the result to check it.
    let document = document::read(&to_yaml(&federation), federation.name.as_str(), None)?;
    Ok(document.federation)
}

/// The federation with a node drained, or not.
fn with_drained(federation: &Federation, key: &NodeKey, drained: bool) -> Result<Federation, Refusal> {
    let mut federation = federation.clone();
    if drained && federation.runtime != Runtime::Trellis {
        let what = format!("a SuperNode of {} cannot be drained", federation.runtime);
        let detail = wrong("drained", what, "use runtime: trellis, or scale the pool down");
        return Err(invalid("the node cannot be drained", vec![detail]));
    }
    let Some(pool) = federation.pools.iter_mut().find(|pool| pool.name == key.pool) else {
        return Err(Refusal::NotFound(format!("{key} belongs to no pool of the document")));
    };
    match drained {
        true => pool.drained.insert(key.index),
        false => pool.drained.remove(&key.index),
    };
    Ok(federation)
}

/// The id of `coordinator` or of a node, at its current site.
fn part_id(view: &View, part: &str) -> Result<ResourceId, Refusal> {
    let missing = || Refusal::NotFound(format!("federation {} has no part {part:?}", view.name));
    let decided = view.decided.as_ref().ok_or_else(missing)?;
    let site = match part {
        "coordinator" => &decided.status.coordinator.site,
        name => &decided.nodes.iter().find(|node| node.name == name).ok_or_else(missing)?.site,
    };
    let site = Name::new(site).ok_or_else(missing)?;
    let part = match part {
        "coordinator" => Part::Coordinator,
        name => Part::Node(name.to_owned().try_into().map_err(|_| missing())?),
    };
    Ok(ResourceId { federation: view.name.clone(), site, part })
}

//! Submits the runs of `FederationRun` resources and reports their state. [`trellis_kube::run::machine`] decides;
//! effects are executed here in its order.
//!
//! There are few of these resources, so the controller of kube-rs is used.

pub mod report;
mod submission;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trellis_client::Error as CallError;
use trellis_diagnostic::Diagnostic;
use trellis_kube::federation::{self, Federation, GROUP, VERSION};
use trellis_kube::flower::Programs;
use trellis_kube::run::machine::{Effect, FederationState, Next, Seen, SeenRun, Try, next};
use trellis_kube::run::{self, FINALIZER, FederationRun, State};

use crate::reach::{Reach, Reached};
use submission::{Unsent, submission};

/// Concurrent reconciles.
const WORKERS: u16 = 8;
/// Poll interval of a run in progress.
const FOLLOW: Duration = Duration::from_secs(2);
/// Poll interval of a run that waits for something that is not watched.
const WAIT: Duration = Duration::from_secs(5);
/// Poll interval of an invalid resource.
const UNFIT: Duration = Duration::from_secs(30);
/// Retry interval after a failure of the API server, or a conflict.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// An event about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEvent {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub warning: bool,
    pub reason: &'static str,
    pub note: String,
}

pub struct Runs {
    pub client: Client,
    pub reach: Reach,
    /// Receives events.
    publish: Box<dyn Fn(RunEvent) + Send + Sync>,
    /// By UID, the last attempt that the SuperLink rejected, and why.
    refused: Mutex<HashMap<String, (Try, String)>>,
}

impl Runs {
    pub fn new(client: Client, reach: Reach, publish: impl Fn(RunEvent) + Send + Sync + 'static) -> Runs {
        Runs { client, reach, publish: Box::new(publish), refused: Mutex::default() }
    }

    fn forget(&self, gone: &DynamicObject) {
        let uid = gone.metadata.uid.as_deref().unwrap_or_default();
        self.refused.lock().expect("the lock is never poisoned").remove(uid);
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Cluster(#[from] kube::Error),
    #[error("the resource has no name")]
    Nameless,
}

/// Reconciles the runs of namespaces (`None`: all) until `stop`.
pub async fn run(runs: Arc<Runs>, scopes: Vec<Option<String>>, stop: CancellationToken) {
    let each = scopes.into_iter().map(|scope| {
        let (runs, stop) = (Arc::clone(&runs), stop.clone());
        let api = match &scope {
            Some(namespace) => Api::namespaced_with(runs.client.clone(), namespace, &resource()),
            None => Api::all_with(runs.client.clone(), &resource()),
        };
        Controller::new_with(api, watcher::Config::default(), resource())
            .with_config(Config::default().concurrency(WORKERS))
            .graceful_shutdown_on(async move { stop.cancelled().await })
            .run(reconcile, after_failure, runs)
            .for_each(|outcome| async move {
                if let Err(error) = outcome {
                    tracing::debug!(%error, "a run was not reconciled");
                }
            })
    });
    join_all(each).await;
}

pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, run::KIND), run::PLURAL)
}

fn federations() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, federation::KIND), federation::PLURAL)
}

fn after_failure(_: Arc<DynamicObject>, error: &RunError, _: Arc<Runs>) -> Action {
    let conflict = matches!(error, RunError::Cluster(kube::Error::Api(status)) if status.code == 409);
    if !conflict {
        tracing::warn!(%error, "a FederationRun could not be reconciled; it is retried");
    }
    Action::requeue(AFTER_FAILURE)
}

/// Reconciles one resource. The watch is only a trigger; the resource is read from the API server.
async fn reconcile(seen: Arc<DynamicObject>, runs: Arc<Runs>) -> Result<Action, RunError> {
    let name = seen.metadata.name.clone().ok_or(RunError::Nameless)?;
    let namespace = seen.metadata.namespace.clone().unwrap_or_default();
    let api: Api<DynamicObject> = Api::namespaced_with(runs.client.clone(), &namespace, &resource());
    let Some(live) = api.get_opt(&name).await? else {
        runs.forget(&seen);
        return Ok(Action::await_change());
    };
    let live = serde_json::to_value(&live).unwrap_or_default();
    match FederationRun::read(&live) {
        Ok(run) => Look { runs: &runs, api, live, run }.go().await,
        Err(unreadable) => {
            tracing::warn!(namespace, name, "a FederationRun cannot be read: {unreadable}");
            Ok(Action::requeue(UNFIT))
        }
    }
}

struct Look<'a> {
    runs: &'a Runs,
    api: Api<DynamicObject>,
    live: Value,
    run: FederationRun,
}

/// The federation of a run, as far as it is known.
struct Environment {
    federation: Option<Federation>,
    reached: Option<Reached>,
    seen: Seen,
}

impl Look<'_> {
    async fn go(self) -> Result<Action, RunError> {
        let now = Timestamp::now().as_second();
        let environment = self.observe().await?;
        let next = next(&self.run, &environment.seen, now);
        let written = self.write_status(&next).await?;
        let mut acted = false;
        for effect in &next.effects {
            acted |= self.execute(effect, &environment).await?;
        }
        Ok(self.when(&next, &environment, written || acted, now))
    }

    /// The input of the decision.
    async fn observe(&self) -> Result<Environment, RunError> {
        let federation = self.federation().await?;
        let Some(federation) = federation else {
            let seen = self.seen(FederationState::Absent, Err("it is gone".to_owned()), Vec::new());
            return Ok(Environment { federation: None, reached: None, seen });
        };
        let (reached, runs) = match self.runs.reach.superlink(&self.runs.client, &federation).await {
            Ok(reached) => {
                let reported = self.query(&reached).await.map_err(|error| explain(&error));
                (Some(reached), reported)
            }
            Err(error) => (None, Err(error.to_string())),
        };
        let state = match &runs {
            Ok(_) => FederationState::Ready,
            Err(why) => FederationState::Unready(why.clone()),
        };
        let unfit =
            if self.has_pending_submission() { self.submission_problems(&federation).await } else { Vec::new() };
        Ok(Environment { federation: Some(federation), reached, seen: self.seen(state, runs, unfit) })
    }

    fn seen(&self, federation: FederationState, runs: Result<Vec<SeenRun>, String>, unfit: Vec<Diagnostic>) -> Seen {
        let refused = self.runs.refused.lock().expect("the lock is never poisoned");
        let refused = refused.get(&self.run.uid).cloned().into_iter().collect();
        Seen { federation, runs, unfit, refused }
    }

    async fn federation(&self) -> Result<Option<Federation>, RunError> {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.runs.client.clone(), &self.run.namespace, &federations());
        let Some(found) = api.get_opt(&self.run.spec.federation).await? else { return Ok(None) };
        let read = Federation::read(&serde_json::to_value(&found).unwrap_or_default());
        Ok(read.ok().filter(|federation| !federation.deleted))
    }

    /// Problems of a pending submission are reported at once.
    fn has_pending_submission(&self) -> bool {
        let status = &self.run.status;
        let waits = status.active.iter().any(|job| job.run_id.is_none());
        let begins = status.active.is_empty() && (self.run.spec.schedule.is_some() || status.count == 0);
        self.run.deleted.is_none() && (waits || begins)
    }

    async fn submission_problems(&self, federation: &Federation) -> Vec<Diagnostic> {
        match submission(&self.runs.client, &self.run, "", None).await {
            Ok(ready) if ready.training.is_some() && !Programs::of(federation).superlink.is_trellis() => {
                vec![Diagnostic::error(
                    "spec.app".to_owned(),
                    "the SuperLink of the federation is Flower's own, which cannot train natively".to_owned(),
                    "name an app with its own ServerApp, or use images of Trellis".to_owned(),
                )]
            }
            Ok(_) | Err(Unsent::Later(_)) => Vec::new(),
            Err(Unsent::Unfit(problems)) => problems,
        }
    }

    /// Runs of this resource with their progress.
    async fn query(&self, reached: &Reached) -> Result<Vec<SeenRun>, CallError> {
        let jobs = &self.run.status.active;
        let ids: Option<Vec<u64>> = jobs.iter().map(|job| job.run_id.as_deref()?.parse().ok()).collect();
        // All runs are listed only if there may be one with an unknown id.
        let known = ids.filter(|_| self.run.deleted.is_none());
        let superlink = &reached.superlink;
        let mut found = report::runs(superlink, &self.run.uid, known.as_deref()).await?;
        for run in found.iter_mut().filter(|_| reached.is_trellis) {
            let Some(job) = jobs.iter().find(|job| (job.number, job.attempt) == (run.of.number, run.of.attempt)) else {
                continue;
            };
            // The report at the end has the number of the last round, so that round is queried again.
            let training = report::training(superlink, run.id, job.round.unwrap_or(0)).await?;
            (run.round, run.rounds, run.result) = (training.round, training.rounds, training.metrics);
        }
        Ok(found)
    }

    /// Returns whether the status changed. After a conflict the resource is read again.
    async fn write_status(&self, next: &Next) -> Result<bool, RunError> {
        let wanted = serde_json::to_value(&next.status).unwrap_or_default();
        let before = self.live.get("status").cloned().unwrap_or_else(|| json!({}));
        let leaves = next.effects.contains(&Effect::LetGo);
        let Some(change) = trellis_kube::status::patch(&before, &wanted).filter(|_| !leaves) else { return Ok(false) };
        let version = &self.live["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "status": change});
        self.api.patch_status(&self.run.name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(true)
    }

    /// Returns whether the effect changes the next observation.
    async fn execute(&self, effect: &Effect, environment: &Environment) -> Result<bool, RunError> {
        match effect {
            Effect::Hold => self.set_finalizers(true).await.map(|()| true),
            Effect::LetGo => self.set_finalizers(false).await.map(|()| false),
            Effect::Delete => {
                let preconditions = Preconditions { uid: Some(self.run.uid.clone()), resource_version: None };
                let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                self.api.delete(&self.run.name, &how).await?;
                Ok(false)
            }
            Effect::Submit(of) => Ok(self.submit(*of, environment).await),
            Effect::Stop(id) => {
                if let Some(reached) = &environment.reached
                    && let Err(error) = reached.superlink.stop_run(*id).await
                {
                    // A finished run cannot be stopped; the next reconcile reports how it ended.
                    tracing::info!(run = id, "it was not stopped: {}", explain(&error));
                }
                Ok(true)
            }
            Effect::Tell { warning, reason, note } => {
                (self.runs.publish)(RunEvent {
                    namespace: self.run.namespace.clone(),
                    name: self.run.name.clone(),
                    uid: self.run.uid.clone(),
                    warning: *warning,
                    reason,
                    note: note.clone(),
                });
                Ok(false)
            }
        }
    }

    /// Submits an attempt. The next reconcile finds out whether it arrived, whatever the response.
    async fn submit(&self, of: Try, environment: &Environment) -> bool {
        let (Some(reached), Some(federation)) = (&environment.reached, &environment.federation) else { return false };
        let mark = of.mark(&self.run.uid);
        let ready = match submission(&self.runs.client, &self.run, &mark, expected_nodes(federation)).await {
            Ok(ready) => ready,
            // It was valid before; the next reconcile reports what is wrong now.
            Err(Unsent::Unfit(_)) => return false,
            Err(Unsent::Later(why)) => {
                tracing::warn!(run = self.run.name, "the run was not submitted: {why}");
                return false;
            }
        };
        let FederationRun { namespace, name, .. } = &self.run;
        match reached.superlink.start_run(ready.bundle.fab, ready.values).await {
            Ok(run) => {
                tracing::info!(namespace, name, run, attempt = of.attempt, "run submitted");
                true
            }
            Err(error) => {
                let why = explain(&error);
                tracing::warn!(namespace, name, attempt = of.attempt, "the run was not submitted: {why}");
                if matches!(error, CallError::Refused { status, .. } if status != 503) {
                    let mut refused = self.runs.refused.lock().expect("the lock is never poisoned");
                    refused.insert(self.run.uid.clone(), (of, why));
                }
                false
            }
        }
    }

    async fn set_finalizers(&self, held: bool) -> Result<(), RunError> {
        let meta = &self.live["metadata"];
        let others = meta["finalizers"].as_array().into_iter().flatten().filter(|it| *it != FINALIZER).cloned();
        let all: Vec<Value> = others.chain(held.then(|| FINALIZER.into())).collect();
        let patch = json!({"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": all}});
        match self.api.patch(&self.run.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answer => answer.map(drop).map_err(RunError::from),
        }
    }

    /// Delay until the next reconcile.
    fn when(&self, next: &Next, environment: &Environment, moved: bool, now: i64) -> Action {
        let due = next.wake_at.map(|at| Duration::from_secs(u64::try_from(at - now).unwrap_or(0)));
        let waits = next.status.active.iter().any(|job| job.submitted.is_none() && job.not_before.is_none());
        let by_state = match next.status.state {
            _ if moved && next.follow && next.status.active.iter().any(|job| job.run_id.is_none()) => {
                Some(Duration::ZERO)
            }
            _ if next.follow => Some(FOLLOW),
            _ if !environment.seen.unfit.is_empty() => Some(UNFIT),
            State::Waiting if waits && !self.run.spec.suspend => Some(WAIT),
            _ => None,
        };
        match [due, by_state].into_iter().flatten().min() {
            Some(wait) => Action::requeue(wait),
            None => Action::await_change(),
        }
    }
}

/// Minimum number of nodes: a native training waits for them before it starts.
fn expected_nodes(federation: &Federation) -> Option<usize> {
    let scaling = federation.spec.scaling.as_ref();
    let pools = federation.spec.supernodes.pools.iter().map(|pool| {
        let scaled = scaling.filter(|scaling| scaling.pool == pool.name);
        let least = scaled.and_then(|scaling| scaling.min_replicas.or(scaling.replicas));
        usize::try_from(least.or(pool.replicas)?).ok()
    });
    pools.sum::<Option<usize>>().filter(|nodes| *nodes > 0)
}

/// The error with all its sources.
fn explain(error: &CallError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

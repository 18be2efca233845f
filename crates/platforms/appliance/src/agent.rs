//! The resident agent: reconciles the programs of a VM with its context and the requests of the controller, and publishes their
//! state.
//!
//! [`lifecycle`] decides which step follows which; this module performs the steps. Each reconcile starts from what it observes,
//! so an interrupted one needs no recovery. Nothing else publishes or reports.

mod apply;
mod background;
mod gate;
mod join;
mod lifecycle;
mod observe;
mod report;
mod shards;
mod trust;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use trellis_client::NodeKey;

use crate::disk::{self, Owner};
use crate::failure::{Code, Failure};
use crate::place::{Place, USER};
use crate::readiness::Profile;
use crate::recipe::Recipe;
use crate::settings::{Framework, Settings};
use crate::sources::Sources;
use crate::state::Memory;
use crate::supervisor::{Change, Direct, Supervisor};
use background::Background;
use gate::{Directives, Gate};
use join::Joining;
use lifecycle::{Effect, Event, Reason, State};
use observe::Inputs;
use shards::ShardWatch;
use trust::Certificates;

pub use lifecycle::Resolve;

/// Limit of the last publication.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Agent {
    place: Place,
    owner: Option<Owner>,
    sources: Sources,
    supervisor: Supervisor,
    memory: Memory,
    /// `None`: changes of `memory` are not saved, because the resident agent owns the file.
    memory_file: Option<PathBuf>,
    key: Arc<NodeKey>,
    state: State,
    inputs: Inputs,
    gate: Gate,
    joining: Joining,
    shards: ShardWatch,
    certificates: Certificates,
    background: Background,
    /// The deployment that runs.
    current: Option<Deployment>,
    /// The deployment to apply next, and how it differs from `current`.
    desired: Option<(Deployment, Change)>,
    /// Instance of the program that the controller last asked to restart.
    restarted: Option<String>,
    /// Framework that the last check found installed.
    framework: Framework,
    /// Time of the last call to the Fleet API that succeeded, and the instance that answered.
    fleet_probed: Option<(Instant, Option<String>)>,
}

/// Settings, and what they require on this machine.
#[derive(Debug, Clone, PartialEq)]
struct Deployment {
    settings: Settings,
    recipe: Recipe,
    profile: Profile,
}

impl Agent {
    pub fn new(place: Place, sources: Sources, supervisor: Supervisor, resolve: Resolve) -> io::Result<Agent> {
        let key = place.memory().with_file_name("probe.key");
        let memory_file = Some(place.memory());
        Agent::with_key(place, sources, supervisor, resolve, &key, memory_file)
    }

    fn with_key(
        place: Place,
        sources: Sources,
        supervisor: Supervisor,
        resolve: Resolve,
        key: &Path,
        memory_file: Option<PathBuf>,
    ) -> io::Result<Agent> {
        crate::state_disk::mount(&sources.read(), &place).map_err(|failure| io::Error::other(failure.what))?;
        let memory = Memory::read(&place.memory()).unwrap_or_else(|error| {
            // The agent can observe all of it again.
            tracing::warn!("{error}; the agent starts without it");
            Memory::default()
        });
        let owner = Owner::find(&place.passwd(), USER);
        let key = Arc::new(probe_key(key)?);
        let directives = Directives { assignment: memory.assignment.clone(), ..Directives::default() };
        let shards = ShardWatch::new(memory.shards.as_deref());
        Ok(Agent {
            place,
            owner,
            sources,
            supervisor,
            memory,
            memory_file,
            key,
            state: State::new(resolve, Instant::now()),
            inputs: Inputs::default(),
            gate: Gate::new(directives),
            joining: Joining::default(),
            shards,
            certificates: Certificates::default(),
            background: Background::default(),
            current: None,
            desired: None,
            restarted: None,
            framework: Framework::None,
            fleet_probed: None,
        })
    }

    /// Runs until `stop` resolves, or until the boot fails.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        tokio::pin!(stop);
        let mut effects = VecDeque::from([Effect::Observe]);
        while let Some(effect) = effects.pop_front() {
            let is_leaving = self.state.is_leaving();
            let event = tokio::select! {
                event = self.perform(effect) => event,
                () = &mut stop, if !is_leaving => Some(Event::Stop),
            };
            let Some(event) = event else { continue };
            let next = lifecycle::next(self.state.clone(), event, Instant::now());
            let (state, new) = next.expect("each effect reports an event that is legal in its phase");
            (self.state, effects) = (state, new.into());
        }
        match self.state.outcome() {
            Some(Reason::Failed(failure)) => Err(failure.clone()),
            Some(Reason::TimedOut) => Err(self.timeout()),
            Some(Reason::Requested) | None => Ok(()),
        }
    }

    async fn perform(&mut self, effect: Effect) -> Option<Event> {
        let done = |result: Result<(), Failure>, event| Some(result.map_or_else(Event::Failed, |()| event));
        match effect {
            Effect::Observe => Some(self.render().await.unwrap_or_else(Event::Failed)),
            Effect::Apply => done(self.apply().await, Event::Applied),
            Effect::Follow => Some(Event::Followed(self.follow().await)),
            Effect::Restart => done(self.restart().await, Event::Restarted),
            Effect::Probe => Some(self.probe().await),
            Effect::Publish(failure) => done(self.publish(failure.as_ref()).await, Event::Published),
            Effect::Wait(delay) => Some(tokio::select! {
                () = tokio::time::sleep(delay) => Event::Elapsed,
                () = self.supervisor.ended() => Event::ProgramEnded,
            }),
            Effect::Leave(reason) => {
                self.leave(&reason).await;
                Some(Event::Left)
            }
            Effect::SubmitRun => {
                self.submit();
                None
            }
            Effect::LogDeferred | Effect::LogFailure(_) | Effect::LogReadiness(_) => {
                report::log(&effect);
                None
            }
            Effect::WriteStatus(failure) => {
                self.write_status(failure);
                None
            }
        }
    }

    async fn leave(&mut self, reason: &Reason) {
        let failure = match reason {
            Reason::Requested => None,
            Reason::Failed(failure) => Some(failure.clone()),
            Reason::TimedOut => Some(self.timeout()),
        };
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, self.publish(failure.as_ref())).await;
        self.supervisor.leave().await;
        if failure.is_none() {
            let _ = std::fs::remove_file(self.place.status());
        }
    }

    fn timeout(&self) -> Failure {
        let what = match self.inputs.settings.as_ref().map(Settings::role) {
            Some(crate::settings::Role::SuperNode) => "the node is not connected to its SuperLink",
            Some(crate::settings::Role::Gateway) => "the tunnel is not up",
            _ => "the Fleet API does not answer",
        };
        Failure::new(Code::HealthCheckTimeout, what)
    }

    fn save_memory(&self) {
        let Some(path) = &self.memory_file else { return };
        if let Err(error) = self.memory.write(path) {
            tracing::warn!("{error}");
        }
    }
}

/// Checks the context and the assignment without starting anything. A failure is also published in FL_ERROR.
pub async fn check(place: Place, sources: Sources) -> Result<Settings, Failure> {
    let failed = |error: io::Error| Failure::new(Code::PreflightFailed, error.to_string());
    let key = place.memory().with_file_name("check.key");
    let supervisor = Supervisor::Direct(Direct::default());
    let mut agent = Agent::with_key(place, sources, supervisor, Resolve::Stay, &key, None).map_err(failed)?;
    let observed = agent.observe().await;
    if let Err(failure) = &observed {
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, agent.gate.publish_failure(failure)).await;
    }
    observed
}

/// Key of the probes. No SuperLink knows it, so a SuperLink that works rejects its calls.
fn probe_key(path: &Path) -> io::Result<NodeKey> {
    disk::make_directory(path.parent().unwrap_or(path), 0o700, None)?;
    match NodeKey::read(path).map_err(io::Error::other)? {
        Some(key) => Ok(key),
        None => NodeKey::generate(path, "probe").or_else(|error| {
            // Another stage may have created the file at the same time.
            NodeKey::read(path).ok().flatten().ok_or_else(|| io::Error::other(error))
        }),
    }
}

//! The resident agent: for the VM's life it makes so what the context and the controller say, and tells what is true of it.
//!
//! One pass after the other, each from the beginning: look, wish, apply, probe, tell. A pass that fails leaves everything as
//! it was and says why; the next one tries again. Nothing is told from anywhere else.

mod apply;
mod aside;
mod look;
mod search;
mod tell;

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use trellis_client::NodeKey;
use trellis_clock::now_s;
use trellis_one::Backoff;
use trellis_one::gate::OneGate;

use crate::context::Values;
use crate::disk::{self, Owner};
use crate::facts::Facts;
use crate::place::{Place, USER};
use crate::readiness::{Publication, Seen, Standing};
use crate::recipe::Recipe;
use crate::settings::{Framework, Settings};
use crate::shards::Shards;
use crate::sources::{Sources, Stamp};
use crate::state::Memory;
use crate::supervisor::{Direct, Supervisor};
use crate::trouble::{Code, Trouble};
use aside::{Script, Submission};

pub use search::Joining;

/// Between two passes, unless something happens.
const PASS: Duration = Duration::from_secs(1);
/// While the VM boots, everybody waits for it.
const BOOT_PASS: Duration = Duration::from_millis(500);
/// The last word, when we end.
const FAREWELL: Duration = Duration::from_secs(5);

/// What becomes of trouble that waiting does not mend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolve {
    /// The boot is over with it: somebody else decides whether to try again.
    GiveUp { limit: Duration },
    /// Stay, say what is wrong, and try again.
    Stay,
}

pub struct Agent {
    place: Place,
    owner: Option<Owner>,
    sources: Sources,
    supervisor: Supervisor,
    resolve: Resolve,
    memory: Memory,
    key: Arc<NodeKey>,
    began: Instant,
    /// Looks only: the resident one may be at work beside it, and is the one that remembers.
    is_trial: bool,

    values: Values,
    stamp: Option<Stamp>,
    gate: Option<OneGate>,
    gate_looked: Option<Instant>,
    /// Delay until the next OneGate poll; `gate_pauses` yields the delays after it.
    gate_pause: Duration,
    gate_pauses: Backoff,
    gate_refusals: u32,
    /// The VM as OneGate showed it last.
    wishes: Wishes,
    /// Read and found good, whether in force or not.
    settings: Option<Settings>,
    facts: Facts,
    joining: Joining,
    shards: Shards,
    shards_looked: Option<Instant>,
    shards_pauses: Backoff,
    shards_pause: Duration,

    /// What is in force.
    recipe: Option<Recipe>,
    in_force: Option<Settings>,
    standing: Standing,
    certificates_looked: Option<Instant>,
    /// When the authority was last changed, as it was seen then: a rotation is followed at once.
    authority_seen: Option<SystemTime>,
    trust_is_new: bool,
    leaf_is_new: bool,
    /// That Python was found to have.
    framework: Framework,
    script: Script,
    restarted: Option<String>,
    submission: Submission,
    /// When a SuperLink last answered as it answers nodes, and which start of it.
    asked_fleet: Option<(Instant, Option<String>)>,
    seen: Seen,
    waiting: bool,
    publication: Publication,
    was_ready: bool,
    /// A program ends again and again: how.
    failing: Option<String>,
    /// Logged last.
    said: Option<Trouble>,
    said_ready: bool,
}

/// What the controller says through attributes of the VM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Wishes {
    /// There is a controller: nothing begins before it has said what.
    has_controller: bool,
    assignment: Option<String>,
    drain: bool,
    restart: Option<String>,
}

impl Agent {
    pub fn new(place: Place, sources: Sources, supervisor: Supervisor, resolve: Resolve) -> io::Result<Agent> {
        let key = place.memory().with_file_name("probe.key");
        Agent::with_key(place, sources, supervisor, resolve, &key)
    }

    fn with_key(
        place: Place,
        sources: Sources,
        supervisor: Supervisor,
        resolve: Resolve,
        key: &Path,
    ) -> io::Result<Agent> {
        crate::state_disk::mount(&sources.read(), &place).map_err(|trouble| io::Error::other(trouble.what))?;
        let memory = Memory::read(&place.memory()).unwrap_or_else(|error| {
            // Everything in it can be found out again.
            tracing::warn!("{error}; it begins anew");
            Memory::default()
        });
        let owner = Owner::find(&place.passwd(), USER);
        let key = probe_key(key)?;
        let shards = memory.shards.as_deref().and_then(Shards::parse).unwrap_or_default();
        let wishes = Wishes { assignment: memory.assignment.clone(), ..Wishes::default() };
        Ok(Agent {
            place,
            owner,
            sources,
            supervisor,
            resolve,
            memory,
            key: Arc::new(key),
            began: Instant::now(),
            is_trial: false,
            values: Values::default(),
            stamp: None,
            gate: None,
            gate_looked: None,
            gate_pause: look::GATE_INTERVAL,
            gate_pauses: Backoff::exponential(look::GATE_INTERVAL, look::IDLE_GATE_INTERVAL),
            gate_refusals: 0,
            wishes,
            settings: None,
            facts: Facts::default(),
            joining: Joining::default(),
            shards,
            shards_looked: None,
            shards_pauses: Backoff::exponential(search::SHARDS, search::IDLE_SHARDS),
            shards_pause: search::SHARDS,
            recipe: None,
            in_force: None,
            standing: Standing::default(),
            certificates_looked: None,
            authority_seen: None,
            trust_is_new: false,
            leaf_is_new: false,
            framework: Framework::None,
            script: Script::default(),
            restarted: None,
            submission: Submission::default(),
            asked_fleet: None,
            seen: Seen::default(),
            waiting: false,
            publication: Publication::default(),
            was_ready: false,
            failing: None,
            said: None,
            said_ready: false,
        })
    }

    /// Until it is told to stop, or the boot is over without success.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), Trouble> {
        tokio::pin!(stop);
        loop {
            let looked_at = now_s();
            let trouble = tokio::select! {
                passed = self.pass() => passed.err(),
                () = &mut stop => return self.farewell(None).await,
            };
            self.log(trouble.as_ref());
            self.write_status(trouble.as_ref(), looked_at);
            if let Some(trouble) = self.verdict(trouble) {
                self.farewell(Some(&trouble)).await?;
                return Err(trouble);
            }
            let pause = if self.was_ready { PASS } else { BOOT_PASS };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.supervisor.ended() => self.notice().await,
                () = &mut stop => return self.farewell(None).await,
            }
        }
    }

    /// What is told in the end is true of now: what is wrong is said with it.
    async fn pass(&mut self) -> Result<(), Trouble> {
        let made = self.make().await;
        self.seen = self.probe().await;
        let trouble = made.and_then(|()| self.judge()).err();
        let told = self.tell(trouble.as_ref()).await;
        self.was_ready |= told.is_ok() && self.seen.serving;
        self.submit();
        match trouble {
            Some(trouble) => Err(trouble),
            None => told,
        }
    }

    /// A program ended: what that means is said before anything else is done.
    async fn notice(&mut self) {
        self.seen = self.probe().await;
        let trouble = self.said.clone();
        let _ = self.tell(trouble.as_ref()).await;
    }

    /// The programs may end again and again, though all was well until they were started.
    fn judge(&self) -> Result<(), Trouble> {
        match &self.failing {
            Some(how) => Err(Trouble::new(Code::StartFailed, how.clone())),
            None => Ok(()),
        }
    }

    /// Whether this is the end of the boot.
    fn verdict(&self, trouble: Option<Trouble>) -> Option<Trouble> {
        let Resolve::GiveUp { limit } = self.resolve else { return None };
        if self.was_ready {
            return None;
        }
        let is_over = self.began.elapsed() >= limit;
        match trouble {
            Some(trouble) if trouble.code.entry().is_final || is_over => Some(trouble),
            None if is_over => Some(self.late()),
            _ => None,
        }
    }

    fn late(&self) -> Trouble {
        let what = match self.settings.as_ref().map(Settings::role) {
            Some(crate::settings::Role::SuperNode) => "the node is not connected to its SuperLink",
            Some(crate::settings::Role::Gateway) => "the tunnel is not up",
            _ => "the Fleet API does not answer",
        };
        Trouble::new(Code::HealthCheckTimeout, what)
    }

    /// Nobody watches from here on, so nothing is promised any more.
    async fn farewell(mut self, trouble: Option<&Trouble>) -> Result<(), Trouble> {
        self.seen = Seen { serving: false, ..self.seen.clone() };
        let _ = tokio::time::timeout(FAREWELL, self.tell(trouble)).await;
        self.supervisor.leave().await;
        if trouble.is_none() {
            let _ = std::fs::remove_file(self.place.status());
        }
        Ok(())
    }
}

/// Whether the context, and what the controller has said, can be used; what is wrong is told at OneGate too. Nothing is started.
pub async fn check(place: Place, sources: Sources) -> Result<Settings, Trouble> {
    let failed = |error: io::Error| Trouble::new(Code::PreflightFailed, error.to_string());
    let resolve = Resolve::GiveUp { limit: Duration::ZERO };
    let key = place.memory().with_file_name("check.key");
    let supervisor = Supervisor::Direct(Direct::default());
    let mut agent = Agent::with_key(place, sources, supervisor, resolve, &key).map_err(failed)?;
    agent.is_trial = true;
    let looked = agent.look().await;
    if let Err(trouble) = &looked {
        // Where a running agent tells of the rest, this is all that is said from here.
        let _ = tokio::time::timeout(FAREWELL, agent.tell_trouble(trouble)).await;
    }
    looked?;
    Ok(agent.settings.expect("a look that succeeds has read them"))
}

/// A key that no SuperLink knows: who asks with it is understood and refused.
fn probe_key(path: &Path) -> io::Result<NodeKey> {
    disk::make_directory(path.parent().unwrap_or(path), 0o700, None)?;
    match NodeKey::read(path).map_err(io::Error::other)? {
        Some(key) => Ok(key),
        None => NodeKey::generate(path, "probe").or_else(|error| {
            // Two stages may look at the same time: the first one's key is as good.
            NodeKey::read(path).ok().flatten().ok_or_else(|| io::Error::other(error))
        }),
    }
}

//! The monitoring of the node: its status (`Status`, for `trellis supernode status`) and metrics for Prometheus (`metrics`). Other
//! modules report events here; no decision depends on it.

mod ask;
mod metrics;
mod server;
mod status;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

pub use ask::{AskError, ask, drain};
pub use metrics::CONTENT_TYPE;
pub use server::{ListenError, StatusServer};
pub use status::{AppState, AppStatus, Disk, DrainRequest, Draining, Gpu, Link, Replies, RunStatus, Status, Transport};
use trellis_clock::now_s;
use trellis_core::Seconds;
use trellis_core::id::{NodeId, RunId};

use metrics::Metrics;

/// The name of the status socket in the state directory.
pub const SOCKET: &str = "node.sock";
/// The limit of runs in the status; the least recently active one is dropped.
const MAX_RUNS: usize = 64;

/// The static facts of a node.
#[derive(Debug, Clone)]
pub struct About {
    pub version: String,
    /// `host:port`
    pub superlink: String,
    pub state_dir: PathBuf,
}

/// How an instruction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Replied,
    /// Answered with an error.
    Failed,
    /// It will be executed again.
    Postponed,
}

/// Why a reply is not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// The TTL of the instruction has passed.
    Expired,
    /// The SuperLink refuses it: the run is over, or the SuperLink has a reply already.
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Received,
    Sent,
}

/// Why an app has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppEnd {
    /// It was idle for too long, or its run is over.
    Unneeded,
    /// It exceeded its memory limit.
    Memory,
    /// An instruction exceeded its timeout.
    Timeout,
    /// It exited during an instruction.
    Crashed,
}

/// Cheap to clone; all methods are thread-safe.
#[derive(Clone)]
pub struct Watch {
    shared: Arc<Shared>,
}

struct Shared {
    now: fn() -> Seconds,
    status: Mutex<Status>,
    apps: OnceLock<Box<dyn Fn() -> Vec<AppStatus> + Send + Sync>>,
    metrics: Metrics,
}

impl Watch {
    pub fn new(about: About) -> Watch {
        Watch::with_clock(about, now_s)
    }

    fn with_clock(about: About, now: fn() -> Seconds) -> Watch {
        let metrics = Metrics::new(&about.version);
        let status = Status {
            version: about.version,
            pid: std::process::id(),
            started_at: now(),
            state_dir: about.state_dir,
            superlink: about.superlink,
            node_id: None,
            node_name: None,
            link: Link::Connecting { since: now() },
            draining: false,
            asking: false,
            instructions_under_way: 0,
            runs: Vec::new(),
            replies: Replies::default(),
            apps: Vec::new(),
            gpu: Gpu::NotAsked,
            sandbox: None,
            disk: Disk::default(),
        };
        Watch { shared: Arc::new(Shared { now, status: Mutex::new(status), apps: OnceLock::new(), metrics }) }
    }

    fn status_mut(&self) -> MutexGuard<'_, Status> {
        self.shared.status.lock().expect("no holder panics")
    }

    fn now(&self) -> Seconds {
        (self.shared.now)()
    }

    /// The node is active at its SuperLink.
    pub fn link_up(&self, transport: Transport, node_id: NodeId) {
        self.shared.metrics.link_up(transport);
        let mut status = self.status_mut();
        status.node_id = Some(node_id);
        status.link = Link::Connected { since: self.now(), transport };
    }

    /// The name of the node at the SuperLink, if it has one.
    pub fn node_name(&self, name: Option<String>) {
        self.status_mut().node_name = name;
    }

    /// A call failed and is retried after `retry_in`. Reported after each failed attempt.
    pub fn link_lost(&self, why: &str, retry_in: Duration) {
        self.shared.metrics.link_lost();
        let now = self.now();
        let mut status = self.status_mut();
        let since = match status.link {
            Link::Disconnected { since, .. } | Link::Connecting { since } => since,
            Link::Connected { .. } => now,
        };
        status.link = Link::Disconnected { since, why: why.to_owned(), retry_at: now + retry_in.as_secs_f64() };
    }

    /// The drain state changed.
    pub fn draining(&self, draining: bool) {
        self.status_mut().draining = draining;
    }

    /// Whether a pull for instructions is open.
    pub fn asking(&self, asking: bool) {
        self.status_mut().asking = asking;
    }

    /// An instruction was received.
    pub fn instruction_received(&self) {
        self.shared.metrics.instruction_received();
    }

    /// Counts an instruction as active until the result is dropped.
    pub fn under_way(&self, run: RunId) -> UnderWay {
        let now = self.now();
        let mut status = self.status_mut();
        status.instructions_under_way += 1;
        run_of(&mut status.runs, run, now).under_way += 1;
        UnderWay { watch: self.clone(), run }
    }

    /// An execution ended; `runtime` is set if the app completed.
    pub fn instruction_done(&self, run: RunId, ending: Ending, runtime: Option<Duration>) {
        self.shared.metrics.instruction_done(ending, runtime);
        let now = self.now();
        let mut status = self.status_mut();
        let run = run_of(&mut status.runs, run, now);
        match ending {
            Ending::Replied => run.replied += 1,
            Ending::Failed => run.failed += 1,
            Ending::Postponed => {}
        }
    }

    /// A run is over.
    pub fn run_over(&self, run: RunId) {
        self.status_mut().runs.retain(|known| known.run_id != run);
    }

    /// A reply was delivered, this time after it was ready.
    pub fn reply_delivered(&self, age: Duration) {
        self.shared.metrics.reply_delivered(age);
    }

    pub fn reply_dropped(&self, why: Dropped) {
        self.shared.metrics.reply_dropped(why);
    }

    /// The undelivered replies, and the time of the oldest one.
    pub fn waiting(&self, replies: u64, bytes: u64, oldest_at: Option<Seconds>) {
        self.status_mut().replies = Replies { waiting: replies, bytes, oldest_at };
    }

    /// Bytes of objects were transferred.
    pub fn transferred(&self, direction: Direction, bytes: u64) {
        self.shared.metrics.transferred(direction, bytes);
    }

    /// Sets the function that lists the current apps. Called once.
    pub fn ask_for_apps(&self, apps: impl Fn() -> Vec<AppStatus> + Send + Sync + 'static) {
        let _ = self.shared.apps.set(Box::new(apps));
    }

    pub fn app_ended(&self, why: AppEnd) {
        self.shared.metrics.app_ended(why);
    }

    pub fn gpu(&self, gpu: Gpu) {
        self.status_mut().gpu = gpu;
    }

    /// Records the restrictions of the apps that the node starts.
    pub fn sandbox(&self, level: trellis_sandbox::Level) {
        self.status_mut().sandbox = Some(level);
    }

    /// The disk space of messages, replies and their objects, and its limit.
    pub fn disk(&self, used_bytes: u64, limit_bytes: u64) {
        self.status_mut().disk = Disk { used_bytes, limit_bytes };
    }

    /// The current status.
    pub fn status(&self) -> Status {
        let apps = self.shared.apps.get().map(|apps| apps()).unwrap_or_default();
        Status { apps, ..self.status_mut().clone() }
    }

    pub fn is_connected(&self) -> bool {
        matches!(self.status_mut().link, Link::Connected { .. })
    }

    /// The text for `/metrics`, labelled [`CONTENT_TYPE`].
    pub fn metrics(&self) -> String {
        self.shared.metrics.scrape(&self.status(), self.now())
    }
}

/// An active instruction.
pub struct UnderWay {
    watch: Watch,
    run: RunId,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut status = self.watch.status_mut();
        status.instructions_under_way = status.instructions_under_way.saturating_sub(1);
        // The run may be over meanwhile.
        if let Some(run) = status.runs.iter_mut().find(|known| known.run_id == self.run) {
            run.under_way = run.under_way.saturating_sub(1);
        }
    }
}

/// The entry of a run, created if missing.
fn run_of(runs: &mut Vec<RunStatus>, run: RunId, now: Seconds) -> &mut RunStatus {
    let index = runs.iter().position(|known| known.run_id == run).unwrap_or_else(|| {
        if runs.len() >= MAX_RUNS {
            let longest_ago = (0..runs.len()).min_by(|a, b| runs[*a].heard_at.total_cmp(&runs[*b].heard_at));
            runs.swap_remove(longest_ago.unwrap_or_default());
        }
        runs.push(RunStatus { run_id: run, under_way: 0, replied: 0, failed: 0, heard_at: now });
        runs.len() - 1
    });
    runs[index].heard_at = now;
    &mut runs[index]
}

/// The number of apps in each state, including zeros.
fn count_by_state(apps: &[AppStatus]) -> BTreeMap<&'static str, i64> {
    let mut counts: BTreeMap<_, _> = AppState::ALL.iter().map(|state| (state.word(), 0)).collect();
    for app in apps {
        *counts.entry(app.state.word()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests;

//! What the node tells about itself: how it is now (`Status`, for `trellis supernode status`), and numbers for Prometheus
//! (`metrics`). Whoever does something says so here; nobody ever asks the watch in order to decide.

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
pub use status::{AppState, AppStatus, Disk, DrainWish, Draining, Gpu, Link, Replies, RunStatus, Status, Transport};
use trellis_clock::now_s;
use trellis_core::Seconds;
use trellis_core::id::{NodeId, RunId};

use metrics::Metrics;

/// In the state directory: where a running node answers.
pub const SOCKET: &str = "node.sock";
/// Runs told of at once; the one that was heard of longest ago makes room.
const MAX_RUNS: usize = 64;

/// What is known of a node before it does anything.
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
    /// To be carried out again later.
    Postponed,
}

/// Why a reply will never be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// Nobody waits for it any more.
    Expired,
    /// The SuperLink does not take it: the run is over, or it has one already.
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Received,
    Sent,
}

/// Why an app is no longer there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppEnd {
    /// It was not needed: idle for too long, or its run is over.
    Unneeded,
    /// It grew beyond its limit.
    Memory,
    /// It was at work on one instruction for too long.
    Timeout,
    /// It ended by itself, in the middle of something.
    Crashed,
}

/// Cheap to clone; every method may be called from anywhere at any time.
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

    /// The node is known to its SuperLink, and can work.
    pub fn link_up(&self, transport: Transport, node_id: NodeId) {
        self.shared.metrics.link_up(transport);
        let mut status = self.status_mut();
        status.node_id = Some(node_id);
        status.link = Link::Connected { since: self.now(), transport };
    }

    /// The name that the SuperLink knows the node by, where it has one.
    pub fn node_name(&self, name: Option<String>) {
        self.status_mut().node_name = name;
    }

    /// The link does not work, and is tried again after `retry_in`. Said after each try that failed.
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

    /// The node takes no new work, or takes it again.
    pub fn draining(&self, draining: bool) {
        self.status_mut().draining = draining;
    }

    /// A question for work is open, or none is any more.
    pub fn asking(&self, asking: bool) {
        self.status_mut().asking = asking;
    }

    /// An instruction is here.
    pub fn instruction_received(&self) {
        self.shared.metrics.instruction_received();
    }

    /// Somebody works on an instruction, as long as this is not dropped: however that ends, it ends.
    pub fn under_way(&self, run: RunId) -> UnderWay {
        let now = self.now();
        let mut status = self.status_mut();
        status.instructions_under_way += 1;
        run_of(&mut status.runs, run, now).under_way += 1;
        UnderWay { watch: self.clone(), run }
    }

    /// An app has worked on an instruction, for `runtime` if it came to an end.
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

    /// Nothing more is expected for a run.
    pub fn run_over(&self, run: RunId) {
        self.status_mut().runs.retain(|known| known.run_id != run);
    }

    /// The SuperLink has a reply that was ready for `age`.
    pub fn reply_delivered(&self, age: Duration) {
        self.shared.metrics.reply_delivered(age);
    }

    pub fn reply_dropped(&self, why: Dropped) {
        self.shared.metrics.reply_dropped(why);
    }

    /// Replies that wait for the link, and since when the oldest one does.
    pub fn waiting(&self, replies: u64, bytes: u64, oldest_at: Option<Seconds>) {
        self.status_mut().replies = Replies { waiting: replies, bytes, oldest_at };
    }

    /// Bytes of objects went over the link.
    pub fn transferred(&self, direction: Direction, bytes: u64) {
        self.shared.metrics.transferred(direction, bytes);
    }

    /// Whom to ask for the apps that there are, whenever somebody wants to know. Said once.
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

    /// What messages, replies and their objects take of the disk, and may take.
    pub fn disk(&self, used_bytes: u64, limit_bytes: u64) {
        self.status_mut().disk = Disk { used_bytes, limit_bytes };
    }

    /// How the node is now.
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

/// An instruction that is being worked on.
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

/// The entry of a run, made where there is none yet.
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

/// Apps by state: every state has its number, zero too.
fn count_by_state(apps: &[AppStatus]) -> BTreeMap<&'static str, i64> {
    let mut counts: BTreeMap<_, _> = AppState::ALL.iter().map(|state| (state.word(), 0)).collect();
    for app in apps {
        *counts.entry(app.state.word()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests;

//! The pool of workers: active ones, idle ones that wait for the next instruction of their run, and a spare one for the next run.
//! `retention` decides which are kept; the pool does not know what workers execute.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use trellis_clock::now_s;
use trellis_core::Seconds;
use trellis_core::id::RunId;

use super::process::{Launcher, Process, StartError, Starting, Worker};
use super::retention::{Condition, EndReason, Retention, decide};
use super::{WorkerStatus, chain};
use crate::app::InstalledApp;
use crate::config::{Spare as SpareSetting, WarmSettings};
use crate::watch::{AppEnd, Watch};

pub struct Workers {
    pub launcher: Launcher,
    settings: WarmSettings,
    watch: Watch,
    pool: Mutex<Pool>,
    /// Workers that are being stopped.
    endings: TaskTracker,
}

#[derive(Default)]
struct Pool {
    idle: HashMap<RunId, Idle>,
    busy: HashMap<RunId, Serving>,
    spare: Option<Spare>,
    /// A run came that had no worker; another may come.
    needs_spare: bool,
    /// Incremented with each released worker.
    releases: u64,
    closed: bool,
}

/// A worker that is assigned to a run.
pub struct RunWorker {
    pub worker: Worker,
    pub run: RunId,
    /// The hash of its app's bundle.
    hash: String,
    messages: u64,
}

struct Idle {
    worker: RunWorker,
    since: Instant,
    release: u64,
    _timer: Timer,
}

struct Serving {
    process: Process,
    messages: u64,
    started: Seconds,
}

struct Spare {
    process: Process,
    started: Seconds,
    starting: AbortOnDropHandle<Result<Worker, StartError>>,
    _timer: Timer,
}

/// A delayed action; dropping it cancels the action.
struct Timer(AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Workers {
    pub fn new(launcher: Launcher, settings: WarmSettings, watch: Watch) -> Workers {
        Workers { launcher, settings, watch, pool: Mutex::default(), endings: TaskTracker::new() }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().expect("no holder panics")
    }

    pub fn are_closed(&self) -> bool {
        self.pool().closed
    }

    /// Acquires the worker of the run if it is still usable, otherwise the spare one, otherwise a new one.
    pub async fn acquire(&self, run: RunId, app: &InstalledApp) -> Result<RunWorker, StartError> {
        if let Some(owned) = self.take_idle(run, app) {
            return Ok(owned);
        }
        let spare = {
            let mut pool = self.pool();
            pool.needs_spare = true;
            pool.spare.take()
        };
        let ready = match spare {
            // If the spare one failed, starting another one gives the error.
            Some(spare) => spare.starting.await.ok().and_then(Result::ok).filter(|it| !it.process().has_ended()),
            None => None,
        };
        let worker = match ready {
            Some(worker) => worker,
            None => self.launcher.start()?.ready().await?.0,
        };
        worker.belongs_to(run);
        tracing::info!(%run, pid = worker.process().pid(), app = app.id, "app worker started");
        Ok(RunWorker { worker, run, hash: app.hash.clone(), messages: 0 })
    }

    fn take_idle(&self, run: RunId, app: &InstalledApp) -> Option<RunWorker> {
        let Idle { worker: owned, .. } = self.pool().idle.remove(&run)?;
        let gone = owned.worker.process().has_ended();
        let seen = Condition { gone, app_changed: owned.hash != app.hash, ..Condition::default() };
        match decide(&seen, &self.settings) {
            Retention::Keep => Some(owned),
            Retention::End(reason) => {
                self.retire(owned, reason);
                None
            }
        }
    }

    /// Keeps a worker for the next instruction of its run, or stops it.
    pub fn release(self: &Arc<Self>, mut owned: RunWorker, loaded: bool) {
        owned.messages += 1;
        let process = owned.worker.process();
        let (gone, resident_bytes) = (process.has_ended(), process.resident_bytes());
        let seen = Condition { gone, not_loaded: !loaded, resident_bytes, ..Condition::default() };
        let fate = decide(&seen, &self.settings);
        let mut pool = self.pool();
        match fate {
            Retention::End(reason) => self.retire(owned, reason),
            Retention::Keep if pool.closed => self.retire(owned, EndReason::Closing),
            Retention::Keep => self.keep(&mut pool, owned),
        }
        if self.settings.spare == SpareSetting::EveryRun
            && pool.spare.is_none()
            && std::mem::take(&mut pool.needs_spare)
        {
            drop(pool);
            let spare = self.start_spare();
            let mut pool = self.pool();
            pool.spare = spare.filter(|_| !pool.closed);
        }
    }

    fn keep(self: &Arc<Self>, pool: &mut Pool, owned: RunWorker) {
        let (run, release) = (owned.run, pool.releases);
        pool.releases += 1;
        let timer = self.later(self.settings.idle, move |workers| workers.end_idle(run, release));
        pool.idle.insert(run, Idle { worker: owned, since: Instant::now(), release, _timer: timer });
        let oldest = pool.idle.iter().min_by_key(|(_, idle)| idle.release).map(|(run, _)| *run);
        if let Some(oldest) = oldest {
            let seen = Condition { more_recent: pool.idle.len() - 1, ..Condition::default() };
            self.end_if(pool, oldest, &seen);
        }
    }

    /// Stops an idle worker, unless it was used in between.
    fn end_idle(&self, run: RunId, release: u64) {
        let mut pool = self.pool();
        if let Some(idle) = pool.idle.get(&run).filter(|idle| idle.release == release) {
            let seen = Condition { idle: idle.since.elapsed(), ..Condition::default() };
            self.end_if(&mut pool, run, &seen);
        }
    }

    fn end_if(&self, pool: &mut Pool, run: RunId, seen: &Condition) {
        if let Retention::End(reason) = decide(seen, &self.settings)
            && let Some(idle) = pool.idle.remove(&run)
        {
            self.retire(idle.worker, reason);
        }
    }

    fn retire(&self, owned: RunWorker, reason: EndReason) {
        let RunWorker { worker, run, messages, .. } = owned;
        match reason {
            EndReason::TooLarge { .. } => self.watch.app_ended(AppEnd::Memory),
            // The failed instruction has logged the reason.
            EndReason::Gone | EndReason::NotLoaded => {}
            _ => self.watch.app_ended(AppEnd::Unneeded),
        }
        tracing::info!(%run, pid = worker.process().pid(), messages, "app worker ended: {reason}");
        self.endings.spawn(worker.end());
    }

    fn start_spare(self: &Arc<Self>) -> Option<Spare> {
        let starting = match self.launcher.start() {
            Ok(starting) => starting,
            Err(error) => {
                tracing::debug!("no spare app worker: {}", chain(&error));
                return None;
            }
        };
        let process = starting.process().clone();
        let timer = self.later(self.settings.idle, |workers| drop(workers.pool().spare.take()));
        let ready = async |starting: Starting| starting.ready().await.map(|(worker, _)| worker);
        let starting = AbortOnDropHandle::new(tokio::spawn(ready(starting)));
        Some(Spare { process, started: now_s(), starting, _timer: timer })
    }

    /// Stops the worker of a finished run.
    pub fn end_run(&self, run: RunId) {
        let idle = self.pool().idle.remove(&run);
        if let Some(idle) = idle {
            self.retire(idle.worker, EndReason::RunOver);
        }
    }

    pub async fn close(&self) {
        {
            let mut pool = self.pool();
            pool.closed = true;
            pool.spare = None;
            pool.busy.values().for_each(|serving| serving.process.kill());
            for (_, idle) in std::mem::take(&mut pool.idle) {
                self.retire(idle.worker, EndReason::Closing);
            }
        }
        self.endings.close();
        self.endings.wait().await;
    }

    /// Keeps an unassigned worker as the spare one, if the settings ask for one.
    pub fn keep_spare(self: &Arc<Self>, worker: Worker) {
        if self.settings.spare == SpareSetting::None {
            self.endings.spawn(worker.end());
            return;
        }
        let (process, started) = (worker.process().clone(), worker.started);
        let timer = self.later(self.settings.idle, |workers| drop(workers.pool().spare.take()));
        let starting = AbortOnDropHandle::new(tokio::spawn(async { Ok(worker) }));
        self.pool().spare = Some(Spare { process, started, starting, _timer: timer });
    }

    pub fn status(&self) -> Vec<WorkerStatus> {
        let pool = self.pool();
        let tell = |process: &Process, run, busy, messages, started| WorkerStatus {
            run,
            pid: process.pid(),
            busy,
            messages,
            rss_bytes: process.resident_bytes(),
            started,
        };
        let busy = pool.busy.iter().map(|(run, it)| tell(&it.process, Some(*run), true, it.messages, it.started));
        let idle = pool.idle.iter().map(|(run, Idle { worker: owned, .. })| {
            tell(owned.worker.process(), Some(*run), false, owned.messages, owned.worker.started)
        });
        let spare = pool.spare.iter().map(|spare| tell(&spare.process, None, false, 0, spare.started));
        let mut all: Vec<_> = busy.chain(idle).chain(spare).collect();
        all.sort_by_key(|worker| (worker.run, worker.pid));
        all
    }

    fn later(self: &Arc<Self>, delay: Duration, what: impl FnOnce(&Workers) + Send + 'static) -> Timer {
        let workers: Weak<Workers> = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            if let Some(workers) = workers.upgrade() {
                what(&workers);
            }
        });
        Timer(task.abort_handle())
    }
}

/// An active worker, visible in the status. Dropping it before `done` kills the worker.
pub struct ActiveWorker<'a> {
    workers: &'a Workers,
    run: RunId,
    owned: Option<RunWorker>,
}

impl<'a> ActiveWorker<'a> {
    pub fn begin(workers: &'a Workers, owned: RunWorker) -> ActiveWorker<'a> {
        let (process, started) = (owned.worker.process().clone(), owned.worker.started);
        let mut pool = workers.pool();
        if pool.closed {
            process.kill();
        }
        pool.busy.insert(owned.run, Serving { process, messages: owned.messages, started });
        ActiveWorker { workers, run: owned.run, owned: Some(owned) }
    }

    pub fn worker(&mut self) -> &mut Worker {
        &mut self.owned.as_mut().expect("only `done` takes it").worker
    }

    pub fn done(mut self) -> RunWorker {
        self.owned.take().expect("only `done` takes it")
    }
}

impl Drop for ActiveWorker<'_> {
    fn drop(&mut self) {
        self.workers.pool().busy.remove(&self.run);
    }
}

//! The workers of a node: which are at work, which rest for the next instruction of their run, and which waits for the next
//! run. When one goes is decided in `fate`; what they are asked to do is not known here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use trellis_clock::now_s;
use trellis_core::Seconds;
use trellis_core::id::RunId;

use super::fate::{Condition, Fate, Why, fate};
use super::process::{Launcher, Process, StartError, Starting, Worker};
use super::{WorkerStatus, chain};
use crate::app::InstalledApp;
use crate::config::{Spare as SpareSetting, WarmSettings};
use crate::watch::{AppEnd, Watch};

pub struct Workers {
    pub launcher: Launcher,
    settings: WarmSettings,
    watch: Watch,
    pool: Mutex<Pool>,
    /// Workers on their way out.
    endings: TaskTracker,
}

#[derive(Default)]
struct Pool {
    idle: HashMap<RunId, Idle>,
    busy: HashMap<RunId, Serving>,
    spare: Option<Spare>,
    /// A run came that had no worker; another may come.
    wants_spare: bool,
    /// Grows with each worker that comes to rest.
    rests: u64,
    closed: bool,
}

/// A worker that belongs to a run.
pub struct Owned {
    pub worker: Worker,
    pub run: RunId,
    /// The bundle that its app came in.
    hash: String,
    messages: u64,
}

struct Idle {
    owned: Owned,
    since: Instant,
    rest: u64,
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

/// Something that happens later, unless nobody needs it any more.
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
        self.pool.lock().expect("nobody panics while holding it")
    }

    pub fn are_closed(&self) -> bool {
        self.pool().closed
    }

    /// The worker of the run if it is still of use, else the spare one, else a new one.
    pub async fn one_for(&self, run: RunId, app: &InstalledApp) -> Result<Owned, StartError> {
        if let Some(owned) = self.take_idle(run, app) {
            return Ok(owned);
        }
        let spare = {
            let mut pool = self.pool();
            pool.wants_spare = true;
            pool.spare.take()
        };
        let ready = match spare {
            // If something is wrong with it, starting another one tells.
            Some(spare) => spare.starting.await.ok().and_then(Result::ok).filter(|it| !it.process().has_ended()),
            None => None,
        };
        let worker = match ready {
            Some(worker) => worker,
            None => self.launcher.start()?.ready().await?.0,
        };
        worker.belongs_to(run);
        tracing::info!(%run, pid = worker.process().pid(), app = app.id, "app worker started");
        Ok(Owned { worker, run, hash: app.hash.clone(), messages: 0 })
    }

    fn take_idle(&self, run: RunId, app: &InstalledApp) -> Option<Owned> {
        let Idle { owned, .. } = self.pool().idle.remove(&run)?;
        let gone = owned.worker.process().has_ended();
        let seen = Condition { gone, app_changed: owned.hash != app.hash, ..Condition::default() };
        match fate(&seen, &self.settings) {
            Fate::Keep => Some(owned),
            Fate::End(why) => {
                self.retire(owned, why);
                None
            }
        }
    }

    /// Keeps a worker for the next instruction of its run, if it deserves it.
    pub fn rest(self: &Arc<Self>, mut owned: Owned, loaded: bool) {
        owned.messages += 1;
        let process = owned.worker.process();
        let (gone, resident_bytes) = (process.has_ended(), process.resident_bytes());
        let seen = Condition { gone, not_loaded: !loaded, resident_bytes, ..Condition::default() };
        let fate = fate(&seen, &self.settings);
        let mut pool = self.pool();
        match fate {
            Fate::End(why) => self.retire(owned, why),
            Fate::Keep if pool.closed => self.retire(owned, Why::Closing),
            Fate::Keep => self.keep(&mut pool, owned),
        }
        if self.settings.spare == SpareSetting::EveryRun
            && pool.spare.is_none()
            && std::mem::take(&mut pool.wants_spare)
        {
            drop(pool);
            let spare = self.start_spare();
            let mut pool = self.pool();
            pool.spare = spare.filter(|_| !pool.closed);
        }
    }

    fn keep(self: &Arc<Self>, pool: &mut Pool, owned: Owned) {
        let (run, rest) = (owned.run, pool.rests);
        pool.rests += 1;
        let timer = self.later(self.settings.idle, move |workers| workers.end_idle(run, rest));
        pool.idle.insert(run, Idle { owned, since: Instant::now(), rest, _timer: timer });
        let oldest = pool.idle.iter().min_by_key(|(_, idle)| idle.rest).map(|(run, _)| *run);
        if let Some(oldest) = oldest {
            let seen = Condition { fresher: pool.idle.len() - 1, ..Condition::default() };
            self.end_if(pool, oldest, &seen);
        }
    }

    /// The time of an idle worker is up, unless it was needed in between.
    fn end_idle(&self, run: RunId, rest: u64) {
        let mut pool = self.pool();
        if let Some(idle) = pool.idle.get(&run).filter(|idle| idle.rest == rest) {
            let seen = Condition { idle: idle.since.elapsed(), ..Condition::default() };
            self.end_if(&mut pool, run, &seen);
        }
    }

    fn end_if(&self, pool: &mut Pool, run: RunId, seen: &Condition) {
        if let Fate::End(why) = fate(seen, &self.settings)
            && let Some(idle) = pool.idle.remove(&run)
        {
            self.retire(idle.owned, why);
        }
    }

    fn retire(&self, owned: Owned, why: Why) {
        let Owned { worker, run, messages, .. } = owned;
        match why {
            Why::TooLarge { .. } => self.watch.app_ended(AppEnd::Memory),
            // Whose instruction it failed has told.
            Why::Gone | Why::NotLoaded => {}
            _ => self.watch.app_ended(AppEnd::Unneeded),
        }
        tracing::info!(%run, pid = worker.process().pid(), messages, "app worker ended: {why}");
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

    /// Nothing more comes for a run.
    pub fn end_run(&self, run: RunId) {
        let idle = self.pool().idle.remove(&run);
        if let Some(idle) = idle {
            self.retire(idle.owned, Why::RunOver);
        }
    }

    pub async fn close(&self) {
        {
            let mut pool = self.pool();
            pool.closed = true;
            pool.spare = None;
            pool.busy.values().for_each(|serving| serving.process.kill());
            for (_, idle) in std::mem::take(&mut pool.idle) {
                self.retire(idle.owned, Why::Closing);
            }
        }
        self.endings.close();
        self.endings.wait().await;
    }

    /// Keeps a worker that belongs to nobody for the first run, where one is to be kept.
    pub fn lay_by(self: &Arc<Self>, worker: Worker) {
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
        let idle = pool.idle.iter().map(|(run, Idle { owned, .. })| {
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

/// A worker at work, which everybody can see. Dropped before it is done, the worker is ended.
pub struct AtWork<'a> {
    workers: &'a Workers,
    run: RunId,
    owned: Option<Owned>,
}

impl<'a> AtWork<'a> {
    pub fn begin(workers: &'a Workers, owned: Owned) -> AtWork<'a> {
        let (process, started) = (owned.worker.process().clone(), owned.worker.started);
        let mut pool = workers.pool();
        if pool.closed {
            process.kill();
        }
        pool.busy.insert(owned.run, Serving { process, messages: owned.messages, started });
        AtWork { workers, run: owned.run, owned: Some(owned) }
    }

    pub fn worker(&mut self) -> &mut Worker {
        &mut self.owned.as_mut().expect("`done` alone takes it").worker
    }

    pub fn done(mut self) -> Owned {
        self.owned.take().expect("`done` alone takes it")
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.workers.pool().busy.remove(&self.run);
    }
}

//! The running node: four loops around one store. `session` keeps the node registered and active, `intake` pulls instructions,
//! `execution` processes them, `delivery` sends the replies. They communicate only through the store and the signals here, so
//! each continues while another waits for the link, an app or the disk.

mod app_log;
mod delivery;
mod describe;
mod execution;
mod install;
mod intake;
mod link;
mod session;
mod shard;
mod transfer;
mod upkeep;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Notify, RwLock, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trellis_client::fleet::Fleet;
use trellis_clock::now_s;
use trellis_core::id::{MessageId, NodeId, RunId};
use trellis_wire::error_reply::ErrorCode;
use trellis_wire::records::{Outgoing, error_reply};

use crate::app_log::AppLog;
use crate::apps::AppRunner;
use crate::config::Config;
use crate::drain::Drain;
use crate::error::Error;
use crate::store::{Answer, Store, StoreError, Waiting, Work};
use crate::watch::Watch;
use crate::work::{Event, Recovery, State, recover};
use link::Link;

/// The delay before a failed disk operation is retried.
const DISK_RETRY_DELAY: Duration = Duration::from_secs(2);
/// The time to deliver finished replies when the node stops.
const SHUTDOWN_DELIVERY_TIMEOUT: Duration = Duration::from_secs(3);

pub struct Engine {
    config: Config,
    store: Arc<Store>,
    apps: AppRunner,
    watch: Watch,
    drain: Drain,
    log: AppLog,
    link: Link,
    stop: CancellationToken,
    /// The node's id while it is active at the SuperLink.
    identity: watch::Sender<Option<NodeId>>,
    /// Signalled when a call shows that the SuperLink does not know this node.
    registration_lost: Notify,
    /// Signalled when a reply is in the store.
    answered: Notify,
    /// Limits concurrent instructions.
    slots: Arc<Semaphore>,
    /// One lock per run: its instructions are executed one after another, because each needs the context of the previous one.
    turns: std::sync::Mutex<BTreeMap<RunId, Arc<Mutex<()>>>>,
    known_apps: install::Apps,
    assigned_shard: shard::AssignedShard,
    /// The tasks of instructions. Each read-locks `busy`; while it is locked there may be objects that no row refers to yet.
    tasks: TaskTracker,
    busy: RwLock<()>,
}

impl Engine {
    pub fn new(
        config: Config,
        fleet: Fleet,
        store: Arc<Store>,
        apps: AppRunner,
        watch: Watch,
        drain: Drain,
        log: AppLog,
    ) -> Arc<Engine> {
        let stop = CancellationToken::new();
        let identity = watch::Sender::new(None);
        Arc::new(Engine {
            link: Link::new(fleet, config.retry, watch.clone(), stop.clone(), identity.subscribe()),
            slots: Arc::new(Semaphore::new(config.apps.max_concurrent)),
            identity,
            registration_lost: Notify::new(),
            answered: Notify::new(),
            turns: std::sync::Mutex::default(),
            known_apps: install::Apps::default(),
            assigned_shard: shard::AssignedShard::default(),
            tasks: TaskTracker::new(),
            busy: RwLock::new(()),
            config,
            store,
            apps,
            watch,
            drain,
            log,
            stop,
        })
    }

    /// Runs until `stop`, or until the link is given up.
    pub async fn run(self: Arc<Engine>, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let apps = Arc::downgrade(&self);
        self.watch.ask_for_apps(move || apps.upgrade().map(|engine| engine.apps.status()).unwrap_or_default());
        self.recover().await?;
        let mut loops = JoinSet::new();
        loops.spawn(session::keep(Arc::clone(&self)));
        loops.spawn(intake::take_all(Arc::clone(&self)));
        loops.spawn(delivery::deliver_all(Arc::clone(&self)));
        loops.spawn(describe::keep_described(Arc::clone(&self)));
        loops.spawn(app_log::send_all(Arc::clone(&self)));
        loops.spawn(upkeep::run(Arc::clone(&self)));
        let outcome = tokio::select! {
            () = stop => Ok(()),
            Some(ended) = loops.join_next() => ended.unwrap_or_else(|panic| Err(Error::Broken(panic.to_string()))),
        };
        if outcome.is_ok() {
            delivery::flush(&self, SHUTDOWN_DELIVERY_TIMEOUT).await;
        }
        self.stop.cancel();
        while loops.join_next().await.is_some() {}
        self.tasks.close();
        // Record what was interrupted: the number of attempts of an instruction is limited.
        let _ = tokio::time::timeout(SHUTDOWN_DELIVERY_TIMEOUT, self.tasks.wait()).await;
        self.apps.close().await;
        session::leave(&self).await;
        outcome
    }

    /// Resumes the work of the previous process.
    async fn recover(self: &Arc<Engine>) -> Result<(), Error> {
        let all = self.disk(|store| store.all_work()).await?;
        for work in all {
            match recover(work.state, work.attempts, work.expires_at, now_s()) {
                Recovery::Forget => self.disk(move |store| store.forget(work.id)).await?,
                Recovery::GiveUp => {
                    self.refuse(&work, ErrorCode::ClientAppCrashed, &execution::too_often(work.attempts)).await?;
                }
                Recovery::Continue(State::Replied) => {}
                Recovery::Continue(_) => {
                    if work.state == State::Running {
                        self.disk(move |store| store.step(work.id, Event::Interrupted)).await?;
                    }
                    tracing::info!(run = %work.run, instruction = %work.id, "an instruction from before the restart is resumed");
                    execution::start(Arc::clone(self), work.run, work.id, None);
                }
            }
        }
        self.update_waiting().await;
        Ok(())
    }

    /// Runs a change of the store on a blocking thread.
    async fn disk<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = Arc::clone(&self.store);
        if self.config.temporary.is_some() {
            // In memory: another thread costs more than the change.
            return change(&store);
        }
        match tokio::task::spawn_blocking(move || change(&store)).await {
            Ok(result) => result,
            Err(error) => Err(StoreError::Files(std::io::Error::other(error))),
        }
    }

    /// Like `disk`, but retries until it succeeds. `None`: the node is stopping.
    async fn until_stored<T: Send + 'static>(
        &self,
        what: &'static str,
        change: impl Fn(&Store) -> Result<T, StoreError> + Send + Sync + Clone + 'static,
    ) -> Option<T> {
        loop {
            match self.disk(change.clone()).await {
                Ok(done) => return Some(done),
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "{what}: retrying");
                }
            }
            self.pause(DISK_RETRY_DELAY).await?;
        }
    }

    /// Sleeps. `None`: the node is stopping.
    async fn pause(&self, time: Duration) -> Option<()> {
        tokio::select! {
            () = self.stop.cancelled() => None,
            () = tokio::time::sleep(time) => Some(()),
        }
    }

    /// Waits for the node's id at the SuperLink. `None`: the node is stopping.
    async fn identity(&self) -> Option<NodeId> {
        let mut identity = self.identity.subscribe();
        tokio::select! {
            () = self.stop.cancelled() => None,
            known = identity.wait_for(Option::is_some) => *known.ok()?,
        }
    }

    /// Reports that the SuperLink does not know this node: the session joins again, everything else waits.
    fn report_registration_lost(&self) {
        self.identity.send_replace(None);
        self.registration_lost.notify_one();
    }

    fn turn(&self, run: RunId) -> Arc<Mutex<()>> {
        let mut turns = self.turns.lock().expect("no holder panics");
        Arc::clone(turns.entry(run).or_default())
    }

    /// Answers an instruction with an error.
    async fn refuse(&self, work: &Work, code: ErrorCode, reason: &str) -> Result<bool, StoreError> {
        let reason = &self.log.mask(reason.to_owned());
        // Further lines of the reason are output of the app, which the log has.
        self.log.add(work.run, &format!("ERROR: {}", reason.lines().next().unwrap_or_default()));
        let metadata = work.instruction.metadata.clone().unwrap_or_default();
        let Outgoing { message, tree, objects } = error_reply(&metadata, now_s(), code, reason);
        let answer = Answer { message, tree, context: None, runtime_s: 0.0 };
        let id = work.id;
        self.disk(move |store| {
            for (object, bytes) in &objects {
                store.objects().put(*object, bytes)?;
            }
            store.answer(id, &answer, now_s())
        })
        .await
    }

    /// Removes everything of a finished run.
    async fn end_run(&self, run: RunId, reason: &str) {
        match self.until_stored("the end of a run cannot be stored", move |store| store.forget_run(run)).await {
            None => return,
            Some(dropped) => tracing::info!(%run, dropped, "the run is over: {reason}"),
        }
        self.turns.lock().expect("no holder panics").remove(&run);
        self.apps.end_run(run);
        self.watch.run_over(run);
        self.update_waiting().await;
    }

    /// Removes an instruction that was answered or is no longer needed.
    async fn forget(&self, id: MessageId) {
        self.until_stored("a finished instruction cannot be removed", move |store| store.forget(id)).await;
    }

    async fn update_waiting(&self) {
        if let Ok(Waiting { replies, bytes, oldest_at }) = self.disk(|store| store.waiting()).await {
            self.watch.waiting(replies, bytes, oldest_at);
        }
        self.answered.notify_one();
    }
}

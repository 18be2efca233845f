//! The node at work: four loops around one store. `session` keeps the node known to its SuperLink, `intake` takes
//! instructions, `carry` brings each of them to an answer, `delivery` hands the answers over. They meet only in the store and
//! in the signals here, so each goes on while another waits for the link, an app or the disk.

mod carry;
mod delivery;
mod describe;
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

use crate::apps::AppRunner;
use crate::config::Config;
use crate::drain::Drain;
use crate::error::Error;
use crate::store::{Answer, Store, StoreError, Waiting, Work};
use crate::watch::Watch;
use crate::work::{Event, Recovery, State, recover};
use link::Link;

/// Between two tries of something that the disk refused.
const DISK_PAUSE: Duration = Duration::from_secs(2);
/// Replies that are ready when the node is told to stop get so long to be delivered.
const FAREWELL: Duration = Duration::from_secs(3);

pub struct Engine {
    config: Config,
    store: Arc<Store>,
    apps: AppRunner,
    watch: Watch,
    drain: Drain,
    link: Link,
    stop: CancellationToken,
    /// The node's id while the SuperLink knows it.
    identity: watch::Sender<Option<NodeId>>,
    /// Somebody was told that the SuperLink does not know this node.
    disowned: Notify,
    /// An answer lies in the store.
    answered: Notify,
    /// Places for instructions under way.
    slots: Arc<Semaphore>,
    /// Instructions of one run are carried out one after the other: each finds the context that the one before left.
    turns: std::sync::Mutex<BTreeMap<RunId, Arc<Mutex<()>>>>,
    known_apps: install::Apps,
    told_shard: shard::ToldShard,
    /// Instructions under way. Their tasks read-lock `busy`: who holds it may have objects that no row asks for yet.
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
    ) -> Arc<Engine> {
        let stop = CancellationToken::new();
        let identity = watch::Sender::new(None);
        Arc::new(Engine {
            link: Link::new(fleet, config.retry, watch.clone(), stop.clone(), identity.subscribe()),
            slots: Arc::new(Semaphore::new(config.apps.max_concurrent)),
            identity,
            disowned: Notify::new(),
            answered: Notify::new(),
            turns: std::sync::Mutex::default(),
            known_apps: install::Apps::default(),
            told_shard: shard::ToldShard::default(),
            tasks: TaskTracker::new(),
            busy: RwLock::new(()),
            config,
            store,
            apps,
            watch,
            drain,
            stop,
        })
    }

    /// Works until told to stop, or until the link is given up.
    pub async fn run(self: Arc<Engine>, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let apps = Arc::downgrade(&self);
        self.watch.ask_for_apps(move || apps.upgrade().map(|engine| engine.apps.status()).unwrap_or_default());
        self.recover().await?;
        let mut loops = JoinSet::new();
        loops.spawn(session::keep(Arc::clone(&self)));
        loops.spawn(intake::take_all(Arc::clone(&self)));
        loops.spawn(delivery::deliver_all(Arc::clone(&self)));
        loops.spawn(describe::keep_told(Arc::clone(&self)));
        loops.spawn(upkeep::tidy(Arc::clone(&self)));
        let outcome = tokio::select! {
            () = stop => Ok(()),
            Some(ended) = loops.join_next() => ended.unwrap_or_else(|panic| Err(Error::Broken(panic.to_string()))),
        };
        if outcome.is_ok() {
            delivery::farewell(&self, FAREWELL).await;
        }
        self.stop.cancel();
        while loops.join_next().await.is_some() {}
        self.tasks.close();
        // What they broke off must be noted as that: an instruction is begun only so often.
        let _ = tokio::time::timeout(FAREWELL, self.tasks.wait()).await;
        self.apps.close().await;
        session::leave(&self).await;
        outcome
    }

    /// Takes up what was under way when the node ended.
    async fn recover(self: &Arc<Engine>) -> Result<(), Error> {
        let all = self.disk(|store| store.all_work()).await?;
        for work in all {
            match recover(work.state, work.attempts, work.expires_at, now_s()) {
                Recovery::Forget => self.disk(move |store| store.forget(work.id)).await?,
                Recovery::GiveUp => {
                    self.refuse(&work, ErrorCode::ClientAppCrashed, &carry::too_often(work.attempts)).await?;
                }
                Recovery::GoOn(State::Replied) => {}
                Recovery::GoOn(_) => {
                    if work.state == State::Running {
                        self.disk(move |store| store.step(work.id, Event::Interrupted)).await?;
                    }
                    tracing::info!(run = %work.run, instruction = %work.id, "an instruction from before the restart goes on");
                    carry::begin(Arc::clone(self), work.run, work.id, None);
                }
            }
        }
        self.note_owed().await;
        Ok(())
    }

    /// Runs what may wait for the disk where waiting hurts nobody.
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

    /// As `disk`, again and again until the disk takes it. `None`: the node stops.
    async fn until_stored<T: Send + 'static>(
        &self,
        what: &'static str,
        change: impl Fn(&Store) -> Result<T, StoreError> + Send + Sync + Clone + 'static,
    ) -> Option<T> {
        loop {
            match self.disk(change.clone()).await {
                Ok(done) => return Some(done),
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "{what}: trying again");
                }
            }
            self.pause(DISK_PAUSE).await?;
        }
    }

    /// Waits. `None`: the node stops.
    async fn pause(&self, time: Duration) -> Option<()> {
        tokio::select! {
            () = self.stop.cancelled() => None,
            () = tokio::time::sleep(time) => Some(()),
        }
    }

    /// The node's id, once the SuperLink knows it. `None`: the node stops.
    async fn identity(&self) -> Option<NodeId> {
        let mut identity = self.identity.subscribe();
        tokio::select! {
            () = self.stop.cancelled() => None,
            known = identity.wait_for(Option::is_some) => *known.ok()?,
        }
    }

    /// The SuperLink does not know this node: the session sees to it, everybody else waits.
    fn disown(&self) {
        self.identity.send_replace(None);
        self.disowned.notify_one();
    }

    fn turn(&self, run: RunId) -> Arc<Mutex<()>> {
        let mut turns = self.turns.lock().expect("nothing panics while it is held");
        Arc::clone(turns.entry(run).or_default())
    }

    /// Answers an instruction with an error.
    async fn refuse(&self, work: &Work, code: ErrorCode, reason: &str) -> Result<bool, StoreError> {
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

    /// Everything of a run goes: it is over.
    async fn end_run(&self, run: RunId, why: &str) {
        match self.until_stored("the end of a run could not be noted", move |store| store.forget_run(run)).await {
            None => return,
            Some(dropped) => tracing::info!(%run, dropped, "the run is over: {why}"),
        }
        self.turns.lock().expect("nothing panics while it is held").remove(&run);
        self.apps.end_run(run);
        self.watch.run_over(run);
        self.note_owed().await;
    }

    /// The reply, or the instruction, is of no use any more.
    async fn forget(&self, id: MessageId) {
        self.until_stored("an instruction that is done could not be forgotten", move |store| store.forget(id)).await;
    }

    async fn note_owed(&self) {
        if let Ok(Waiting { replies, bytes, oldest_at }) = self.disk(|store| store.waiting()).await {
            self.watch.waiting(replies, bytes, oldest_at);
        }
        self.answered.notify_one();
    }
}

//! The core's transactions on a store, with waiting. Independent of protocols.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use trellis_core::Seconds;
use trellis_core::id::RunId;
use trellis_core::port::{Job, Read, Store, Topic, Traffic, Tx};
use trellis_core::refusal::{Kind, Refusal};
use trellis_front::{SuperexecSecret, TlsSettings};
use trellis_wire::fab;

use crate::api::account::Logins;
use crate::app_logs::AppLogs;
use crate::app_trust::Peers;
use crate::changes::Changes;
use crate::clock::Clock;
use crate::config::{AppTrust, Isolation, Limits};
use crate::draining::Draining;
use crate::identity::Identities;
use crate::objects::HotObjects;
use crate::refusals::RefusalLog;
use crate::shards::Shards;
use crate::state::Directory;
use crate::wake::WaitingRoom;
use crate::watch::Watch;

/// The shared state of all front ends.
pub struct Link {
    store: Box<dyn Store>,
    /// Dropped after the store.
    directory: Directory,
    clock: Clock,
    traffic: Mutex<HashMap<RunId, Traffic>>,
    /// The last confirmation of each run that may not be durable yet.
    confirming: Mutex<HashMap<RunId, oneshot::Receiver<Result<(), Refusal>>>>,
    pub room: Arc<WaitingRoom>,
    pub limits: Limits,
    pub identities: Identities,
    pub hot: HotObjects,
    pub watch: Arc<Watch>,
    /// Finished runs that the watch does not know yet.
    pub ended: Arc<Mutex<Vec<RunId>>>,
    /// Recent changes for external observers.
    pub changes: Arc<Changes>,
    pub draining: Draining,
    pub shards: Shards,
    /// Output of ClientApps.
    pub app_logs: Arc<AppLogs>,
    /// Nodes must be registered through the Control API.
    pub supernode_auth: bool,
    /// Control calls require the token of an account.
    pub accounts: bool,
    pub logins: Logins,
    pub tls: Option<TlsSettings>,
    /// The secret with which SuperExecs sign.
    pub superexec_secret: Option<SuperexecSecret>,
    pub app_trust: AppTrust,
    pub peers: Peers,
    /// The component that starts ServerApps.
    pub isolation: Isolation,
    /// Defaults of runs.
    pub run_defaults: fab::Config,
    /// Native runs are trained on this machine, so their settings name local files.
    pub trains: bool,
    logged: Mutex<HashSet<String>>,
    /// Rate limits of refusals in the log and the audit log.
    pub refused: RefusalLog,
}

/// The settings of a link.
pub struct Settings {
    pub directory: Directory,
    pub limits: Limits,
    pub supernode_auth: bool,
    pub accounts: bool,
    pub tls: Option<TlsSettings>,
    pub superexec_secret: Option<SuperexecSecret>,
    pub app_trust: AppTrust,
    pub isolation: Isolation,
    pub run_defaults: fab::Config,
    pub trains: bool,
    pub ended: Arc<Mutex<Vec<RunId>>>,
    pub changes: Arc<Changes>,
}

/// Number of remembered messages of `log_once`.
const MAX_LOGGED: usize = 4096;

impl Link {
    pub fn new(store: Box<dyn Store>, room: Arc<WaitingRoom>, watch: Arc<Watch>, settings: Settings) -> Link {
        Link {
            store,
            app_logs: Arc::new(AppLogs::new((*settings.directory).as_ref())),
            directory: settings.directory,
            clock: Clock::default(),
            traffic: Mutex::default(),
            confirming: Mutex::default(),
            room,
            identities: Identities::default(),
            hot: HotObjects::new(settings.limits.object_cache_bytes),
            watch,
            ended: settings.ended,
            changes: settings.changes,
            draining: Draining::default(),
            shards: Shards::default(),
            limits: settings.limits,
            supernode_auth: settings.supernode_auth,
            accounts: settings.accounts,
            logins: Logins::default(),
            tls: settings.tls,
            superexec_secret: settings.superexec_secret,
            app_trust: settings.app_trust,
            peers: Peers::default(),
            isolation: settings.isolation,
            run_defaults: settings.run_defaults,
            trains: settings.trains,
            logged: Mutex::default(),
            refused: RefusalLog::default(),
        }
    }

    /// Logs a message once: a peer would cause it with every poll.
    pub fn log_once(&self, what: String, log: impl FnOnce()) {
        let mut logged = self.logged.lock().expect("no holder panics");
        if logged.len() >= MAX_LOGGED {
            logged.clear();
        }
        if logged.insert(what) {
            log();
        }
    }

    pub fn now(&self) -> Seconds {
        self.clock.now()
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The directory for files of this process.
    pub fn directory(&self) -> &Path {
        (*self.directory).as_ref()
    }

    /// Runs a short query on the caller's thread.
    pub fn read<T>(&self, question: impl FnOnce(&dyn Read) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let mut question = Some(question);
        let mut answer = None;
        self.store.read(&mut |view| {
            if let Some(question) = question.take() {
                answer = Some(question(view)?);
            }
            Ok(())
        })?;
        answer.ok_or_else(no_answer)
    }

    /// Makes a change and waits until it is durable. The change is made even if the caller is dropped.
    pub async fn write<T: Send + 'static>(
        &self,
        change: impl FnMut(&mut dyn Tx) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (result_tx, result_rx) = oneshot::channel();
        self.store.submit(Box::new(Change { change, result: None, result_tx }));
        result_rx.await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Like [`Link::write`], for frequent changes whose callers can wait: it shares a commit with other changes.
    pub async fn write_deferred<T: Send + 'static>(
        &self,
        change: impl FnMut(&mut dyn Tx) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (result_tx, result_rx) = oneshot::channel();
        self.store.submit_deferred(Box::new(Change { change, result: None, result_tx }));
        result_rx.await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Submits a change without waiting for it. A crash may lose it, so it must not matter. Later changes are committed
    /// after it.
    pub fn submit(&self, change: impl FnMut(&mut dyn Tx) -> Result<(), Refusal> + Send + 'static) {
        let (result_tx, _unheard) = oneshot::channel();
        self.store.submit(Box::new(Change { change, result: None, result_tx }));
    }

    /// Like [`Link::submit`], for confirmations of a run's ServerApp.
    pub fn write_confirmation(
        &self,
        run: RunId,
        change: impl FnMut(&mut dyn Tx) -> Result<(), Refusal> + Send + 'static,
    ) {
        let (result_tx, result_rx) = oneshot::channel();
        self.store.submit(Box::new(Change { change, result: None, result_tx }));
        let mut confirming = self.confirming.lock().expect("no holder panics");
        confirming.retain(|_, result_rx| matches!(result_rx.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
        confirming.insert(run, result_rx);
    }

    /// Waits until earlier confirmations of a run are visible. Otherwise a pull could return a reply whose objects are
    /// about to be deleted.
    pub async fn confirmed(&self, run: RunId) {
        let result_rx = self.confirming.lock().expect("no holder panics").remove(&run);
        if let Some(result_rx) = result_rx {
            let _ = result_rx.await;
        }
    }

    /// Announces a change of nodes outside of the store.
    pub fn nodes_changed(&self) {
        let topics = [Topic::Nodes, Topic::Changes];
        self.changes.record(&topics);
        self.room.announce(&topics);
    }

    /// Counts bytes exchanged for a run; [`Link::store_traffic`] stores them.
    pub fn note_traffic(&self, run: RunId, bytes_sent: u64, bytes_received: u64) {
        let mut traffic = self.traffic.lock().expect("no holder panics");
        let noted = traffic.entry(run).or_default();
        noted.bytes_sent += bytes_sent;
        noted.bytes_received += bytes_received;
    }

    /// Returns the counted bytes that are not stored yet.
    pub fn noted_traffic(&self, run: RunId) -> Traffic {
        self.traffic.lock().expect("no holder panics").get(&run).copied().unwrap_or_default()
    }

    pub async fn store_traffic(&self) -> Result<(), Refusal> {
        let noted = std::mem::take(&mut *self.traffic.lock().expect("no holder panics"));
        if noted.is_empty() {
            return Ok(());
        }
        self.write(move |tx| noted.iter().try_for_each(|(run, more)| tx.add_traffic(*run, *more))).await
    }
}

/// Error for callers during a shutdown.
pub const STOPPING: &str = "The SuperLink is stopping.";

fn no_answer() -> Refusal {
    Refusal::new(Kind::Transient, STOPPING)
}

/// A closure as a job.
struct Change<F, T> {
    change: F,
    result: Option<Result<T, Refusal>>,
    result_tx: oneshot::Sender<Result<T, Refusal>>,
}

impl<T: Send, F: FnMut(&mut dyn Tx) -> Result<T, Refusal> + Send> Job for Change<F, T> {
    fn run(&mut self, tx: &mut dyn Tx) -> bool {
        let result = (self.change)(tx);
        let keep = result.is_ok();
        self.result = Some(result);
        keep
    }

    fn done(self: Box<Self>, committed: Result<(), Refusal>) {
        let result = match (committed, self.result) {
            (_, Some(Err(refusal))) => Err(refusal),
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => Err(no_answer()),
            (Err(refusal), _) => Err(refusal),
        };
        let _ = self.result_tx.send(result);
    }
}

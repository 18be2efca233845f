//! The SuperLink's inside: the core's transactions on a store, with somewhere to wait. No protocol in here.

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

/// What every front end shares.
pub struct Link {
    store: Box<dyn Store>,
    /// Released after the store.
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
    /// Runs that have ended, of which the watch has not been told yet.
    pub ended: Arc<Mutex<Vec<RunId>>>,
    /// What changed lately, for those who watch from outside.
    pub changes: Arc<Changes>,
    pub draining: Draining,
    pub shards: Shards,
    /// Nodes must be registered through the Control API.
    pub supernode_auth: bool,
    /// Control calls need the token of an account.
    pub accounts: bool,
    pub logins: Logins,
    pub tls: Option<TlsSettings>,
    /// What those who start ServerApps must sign with.
    pub superexec_secret: Option<SuperexecSecret>,
    pub app_trust: AppTrust,
    pub peers: Peers,
    /// Selects the program that starts the ServerApps of runs.
    pub isolation: Isolation,
    /// What runs begin with.
    pub run_defaults: fab::Config,
    /// Native runs are trained on this machine, so their settings name files here.
    pub trains: bool,
    said: Mutex<HashSet<String>>,
    /// Which refusals the audit log has.
    pub refused: RefusalLog,
}

/// How a link is set up.
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

/// Things said once that are remembered.
const SAID: usize = 4096;

impl Link {
    pub fn new(store: Box<dyn Store>, room: Arc<WaitingRoom>, watch: Arc<Watch>, settings: Settings) -> Link {
        Link {
            store,
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
            said: Mutex::default(),
            refused: RefusalLog::default(),
        }
    }

    /// Says something that a peer would make us say with every poll.
    pub fn say_once(&self, what: String, say: impl FnOnce()) {
        let mut said = self.said.lock().expect("no holder panics");
        if said.len() >= SAID {
            said.clear();
        }
        if said.insert(what) {
            say();
        }
    }

    pub fn now(&self) -> Seconds {
        self.clock.now()
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// For files of this process.
    pub fn directory(&self) -> &Path {
        (*self.directory).as_ref()
    }

    /// Asks the store. Short: the caller's thread does it.
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

    /// Makes a change and waits until it is durable. A caller who goes away in between changes nothing about it.
    pub async fn write<T: Send + 'static>(
        &self,
        change: impl FnMut(&mut dyn Tx) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (tell, told) = oneshot::channel();
        self.store.submit(Box::new(Change { change, result: None, tell }));
        told.await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// As [`Link::write`], for what many ask for all the time and nobody waits for: it shares a commit with others.
    pub async fn write_soon<T: Send + 'static>(
        &self,
        change: impl FnMut(&mut dyn Tx) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (tell, told) = oneshot::channel();
        self.store.submit_soon(Box::new(Change { change, result: None, tell }));
        told.await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Submits a change that may be lost with the process without harm, and does not wait for it. What is submitted
    /// later still comes after it.
    pub fn write_unheard(&self, change: impl FnMut(&mut dyn Tx) -> Result<(), Refusal> + Send + 'static) {
        let (tell, _unheard) = oneshot::channel();
        self.store.submit(Box::new(Change { change, result: None, tell }));
    }

    /// As [`Link::write_unheard`], for confirmations of a run's ServerApp.
    pub fn write_confirmation(
        &self,
        run: RunId,
        change: impl FnMut(&mut dyn Tx) -> Result<(), Refusal> + Send + 'static,
    ) {
        let (tell, told) = oneshot::channel();
        self.store.submit(Box::new(Change { change, result: None, tell }));
        let mut confirming = self.confirming.lock().expect("no holder panics");
        confirming.retain(|_, told| matches!(told.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
        confirming.insert(run, told);
    }

    /// Waits until the confirmations of a run that came before can be seen. Otherwise a pull finds a reply whose objects are
    /// deleted before the ServerApp asks for them.
    pub async fn confirmed(&self, run: RunId) {
        let told = self.confirming.lock().expect("no holder panics").remove(&run);
        if let Some(told) = told {
            let _ = told.await;
        }
    }

    /// Nodes came, went or changed without a commit that says so.
    pub fn nodes_changed(&self) {
        let topics = [Topic::Nodes, Topic::Changes];
        self.changes.note(&topics);
        self.room.announce(&topics);
    }

    /// Notes bytes exchanged for a run; they are kept with the next [`Link::keep_traffic`].
    pub fn note_traffic(&self, run: RunId, bytes_sent: u64, bytes_received: u64) {
        let mut traffic = self.traffic.lock().expect("no holder panics");
        let noted = traffic.entry(run).or_default();
        noted.bytes_sent += bytes_sent;
        noted.bytes_received += bytes_received;
    }

    /// Bytes noted and not kept yet.
    pub fn noted_traffic(&self, run: RunId) -> Traffic {
        self.traffic.lock().expect("no holder panics").get(&run).copied().unwrap_or_default()
    }

    pub async fn keep_traffic(&self) -> Result<(), Refusal> {
        let noted = std::mem::take(&mut *self.traffic.lock().expect("no holder panics"));
        if noted.is_empty() {
            return Ok(());
        }
        self.write(move |tx| noted.iter().try_for_each(|(run, more)| tx.add_traffic(*run, *more))).await
    }
}

/// What callers hear who come too late.
pub const STOPPING: &str = "The SuperLink is stopping.";

fn no_answer() -> Refusal {
    Refusal::new(Kind::Transient, STOPPING)
}

/// A closure as a job.
struct Change<F, T> {
    change: F,
    result: Option<Result<T, Refusal>>,
    tell: oneshot::Sender<Result<T, Refusal>>,
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
        let _ = self.tell.send(result);
    }
}

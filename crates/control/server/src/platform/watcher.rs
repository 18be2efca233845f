//! Watches the SuperLink of one federation, and publishes its runs and their rounds as events. Each event is published once, even
//! if the SuperLink was unreachable in between.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use trellis_api::{Event, Run, RunState, Training, TrainingReport};
use trellis_client::{Error, SuperLink};
use trellis_reconcile::{self as reconcile, Backoff, Next, Reconciler};
use trellis_spec::Name;
use trellis_wire::call::{ListNodes, RunHistory, Watch};
use trellis_wire::proto;

use super::convert;
use super::fleet::LinkFleet;
use super::shared::Shared;
use super::superlink::Endpoint;

/// A SuperLink without changes answers after this time.
const LONG_POLL_S: u64 = 25;
/// Changes within this time are read together: rounds of a small model take milliseconds.
const BATCH_DELAY: Duration = Duration::from_millis(30);
/// If more runs than this changed, all runs are listed in one call.
const MAX_SINGLE_RUNS: usize = 8;
/// Poll interval with and without an active run, for a SuperLink that does not report changes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Delay after a failed call.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(250);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// The status of nodes that were revoked or deregistered.
const UNREGISTERED: &str = "unregistered";
/// How many of the runs that ended before the watcher started it reads the rounds of: the newest.
const MAX_OLD_HISTORIES: usize = 50;
const LOST: &str = "the SuperLink does not know this run any more";

pub struct Watcher {
    shared: Arc<Shared>,
    name: Name,
    /// Wakes the controller.
    wake: Arc<Notify>,
    fleet: Arc<LinkFleet>,
    /// Address of the SuperLink, as the controller observed it.
    endpoints: watch::Receiver<Option<Endpoint>>,
    followed: BTreeMap<u64, Followed>,
    /// The runs were listed before, so that new runs are published as events.
    has_listed: bool,
    /// The SuperLink stores the reports of rounds.
    has_rounds: bool,
}

/// How the watcher learns of changes.
enum Watching {
    /// The SuperLink reports changes after this position.
    From(Option<String>),
    /// The watcher polls.
    Polled,
}

enum Change {
    Runs(Vec<String>),
    Any,
}

/// What was published of a run.
#[derive(Default)]
struct Followed {
    training: Training,
    /// Position of the last report, and the hash of its text.
    last: Option<(Place, u64)>,
    over: bool,
}

/// Round, and whether it is the report of the end, which comes after that of the round.
type Place = (u64, bool);

impl Watcher {
    pub fn new(
        shared: Arc<Shared>,
        name: Name,
        wake: Arc<Notify>,
        fleet: Arc<LinkFleet>,
        endpoints: watch::Receiver<Option<Endpoint>>,
    ) -> Watcher {
        Watcher {
            shared,
            name,
            wake,
            fleet,
            endpoints,
            followed: BTreeMap::new(),
            has_listed: false,
            has_rounds: false,
        }
    }

    /// Never returns.
    pub async fn run(mut self) {
        let backoff = Backoff::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
        reconcile::run(&mut self, backoff, tokio::time::sleep, std::future::pending()).await;
    }

    /// Watches one SuperLink until a call fails. Returns whether an earlier call succeeded.
    async fn session(&mut self, endpoint: &Endpoint) -> bool {
        let mut has_answered = false;
        let superlink = match endpoint.superlink() {
            Ok(superlink) => superlink,
            Err(refusal) => {
                tracing::warn!(federation = %self.name, "{refusal}");
                return has_answered;
            }
        };
        self.has_rounds = endpoint.is_ours;
        self.fleet.begin();
        let mut watching = if endpoint.is_ours { Watching::From(None) } else { Watching::Polled };
        loop {
            let read = match self.change(&superlink, &mut watching).await {
                Ok(Change::Runs(runs)) => self.read_runs(&superlink, &runs).await,
                Ok(Change::Any) => self.read_all_runs(&superlink).await,
                Err(error) => Err(error),
            };
            if let Err(error) = read {
                tracing::debug!(federation = %self.name, %error, "the runs of its SuperLink cannot be read");
                // The controller finds the cause.
                self.wake.notify_one();
                return has_answered;
            }
            has_answered = true;
        }
    }

    /// Waits for a change.
    async fn change(&self, superlink: &SuperLink, watching: &mut Watching) -> Result<Change, Error> {
        let after = match watching {
            Watching::From(after) => after,
            Watching::Polled => {
                let active = self.followed.values().any(|followed| !followed.over);
                tokio::time::sleep(if active { POLL_INTERVAL } else { IDLE_POLL_INTERVAL }).await;
                return Ok(Change::Any);
            }
        };
        if after.is_some() {
            tokio::time::sleep(BATCH_DELAY).await;
        }
        let changed = match superlink.call(&Watch { after: after.clone(), wait_s: Some(LONG_POLL_S) }).await {
            Err(error) if error.is_unknown_call() => {
                *watching = Watching::Polled;
                return Ok(Change::Any);
            }
            changed => changed?,
        };
        if changed.nodes {
            self.read_nodes(superlink).await?;
            self.wake.notify_one();
        }
        // The first answer may not list all runs.
        let first = after.replace(changed.at).is_none();
        let few = !first && self.has_listed && changed.runs.len() <= MAX_SINGLE_RUNS;
        Ok(if few { Change::Runs(changed.runs) } else { Change::Any })
    }

    async fn read_nodes(&self, superlink: &SuperLink) -> Result<(), Error> {
        let listed = superlink.call(&ListNodes {}).await?;
        let nodes = listed.nodes.into_iter().filter(|node| node.status != UNREGISTERED).map(convert::node).collect();
        self.shared.views.note(&self.name, |view| view.link = Some(nodes));
        Ok(())
    }

    async fn read_runs(&mut self, superlink: &SuperLink, runs: &[String]) -> Result<(), Error> {
        for id in runs.iter().filter_map(|id| id.parse().ok()) {
            for run in superlink.list_runs(Some(id)).await? {
                let run = convert::run(self.name.as_str(), run);
                self.follow(superlink, id, run, false, true).await?;
            }
        }
        Ok(())
    }

    async fn read_all_runs(&mut self, superlink: &SuperLink) -> Result<(), Error> {
        // Read before the list: a run that is submitted in between must not count as lost.
        let view = self.shared.views.get(&self.name);
        let unfinished: Vec<Run> = view.iter().flat_map(|view| view.runs.unfinished().cloned()).collect();
        let mut runs = superlink.list_runs(None).await?;
        self.note_lost(superlink, &runs, unfinished).await?;
        runs.sort_by_key(|run| std::cmp::Reverse(run.pending_at.clone()));
        let quiet = !self.has_listed;
        let mut starters = if quiet { self.shared.starters(&self.name).await } else { BTreeMap::new() };
        for (index, listed) in runs.into_iter().enumerate() {
            let id = listed.run_id;
            let mut run = convert::run(self.name.as_str(), listed);
            run.started_by = starters.remove(&run.id);
            if self.followed.get(&id).is_some_and(|followed| followed.over) {
                continue;
            }
            let is_old = quiet && run.state == RunState::Finished && index >= MAX_OLD_HISTORIES;
            self.follow(superlink, id, run, quiet, !is_old).await?;
        }
        self.has_listed = true;
        self.shared.views.note(&self.name, |view| {
            if !view.runs.complete {
                Arc::make_mut(&mut view.runs).complete = true;
            }
        });
        Ok(())
    }

    /// Marks runs as failed that the SuperLink does not know: it lost its state, or was replaced.
    async fn note_lost(&self, superlink: &SuperLink, listed: &[proto::Run], known: Vec<Run>) -> Result<(), Error> {
        for run in known {
            let Ok(id) = run.id.parse() else { continue };
            let exists = listed.iter().any(|listed| listed.run_id == id) || is_known(superlink, id).await?;
            if !exists {
                self.shared.note_run(&self.name, convert::ended(run, "failed", LOST)).await;
            }
        }
        Ok(())
    }

    /// Publishes the changes of a run: its rounds before its state, so that its end is the last event.
    async fn follow(
        &mut self,
        superlink: &SuperLink,
        id: u64,
        mut run: Run,
        quiet: bool,
        rounds: bool,
    ) -> Result<(), Error> {
        let followed = self.followed.entry(id).or_default();
        if self.has_rounds && run.state != RunState::Pending && rounds {
            for report in followed.news(superlink, id).await? {
                if !quiet {
                    let (federation, run) = (self.name.to_string(), id.to_string());
                    self.shared.views.publish(Event::Round { federation, run, report });
                }
            }
        }
        followed.over = run.state == RunState::Finished;
        if followed.last.is_some() {
            run.training = Some(followed.training.clone());
        }
        self.shared.note_run(&self.name, run).await;
        Ok(())
    }
}

impl Reconciler for Watcher {
    async fn reconcile(&mut self) -> Next {
        let Some(endpoint) = self.endpoints.borrow_and_update().clone() else { return Next::WhenWoken };
        let mut endpoints = self.endpoints.clone();
        tokio::select! {
            has_answered = self.session(&endpoint) => {
                if has_answered { Next::After(MIN_RETRY_DELAY) } else { Next::Retry }
            }
            _ = endpoints.changed() => Next::After(Duration::ZERO),
        }
    }

    async fn woken(&mut self) {
        if self.endpoints.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

async fn is_known(superlink: &SuperLink, id: u64) -> Result<bool, Error> {
    match superlink.list_runs(Some(id)).await {
        Err(Error::Refused { status: 404, .. }) => Ok(false),
        found => Ok(found?.iter().any(|run| run.run_id == id)),
    }
}

impl Followed {
    /// Reports that are new or changed.
    async fn news(&mut self, superlink: &SuperLink, id: u64) -> Result<Vec<TrainingReport>, Error> {
        // The last round may have further reports.
        let mut after_round = self.last.and_then(|((round, _), _)| round.checked_sub(1));
        let mut news = Vec::new();
        loop {
            let asked = superlink.call(&RunHistory { run_id: id.to_string(), after_round }).await;
            let history = match asked {
                // An older version of our SuperLink.
                Err(error) if error.is_unknown_call() => return Ok(news),
                asked => asked?,
            };
            let texts = history.reports.iter().map(|report| report.get());
            // Reports of a newer ServerApp that this version cannot parse are ignored.
            let reports =
                texts.filter_map(|text| Some((serde_json::from_str::<TrainingReport>(text).ok()?, hash(text))));
            let mut reports: Vec<(TrainingReport, u64)> = reports.collect();
            reports.sort_by_key(|(report, _)| place(report));
            let last_round = reports.last().map(|(report, _)| report.round);
            for (report, hash) in reports {
                if self.is_news(place(&report), hash) {
                    convert::train(&mut self.training, &report);
                    news.push(report);
                }
            }
            if !history.more || last_round <= after_round {
                return Ok(news);
            }
            after_round = last_round;
        }
    }

    /// Whether a report is new or changed. Records it.
    fn is_news(&mut self, place: Place, hash: u64) -> bool {
        let is_news = match self.last {
            Some((last, before)) => place > last || place == last && hash != before,
            None => true,
        };
        if is_news {
            self.last = Some((place, hash));
        }
        is_news
    }
}

fn place(report: &TrainingReport) -> Place {
    (report.round, report.kind != "round")
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

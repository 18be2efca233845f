//! Watches the SuperLink of one federation: which runs there are and how they go, told as it happens. What was told once is
//! not told again, also when the SuperLink was away in between.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use trellis_api::{Event, Run, RunState, Training, TrainingReport};
use trellis_client::{Error, SuperLink};
use trellis_spec::Name;
use trellis_wire::call::{ListNodes, RunHistory, Watch};
use trellis_wire::proto;

use super::convert;
use super::fleet::LinkFleet;
use super::shared::Shared;
use super::superlink::Endpoint;

/// A SuperLink that has nothing to tell answers after this long.
const HOLD_S: u64 = 25;
/// Rounds of a small model take milliseconds: some are looked at together.
const BREATH: Duration = Duration::from_millis(30);
/// Of more runs than these all are listed at once.
const FEW_RUNS: usize = 8;
/// Between looks while a run is at work, and while none is, at a SuperLink that does not tell by itself.
const GLANCE: Duration = Duration::from_secs(1);
const IDLE_GLANCE: Duration = Duration::from_secs(2);
/// After a call that failed; grows up to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// The status of nodes that were revoked or have left for good.
const UNREGISTERED: &str = "unregistered";
/// Runs that were over before anybody watched, and whose rounds are looked at all the same: the newest.
const MAX_OLD_HISTORIES: usize = 50;
const LOST: &str = "the SuperLink does not know this run any more";

pub struct Watcher {
    shared: Arc<Shared>,
    name: Name,
    /// Wakes the controller.
    bell: Arc<Notify>,
    fleet: Arc<LinkFleet>,
    followed: BTreeMap<u64, Followed>,
    /// The runs were listed before: what is new now is news.
    has_listed: bool,
    /// The SuperLink keeps what is told of rounds.
    has_rounds: bool,
}

/// How it is learnt that something changed.
enum Watching {
    /// It tells what happened after a moment of its own.
    From(Option<String>),
    /// It is looked at now and then.
    Polled,
}

enum Change {
    Runs(Vec<String>),
    Any,
}

/// What was heard of a run.
#[derive(Default)]
struct Followed {
    training: Training,
    /// Round and kind of the last report, and what it said.
    last: Option<(Place, u64)>,
    over: bool,
}

/// What is said at the end comes after what is said of its round.
type Place = (u64, bool);

impl Watcher {
    pub fn new(shared: Arc<Shared>, name: Name, bell: Arc<Notify>, fleet: Arc<LinkFleet>) -> Watcher {
        Watcher { shared, name, bell, fleet, followed: BTreeMap::new(), has_listed: false, has_rounds: false }
    }

    /// Watches whichever SuperLink the federation has, for ever.
    pub async fn watch(mut self, mut endpoints: watch::Receiver<Option<Endpoint>>) {
        let mut pause = PAUSE.0;
        loop {
            let endpoint = endpoints.borrow_and_update().clone();
            let watched = async {
                match endpoint {
                    Some(endpoint) => self.session(&endpoint, &mut pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = watched => {}
                changed = endpoints.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Watches one SuperLink until it does not answer.
    async fn session(&mut self, endpoint: &Endpoint, pause: &mut Duration) {
        let superlink = match endpoint.superlink() {
            Ok(superlink) => superlink,
            Err(refusal) => return tracing::warn!(federation = %self.name, "{refusal}"),
        };
        self.has_rounds = endpoint.is_ours;
        self.fleet.begin();
        let mut watching = if endpoint.is_ours { Watching::From(None) } else { Watching::Polled };
        loop {
            let looked = match self.change(&superlink, &mut watching).await {
                Ok(Change::Runs(runs)) => self.look_at(&superlink, &runs).await,
                Ok(Change::Any) => self.look(&superlink).await,
                Err(error) => Err(error),
            };
            match looked {
                Ok(()) => *pause = PAUSE.0,
                Err(error) => {
                    tracing::debug!(federation = %self.name, %error, "its SuperLink does not tell of its runs");
                    // The controller finds out why.
                    return self.bell.notify_one();
                }
            }
        }
    }

    /// Waits until there is something to look at.
    async fn change(&self, superlink: &SuperLink, watching: &mut Watching) -> Result<Change, Error> {
        let after = match watching {
            Watching::From(after) => after,
            Watching::Polled => {
                let active = self.followed.values().any(|followed| !followed.over);
                tokio::time::sleep(if active { GLANCE } else { IDLE_GLANCE }).await;
                return Ok(Change::Any);
            }
        };
        if after.is_some() {
            tokio::time::sleep(BREATH).await;
        }
        let changed = match superlink.call(&Watch { after: after.clone(), wait_s: Some(HOLD_S) }).await {
            Err(error) if error.is_unknown_call() => {
                *watching = Watching::Polled;
                return Ok(Change::Any);
            }
            changed => changed?,
        };
        if changed.nodes {
            self.look_at_nodes(superlink).await?;
            self.bell.notify_one();
        }
        // What it tells first may not be all that there is.
        let first = after.replace(changed.at).is_none();
        let few = !first && self.has_listed && changed.runs.len() <= FEW_RUNS;
        Ok(if few { Change::Runs(changed.runs) } else { Change::Any })
    }

    /// Looks at all nodes.
    async fn look_at_nodes(&self, superlink: &SuperLink) -> Result<(), Error> {
        let told = superlink.call(&ListNodes {}).await?;
        let nodes = told.nodes.into_iter().filter(|node| node.status != UNREGISTERED).map(convert::node).collect();
        self.shared.views.note(&self.name, |view| view.link = Some(nodes));
        Ok(())
    }

    /// Looks at some runs.
    async fn look_at(&mut self, superlink: &SuperLink, runs: &[String]) -> Result<(), Error> {
        for id in runs.iter().filter_map(|id| id.parse().ok()) {
            for told in superlink.list_runs(Some(id)).await? {
                let run = convert::run(self.name.as_str(), told);
                self.follow(superlink, id, run, false, true).await?;
            }
        }
        Ok(())
    }

    /// Looks at all runs.
    async fn look(&mut self, superlink: &SuperLink) -> Result<(), Error> {
        // Read before the list: a run that is submitted meanwhile is not missing from it.
        let view = self.shared.views.get(&self.name);
        let unfinished: Vec<Run> = view.iter().flat_map(|view| view.runs.unfinished().cloned()).collect();
        let mut runs = superlink.list_runs(None).await?;
        self.note_lost(superlink, &runs, unfinished).await?;
        runs.sort_by_key(|run| std::cmp::Reverse(run.pending_at.clone()));
        let quiet = !self.has_listed;
        let mut starters = if quiet { self.shared.starters(&self.name).await } else { BTreeMap::new() };
        for (index, told) in runs.into_iter().enumerate() {
            let id = told.run_id;
            let mut run = convert::run(self.name.as_str(), told);
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

    /// Ends runs that the SuperLink does not know: it lost its state, or another one is in its place.
    async fn note_lost(&self, superlink: &SuperLink, told: &[proto::Run], known: Vec<Run>) -> Result<(), Error> {
        for run in known {
            let Ok(id) = run.id.parse() else { continue };
            let is_there = told.iter().any(|told| told.run_id == id) || is_known(superlink, id).await?;
            if !is_there {
                self.shared.note_run(&self.name, convert::ended(run, "failed", LOST)).await;
            }
        }
        Ok(())
    }

    /// Takes in what is new of a run: its rounds before its state, so that whoever hears of its end has heard of all.
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
                    self.shared.views.tell(Event::Round { federation, run, report });
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

async fn is_known(superlink: &SuperLink, id: u64) -> Result<bool, Error> {
    match superlink.list_runs(Some(id)).await {
        Err(Error::Refused { status: 404, .. }) => Ok(false),
        found => Ok(found?.iter().any(|run| run.run_id == id)),
    }
}

impl Followed {
    /// Reports that were not heard before, or say something else by now.
    async fn news(&mut self, superlink: &SuperLink, id: u64) -> Result<Vec<TrainingReport>, Error> {
        // What was said of the last round may be followed by more about it.
        let mut after_round = self.last.and_then(|((round, _), _)| round.checked_sub(1));
        let mut news = Vec::new();
        loop {
            let asked = superlink.call(&RunHistory { run_id: id.to_string(), after_round }).await;
            let history = match asked {
                // An older one of ours.
                Err(error) if error.is_unknown_call() => return Ok(news),
                asked => asked?,
            };
            let told = history.reports.iter().map(|report| report.get());
            // What a newer ServerApp tells and we do not understand is left out.
            let told = told.filter_map(|text| Some((serde_json::from_str::<TrainingReport>(text).ok()?, hash(text))));
            let mut told: Vec<(TrainingReport, u64)> = told.collect();
            told.sort_by_key(|(report, _)| place(report));
            let last_round = told.last().map(|(report, _)| report.round);
            for (report, said) in told {
                if self.takes(place(&report), said) {
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

    /// Whether this is news; it is not from then on.
    fn takes(&mut self, place: Place, said: u64) -> bool {
        let news = match self.last {
            Some((last, before)) => place > last || place == last && said != before,
            None => true,
        };
        if news {
            self.last = Some((place, said));
        }
        news
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

//! Turns events of the server into updates of the view, and reloads data that events do not contain. Knows no terminal.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use trellis_api::{CallError, Client, Event, Events, RunState, Weight, Why};
use trellis_terminal::explain;

use crate::view::{Connection, Curve, Details, Update};

/// The minimum time between two reloads of a federation.
const MIN_RELOAD_INTERVAL: Duration = Duration::from_millis(500);
/// Reload without an event: there is none for the load of nodes.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);
/// Delay before a reconnect.
const RETRY_DELAY: Duration = Duration::from_secs(2);
const MAX_RUNS: usize = 50;
/// The newest runs, whose rounds are loaded.
const MAX_CURVES: usize = 8;
/// Pages of rounds per run and reload.
const MAX_PAGES: usize = 20;

/// Returns when the receiver of the updates is dropped.
pub async fn feed(
    client: Client,
    only: Option<String>,
    chosen: watch::Receiver<Option<String>>,
    updates: mpsc::Sender<Update>,
) {
    let mut feed = Feed { client, only, chosen, updates, curves: BTreeMap::new() };
    loop {
        let why = match feed.listen().await {
            Ok(()) => "the server ended the connection".to_owned(),
            Err(Stopped::Closed) => return,
            Err(Stopped::Failed(error)) => explain(&error),
        };
        if feed.updates.send(Update::Connection(Connection::Lost(why))).await.is_err() {
            return;
        }
        sleep(RETRY_DELAY).await;
    }
}

enum Stopped {
    /// The receiver is dropped.
    Closed,
    Failed(CallError),
}

impl From<CallError> for Stopped {
    fn from(error: CallError) -> Stopped {
        Stopped::Failed(error)
    }
}

struct Feed {
    client: Client,
    only: Option<String>,
    chosen: watch::Receiver<Option<String>>,
    updates: mpsc::Sender<Update>,
    /// By run of the chosen federation. Only newer rounds are loaded.
    curves: BTreeMap<String, Curve>,
}

impl Feed {
    async fn listen(&mut self) -> Result<(), Stopped> {
        let mut events = self.client.events(self.only.as_deref()).await?;
        self.send(Update::Connection(Connection::Live)).await?;
        let mut next_reload = Instant::now() + RELOAD_INTERVAL;
        loop {
            tokio::select! {
                event = next(&mut events) => match event? {
                    None => return Ok(()),
                    Some(event) => {
                        if self.handle(event).await? {
                            next_reload = next_reload.min(Instant::now() + MIN_RELOAD_INTERVAL);
                        }
                    }
                },
                changed = self.chosen.changed() => {
                    changed.map_err(|_| Stopped::Closed)?;
                    self.curves.clear();
                    self.reload().await?;
                    next_reload = Instant::now() + RELOAD_INTERVAL;
                }
                () = sleep_until(next_reload) => {
                    self.reload().await?;
                    next_reload = Instant::now() + RELOAD_INTERVAL;
                }
            }
        }
    }

    async fn send(&self, update: Update) -> Result<(), Stopped> {
        self.updates.send(update).await.map_err(|_| Stopped::Closed)
    }

    /// Returns whether the chosen federation must be reloaded.
    async fn handle(&mut self, event: Event) -> Result<bool, Stopped> {
        let chosen = self.chosen.borrow().clone();
        let concerned = chosen.is_some() && event.federation().is_none_or(|name| Some(name) == chosen.as_deref());
        match &event {
            Event::Resync => {
                self.send(Update::Federations(federations(&self.client, self.only.as_deref()).await?)).await?
            }
            Event::Round { run, report, .. } if concerned => {
                self.curves.entry(run.clone()).or_default().add(report);
            }
            _ => {}
        }
        let reload = concerned && !matches!(event, Event::Round { .. });
        self.send(Update::Event(event)).await?;
        Ok(reload)
    }

    async fn reload(&mut self) -> Result<(), Stopped> {
        let Some(name) = self.chosen.borrow_and_update().clone() else { return Ok(()) };
        match details(&self.client, &name, &mut self.curves).await {
            Ok(shown) => self.send(Update::Details(shown)).await,
            // It was deleted; the event follows.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

async fn next(events: &mut Events) -> Result<Option<Event>, Stopped> {
    Ok(events.next().await?)
}

/// All federations, or the one named `only`.
pub async fn federations(
    client: &Client,
    only: Option<&str>,
) -> Result<Vec<trellis_api::FederationSummary>, CallError> {
    match only {
        None => client.federations().await,
        Some(name) => Ok(vec![client.federation(name).await?.summary]),
    }
}

/// All data of one federation.
pub async fn details(client: &Client, name: &str, curves: &mut BTreeMap<String, Curve>) -> Result<Details, CallError> {
    let (nodes, runs, plan) =
        tokio::join!(client.nodes(name), client.newest_runs(name, MAX_RUNS), client.current_plan(name));
    let mut why = match plan {
        Ok(plan) => plan.report,
        Err(error) => vec![reason("plan", &error)],
    };
    // The SuperLink may not answer yet.
    let runs = runs.unwrap_or_else(|error| {
        why.push(reason("runs", &error));
        Vec::new()
    });
    for run in runs.iter().filter(|run| run.state != RunState::Pending).take(MAX_CURVES) {
        let curve = curves.entry(run.id.clone()).or_default();
        // Apps without reports have no rounds.
        let _ = load_rounds(client, name, &run.id, curve).await;
    }
    Ok(Details { federation: name.to_owned(), nodes: nodes?, runs, curves: curves.clone(), why })
}

async fn load_rounds(client: &Client, name: &str, run: &str, curve: &mut Curve) -> Result<(), CallError> {
    for _ in 0..MAX_PAGES {
        let rounds = client.rounds(name, run, curve.last_round()).await?;
        rounds.reports.iter().for_each(|report| curve.add(report));
        if !rounds.more {
            break;
        }
    }
    Ok(())
}

fn reason(about: &str, error: &CallError) -> Why {
    Why { weight: Weight::Waits, about: about.to_owned(), text: explain(error) }
}

//! What the server tells, as news for the view: changes as they happen, and everything anew where they do not say enough.
//! Knows nothing of terminals.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use trellis_api::{CallError, Client, Event, Events, RunState, Weight, Why};

use super::view::{Contact, Curve, News, Shown};
use crate::remote::explain;

/// Between two looks at everything of a federation, however much happens there.
const REST: Duration = Duration::from_millis(500);
/// Also where nothing is told: how busy nodes are is no event.
const GLANCE: Duration = Duration::from_secs(5);
/// Before another try to reach the server.
const RETRY: Duration = Duration::from_secs(2);
const MOST_RUNS: usize = 50;
/// Runs whose rounds are asked for, from the newest on.
const MOST_CURVES: usize = 8;
/// Pages of rounds that are asked for at a time.
const MOST_PAGES: usize = 20;

/// Ends when nobody listens any more.
pub async fn feed(
    client: Client,
    only: Option<String>,
    chosen: watch::Receiver<Option<String>>,
    news: mpsc::Sender<News>,
) {
    let mut feed = Feed { client, only, chosen, news, curves: BTreeMap::new() };
    loop {
        let why = match feed.listen().await {
            Ok(()) => "the server ended the connection".to_owned(),
            Err(Stopped::Unheard) => return,
            Err(Stopped::Failed(error)) => explain(&error),
        };
        if feed.news.send(News::Contact(Contact::Lost(why))).await.is_err() {
            return;
        }
        sleep(RETRY).await;
    }
}

enum Stopped {
    /// The view is gone.
    Unheard,
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
    news: mpsc::Sender<News>,
    /// Of runs of the chosen federation: what is known is not asked for again.
    curves: BTreeMap<String, Curve>,
}

impl Feed {
    async fn listen(&mut self) -> Result<(), Stopped> {
        let mut events = self.client.events(self.only.as_deref()).await?;
        self.tell(News::Contact(Contact::Live)).await?;
        let mut next_look = Instant::now() + GLANCE;
        loop {
            tokio::select! {
                event = next(&mut events) => match event? {
                    None => return Ok(()),
                    Some(event) => {
                        if self.happen(event).await? {
                            next_look = next_look.min(Instant::now() + REST);
                        }
                    }
                },
                changed = self.chosen.changed() => {
                    changed.map_err(|_| Stopped::Unheard)?;
                    self.curves.clear();
                    self.look().await?;
                    next_look = Instant::now() + GLANCE;
                }
                () = sleep_until(next_look) => {
                    self.look().await?;
                    next_look = Instant::now() + GLANCE;
                }
            }
        }
    }

    async fn tell(&self, news: News) -> Result<(), Stopped> {
        self.news.send(news).await.map_err(|_| Stopped::Unheard)
    }

    /// Whether the chosen federation has to be looked at.
    async fn happen(&mut self, event: Event) -> Result<bool, Stopped> {
        let chosen = self.chosen.borrow().clone();
        let concerned = chosen.is_some() && event.federation().is_none_or(|name| Some(name) == chosen.as_deref());
        match &event {
            Event::Resync => {
                self.tell(News::Federations(federations(&self.client, self.only.as_deref()).await?)).await?
            }
            Event::Round { run, report, .. } if concerned => {
                self.curves.entry(run.clone()).or_default().add(report);
            }
            _ => {}
        }
        let look = concerned && !matches!(event, Event::Round { .. });
        self.tell(News::Event(event)).await?;
        Ok(look)
    }

    async fn look(&mut self) -> Result<(), Stopped> {
        let Some(name) = self.chosen.borrow_and_update().clone() else { return Ok(()) };
        match look(&self.client, &name, &mut self.curves).await {
            Ok(shown) => self.tell(News::Shown(shown)).await,
            // It is gone; the event that says so is on its way.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

async fn next(events: &mut Events) -> Result<Option<Event>, Stopped> {
    Ok(events.next().await?)
}

/// All of them, or the one that is asked for.
pub async fn federations(
    client: &Client,
    only: Option<&str>,
) -> Result<Vec<trellis_api::FederationSummary>, CallError> {
    match only {
        None => client.federations().await,
        Some(name) => Ok(vec![client.federation(name).await?.summary]),
    }
}

/// Everything about one federation.
pub async fn look(client: &Client, name: &str, curves: &mut BTreeMap<String, Curve>) -> Result<Shown, CallError> {
    let (nodes, runs, plan) =
        tokio::join!(client.nodes(name), client.newest_runs(name, MOST_RUNS), client.current_plan(name));
    let mut why = match plan {
        Ok(plan) => plan.report,
        Err(error) => vec![reason("plan", &error)],
    };
    // A SuperLink that does not answer yet has runs that nobody can list.
    let runs = runs.unwrap_or_else(|error| {
        why.push(reason("runs", &error));
        Vec::new()
    });
    for run in runs.iter().filter(|run| run.state != RunState::Pending).take(MOST_CURVES) {
        let curve = curves.entry(run.id.clone()).or_default();
        // Runs of apps that report nothing have no rounds.
        let _ = catch_up(client, name, &run.id, curve).await;
    }
    Ok(Shown { federation: name.to_owned(), nodes: nodes?, runs, curves: curves.clone(), why })
}

async fn catch_up(client: &Client, name: &str, run: &str, curve: &mut Curve) -> Result<(), CallError> {
    for _ in 0..MOST_PAGES {
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

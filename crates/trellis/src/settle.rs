//! Waits until a federation is ready or deleted: checks it after every event, and at an interval. Tolerates a server that is
//! restarted.

use std::time::{Duration, Instant};

use clap::Args;
use trellis_api::{CallError, Client, Event, Events, FederationDetail, State};
use trellis_terminal::duration;
use trellis_terminal::{clean, parse_ttl};

use crate::progress::Progress;
use crate::remote::CommandError;

/// Poll interval without events.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Delay before the stream of events is opened again.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// The server may be unreachable for this long, since its keeper restarts it.
const OUTAGE_LIMIT: Duration = Duration::from_secs(60);
/// A federation may be stalled for a moment: while a process restarts, or a port is in use.
const STALL_LIMIT: Duration = Duration::from_secs(15);
/// Limit for the deletion of a federation.
const DELETE_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug, Args)]
pub struct TimeoutArgs {
    /// How long to wait until it is ready, as 90s, 10m or 1h; afterwards it continues in the background
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl, default_value = "5m")]
    pub timeout: Duration,
}

/// The events of a federation.
pub struct Watch<'a> {
    client: &'a Client,
    federation: &'a str,
    events: Option<Events>,
}

impl<'a> Watch<'a> {
    pub fn of(client: &'a Client, federation: &'a str) -> Watch<'a> {
        Watch { client, federation, events: None }
    }

    /// The next event; [`Event::Resync`] after a reconnect. Cancel safe.
    pub async fn next(&mut self) -> Event {
        loop {
            match &mut self.events {
                Some(events) => match events.next().await {
                    Ok(Some(event)) => return event,
                    Ok(None) | Err(_) => self.events = None,
                },
                None => match self.client.events(Some(self.federation)).await {
                    Ok(events) => self.events = Some(events),
                    Err(_) => tokio::time::sleep(RETRY_DELAY).await,
                },
            }
        }
    }

    /// Waits for an event or the poll interval.
    async fn changed(&mut self) {
        let _ = tokio::time::timeout(POLL_INTERVAL, self.next()).await;
    }
}

/// Tolerates an unreachable server for a while.
#[derive(Default)]
pub struct Outage {
    since: Option<Instant>,
}

impl Outage {
    pub fn tolerate<T>(&mut self, asked: Result<T, CallError>) -> Result<Option<T>, CommandError> {
        match asked {
            Ok(answer) => {
                self.since = None;
                Ok(Some(answer))
            }
            Err(error) if error.may_pass() && self.since.get_or_insert_with(Instant::now).elapsed() < OUTAGE_LIMIT => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Waits until all parts of the document are ready. Fails if that is impossible, or at the timeout.
pub async fn until_ready(
    client: &Client,
    name: &str,
    limit: Duration,
    progress: &mut Progress,
) -> Result<FederationDetail, CommandError> {
    let (began, mut stalled, mut outage) = (Instant::now(), None, Outage::default());
    let mut watch = Watch::of(client, name);
    loop {
        if let Some(detail) = outage.tolerate(client.federation(name).await)? {
            progress.show(&detail);
            if is_ready(&detail) {
                return Ok(detail);
            }
            match detail.summary.state {
                State::Leaving => {
                    return Err(CommandError::failed(
                        format!("{name} is being deleted"),
                        Some("wait until it is deleted, and try again"),
                    ));
                }
                State::Stalled if stalled.get_or_insert_with(Instant::now).elapsed() > STALL_LIMIT => {
                    return Err(stuck(&detail, "is stalled"));
                }
                State::Stalled => {}
                _ => stalled = None,
            }
            if began.elapsed() > limit {
                return Err(stuck(&detail, &format!("is not ready after {}", duration::show(limit))));
            }
        }
        watch.changed().await;
    }
}

/// Whether the federation was observed as ready after its document changed.
fn is_ready(detail: &FederationDetail) -> bool {
    let seen_s = detail.status.as_ref().map_or(0.0, |status| status.at_ms as f64 / 1000.0);
    // Milliseconds are truncated.
    detail.summary.state == State::Ready && seen_s + 0.001 >= detail.summary.changed_at
}

fn stuck(detail: &FederationDetail, what: &str) -> CommandError {
    let name = &detail.summary.name;
    let advice = format!("see `trellis status {name}` and `trellis logs --federation {name} --part coordinator`");
    CommandError::failed(format!("{name} {what}: {}", clean(&detail.summary.message)), Some(&advice))
}

/// Waits until all parts are removed.
pub async fn until_gone(client: &Client, name: &str, progress: &mut Progress) -> Result<(), CommandError> {
    let (began, mut outage) = (Instant::now(), Outage::default());
    let mut watch = Watch::of(client, name);
    loop {
        let asked = client.federation(name).await;
        if asked.as_ref().is_err_and(CallError::is_not_found) {
            return Ok(());
        }
        if let Some(detail) = outage.tolerate(asked)? {
            progress.print(clean(&format!("{name}: deleting; {}", detail.summary.message)));
            if began.elapsed() > DELETE_TIMEOUT {
                return Err(stuck(&detail, &format!("is not deleted after {}", duration::show(DELETE_TIMEOUT))));
            }
        }
        watch.changed().await;
    }
}

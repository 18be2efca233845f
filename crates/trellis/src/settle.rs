//! Waiting for a federation to become what it shall be, or to be gone: looks when something happened, and now and then anyway.
//! A server that restarts meanwhile is waited for.

use std::time::{Duration, Instant};

use clap::Args;
use trellis_api::{CallError, Client, Event, Events, FederationDetail, State};

use crate::duration;
use crate::progress::Progress;
use crate::remote::{Trouble, clean, parse_ttl};

/// Between looks where nobody tells of changes.
const LOOK: Duration = Duration::from_millis(500);
/// Before the stream of events is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How long a server may be away: it is started again when it dies.
const ABSENCE: Duration = Duration::from_secs(60);
/// Something may be stuck for a moment: a process that is started again, a port that is still taken.
const STALL_PATIENCE: Duration = Duration::from_secs(15);
/// How long a federation may take to go.
const GOING: Duration = Duration::from_secs(300);

#[derive(Debug, Args)]
pub struct TimeoutArgs {
    /// How long to wait until it is ready, as 90s, 10m or 1h; it goes on becoming ready afterwards
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl, default_value = "5m")]
    pub timeout: Duration,
}

/// What happens to a federation, for as long as it is of interest.
pub struct Pulse<'a> {
    client: &'a Client,
    federation: &'a str,
    events: Option<Events>,
}

impl<'a> Pulse<'a> {
    pub fn of(client: &'a Client, federation: &'a str) -> Pulse<'a> {
        Pulse { client, federation, events: None }
    }

    /// The next event. After a break the first is [`Event::Resync`]. May be dropped while it waits: nothing is lost.
    pub async fn next(&mut self) -> Event {
        loop {
            match &mut self.events {
                Some(events) => match events.next().await {
                    Ok(Some(event)) => return event,
                    Ok(None) | Err(_) => self.events = None,
                },
                None => match self.client.events(Some(self.federation)).await {
                    Ok(events) => self.events = Some(events),
                    Err(_) => tokio::time::sleep(ASK_AGAIN).await,
                },
            }
        }
    }

    /// Waits until there may be something new to see.
    async fn beat(&mut self) {
        let _ = tokio::time::timeout(LOOK, self.next()).await;
    }
}

/// Forgives a server that is away for a while.
#[derive(Default)]
pub struct Patience {
    away: Option<Instant>,
}

impl Patience {
    pub fn forgive<T>(&mut self, asked: Result<T, CallError>) -> Result<Option<T>, Trouble> {
        match asked {
            Ok(answer) => {
                self.away = None;
                Ok(Some(answer))
            }
            Err(error) if error.may_pass() && self.away.get_or_insert_with(Instant::now).elapsed() < ABSENCE => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Waits until everything that the document wants works. Ends with the reason if it cannot, or does not in time.
pub async fn until_ready(
    client: &Client,
    name: &str,
    limit: Duration,
    progress: &mut Progress,
) -> Result<FederationDetail, Trouble> {
    let (began, mut stalled, mut patience) = (Instant::now(), None, Patience::default());
    let mut pulse = Pulse::of(client, name);
    loop {
        if let Some(detail) = patience.forgive(client.federation(name).await)? {
            progress.show(&detail);
            if is_ready(&detail) {
                return Ok(detail);
            }
            match detail.summary.state {
                State::Leaving => {
                    return Err(Trouble::failed(
                        format!("{name} is being deleted"),
                        Some("wait for that, and try again"),
                    ));
                }
                State::Stalled if stalled.get_or_insert_with(Instant::now).elapsed() > STALL_PATIENCE => {
                    return Err(stuck(&detail, "cannot go on"));
                }
                State::Stalled => {}
                _ => stalled = None,
            }
            if began.elapsed() > limit {
                return Err(stuck(&detail, &format!("is not ready after {}", duration::show(limit))));
            }
        }
        pulse.beat().await;
    }
}

/// Ready by what was seen since its document changed.
fn is_ready(detail: &FederationDetail) -> bool {
    let seen_s = detail.status.as_ref().map_or(0.0, |status| status.at_ms as f64 / 1000.0);
    // Millis are cut off.
    detail.summary.state == State::Ready && seen_s + 0.001 >= detail.summary.changed_at
}

fn stuck(detail: &FederationDetail, what: &str) -> Trouble {
    let name = &detail.summary.name;
    let advice =
        format!("`trellis status {name}` says more; so does `trellis logs --federation {name} --part coordinator`");
    Trouble::failed(format!("{name} {what}: {}", clean(&detail.summary.message)), Some(&advice))
}

/// Waits until nothing of it is left.
pub async fn until_gone(client: &Client, name: &str, progress: &mut Progress) -> Result<(), Trouble> {
    let (began, mut patience) = (Instant::now(), Patience::default());
    let mut pulse = Pulse::of(client, name);
    loop {
        let asked = client.federation(name).await;
        if asked.as_ref().is_err_and(CallError::is_not_found) {
            return Ok(());
        }
        if let Some(detail) = patience.forgive(asked)? {
            progress.say(clean(&format!("{name}: is ending; {}", detail.summary.message)));
            if began.elapsed() > GOING {
                return Err(stuck(&detail, &format!("is not gone after {}", duration::show(GOING))));
            }
        }
        pulse.beat().await;
    }
}

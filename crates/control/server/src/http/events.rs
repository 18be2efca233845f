//! Server-sent events: what the platform tells, to whoever listens and may. A stream ends when the server stops, and when the
//! token that opened it counts no more.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};
use tokio::time::{Instant, sleep_until};
use trellis_api::Event;
use trellis_clock::now_ms;

use super::Api;
use super::access::Caller;
use super::call::{Answer, Call, typed};
use super::fault::{Fault, Kind};

pub const EVENT_STREAM: &str = "text/event-stream";
/// A silent stream says something this often, so that nobody on the way forgets it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// After this time clients come back by themselves.
const COME_BACK_MS: u64 = 2000;
/// When a token never expires, it is looked at again after this.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

pub async fn watch(api: Arc<Api>, call: Call) -> Answer {
    let Ok(place) = Arc::clone(&api.streams).try_acquire_owned() else {
        let told = "Too many follow events already. Try again later, or ask for what changes.";
        return Err(Fault::new(Kind::BUSY, told).retry_after(COME_BACK_MS / 1000));
    };
    let listener = Listener {
        events: api.platform.events(),
        revocations: api.access.revocations(),
        federation: call.query.text("federation").map(str::to_owned),
        ends: ends(&call.caller),
        caller: call.caller,
        api,
        greeted: false,
        _place: place,
    };
    let parts = stream::unfold(listener, |mut listener| async move {
        let part = listener.next().await?;
        Some((Ok::<Bytes, Infallible>(part), listener))
    });
    let mut response = typed(StatusCode::OK, EVENT_STREAM, Body::from_stream(parts));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

struct Listener {
    api: Arc<Api>,
    caller: Caller,
    events: broadcast::Receiver<Arc<Event>>,
    revocations: watch::Receiver<u64>,
    /// Only what is about this one.
    federation: Option<String>,
    /// When the token expires.
    ends: Instant,
    greeted: bool,
    _place: OwnedSemaphorePermit,
}

impl Listener {
    /// What is to be sent next; none: the stream is over.
    async fn next(&mut self) -> Option<Bytes> {
        if !self.greeted {
            self.greeted = true;
            return Some(Bytes::from(format!("retry: {COME_BACK_MS}\n{}", written(&Event::Resync))));
        }
        let silent_until = Instant::now() + KEEP_ALIVE;
        loop {
            tokio::select! {
                biased;
                () = self.api.stop.cancelled() => return None,
                () = sleep_until(self.ends) => return None,
                changed = self.revocations.changed() => {
                    if changed.is_err() || !self.api.access.still_counts(&self.caller).await {
                        return None;
                    }
                }
                event = self.events.recv() => match event {
                    Ok(event) if self.concerns(&event) => return Some(Bytes::from(written(&event))),
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => return Some(Bytes::from(written(&Event::Resync))),
                    Err(RecvError::Closed) => return None,
                },
                () = sleep_until(silent_until) => return Some(Bytes::from_static(b": still here\n\n")),
            }
        }
    }

    fn concerns(&self, event: &Event) -> bool {
        match (&self.federation, event.federation()) {
            (Some(wanted), Some(about)) => wanted == about,
            _ => true,
        }
    }
}

fn ends(caller: &Caller) -> Instant {
    let left = caller.expires_ms.map(|end| Duration::from_millis(end.saturating_sub(now_ms())));
    Instant::now() + left.unwrap_or(FOREVER).min(FOREVER)
}

/// As it goes over the wire. JSON has no line breaks of its own.
fn written(event: &Event) -> String {
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("event: {}\ndata: {data}\n\n", event.kind())
}

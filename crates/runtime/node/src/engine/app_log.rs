//! Sends the output of apps to the SuperLink. Only Trellis SuperLinks store it, so nothing depends on an answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use trellis_client::Error as CallError;
use trellis_wire::call::{MAX_APP_LOG_BYTES, PushAppLog};

use super::Engine;
use crate::error::Error;

/// The time to collect lines that are written together.
const COLLECT_TIME: Duration = Duration::from_millis(300);
/// The minimum interval of calls: each opens a connection.
const SEND_INTERVAL: Duration = Duration::from_secs(1);
/// The interval of calls to a SuperLink that does not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// A SuperLink without this call may be upgraded.
const UNSUPPORTED_TIME: Duration = Duration::from_secs(600);

pub async fn send_all(engine: Arc<Engine>) -> Result<(), Error> {
    let mut unsupported_until = None;
    loop {
        tokio::select! {
            () = engine.stop.cancelled() => return Ok(()),
            () = engine.log.added() => {}
        }
        if engine.pause(COLLECT_TIME).await.is_none() {
            return Ok(());
        }
        while let Some((run, text)) = engine.log.take(MAX_APP_LOG_BYTES) {
            if unsupported_until.is_some_and(|until| Instant::now() < until) {
                continue;
            }
            let Some(node) = engine.identity().await else { return Ok(()) };
            let lines = PushAppLog { node_id: node.to_string(), run_id: run.to_string(), text };
            loop {
                let sending = tokio::select! {
                    () = engine.stop.cancelled() => return Ok(()),
                    sending = engine.link.fleet().push_app_log(&lines) => sending,
                };
                match sending {
                    Err(error) if error.may_pass() => {
                        tracing::debug!(%run, %error, "output of apps will be sent again");
                        if engine.pause(RETRY_INTERVAL).await.is_none() {
                            return Ok(());
                        }
                    }
                    Err(error) if error.is_unknown_call() || matches!(error, CallError::NotHttp { .. }) => {
                        tracing::debug!(%error, "the SuperLink stores no output of apps");
                        unsupported_until = Some(Instant::now() + UNSUPPORTED_TIME);
                        break;
                    }
                    Err(error) => {
                        tracing::debug!(%run, %error, "the SuperLink refuses output of apps");
                        break;
                    }
                    Ok(()) => break,
                }
            }
            if engine.pause(SEND_INTERVAL).await.is_none() {
                return Ok(());
            }
        }
    }
}

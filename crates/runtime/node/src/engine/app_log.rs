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
    tokio::select! {
        () = engine.stop.cancelled() => {}
        () = send_until_stop(&engine) => {}
    }
    Ok(())
}

async fn send_until_stop(engine: &Engine) {
    let mut unsupported_until = Instant::now();
    loop {
        engine.log.added().await;
        tokio::time::sleep(COLLECT_TIME).await;
        while let Some((run, text)) = engine.log.take(MAX_APP_LOG_BYTES) {
            // Lines for a SuperLink that stores none are dropped.
            if Instant::now() < unsupported_until {
                continue;
            }
            let Some(node) = engine.identity().await else { return };
            let lines = PushAppLog { node_id: node.to_string(), run_id: run.to_string(), text };
            if !send(engine, &lines).await {
                unsupported_until = Instant::now() + UNSUPPORTED_TIME;
            }
            tokio::time::sleep(SEND_INTERVAL).await;
        }
    }
}

/// Sends lines until the SuperLink takes or refuses them. `false`: it has no such call.
async fn send(engine: &Engine, lines: &PushAppLog) -> bool {
    loop {
        match engine.link.fleet().push_app_log(lines).await {
            Ok(()) => return true,
            Err(error) if error.may_pass() => {
                tracing::debug!(run = lines.run_id, %error, "output of apps will be sent again");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            Err(error) => {
                tracing::debug!(run = lines.run_id, %error, "the SuperLink does not take output of apps");
                return !(error.is_unknown_call() || matches!(error, CallError::NotHttp { .. }));
            }
        }
    }
}

//! Retries calls until they are answered. This module does not know what calls are about.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use trellis_client::fleet::retry::Schedule;
use trellis_client::fleet::{Fleet, FleetError, Transport};
use trellis_core::id::NodeId;

use crate::config::Retry;
use crate::watch::Watch;

/// Why a call was not answered.
#[derive(Debug)]
pub enum Unanswered {
    /// The node stops.
    Stopping,
    /// The link was broken for longer than the configured retries.
    GivenUp(FleetError),
    /// The SuperLink refused the call.
    Refused(FleetError),
}

/// Internal errors of a SuperLink for one call before it counts as refused.
const MAX_FAILURES: u32 = 3;

pub struct Link {
    fleet: Fleet,
    retry: Retry,
    watch: Watch,
    stop: CancellationToken,
    /// Incremented when the link works again, which ends the backoff of other calls.
    returns: watch::Sender<u64>,
    down: watch::Sender<bool>,
    identity: watch::Receiver<Option<NodeId>>,
}

impl Link {
    pub fn new(
        fleet: Fleet,
        retry: Retry,
        watch: Watch,
        stop: CancellationToken,
        identity: watch::Receiver<Option<NodeId>>,
    ) -> Link {
        Link { fleet, retry, watch, stop, returns: watch::Sender::new(0), down: watch::Sender::new(false), identity }
    }

    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Retries a call until it is answered. TLS and address errors are retried too: the configuration may be corrected, here or at
    /// the SuperLink, and a node that had stopped could not return by itself.
    pub async fn call<T, F>(&self, mut call: impl FnMut(Fleet) -> F) -> Result<T, Unanswered>
    where
        F: Future<Output = Result<T, FleetError>>,
    {
        let Retry { backoff, max_retries, max_wait } = self.retry;
        let mut schedule = Schedule::new(backoff, max_retries, max_wait);
        let mut faults = 0;
        loop {
            let mut returns = self.returns.subscribe();
            let result = tokio::select! {
                () = self.stop.cancelled() => return Err(Unanswered::Stopping),
                result = call(self.fleet.clone()) => result,
            };
            let error = match result {
                Ok(answer) => {
                    self.works();
                    return Ok(answer);
                }
                Err(error @ FleetError::Refused { is_fault: true, .. }) if faults < MAX_FAILURES => {
                    faults += 1;
                    error
                }
                Err(error @ (FleetError::Unreachable { .. } | FleetError::Misdirected { .. })) => error,
                Err(error) => {
                    self.works();
                    return Err(Unanswered::Refused(error));
                }
            };
            let Some(wait) = schedule.next(Instant::now(), random()) else { return Err(Unanswered::GivenUp(error)) };
            self.fails(&error, wait);
            tokio::select! {
                () = self.stop.cancelled() => return Err(Unanswered::Stopping),
                () = tokio::time::sleep(wait) => {}
                _ = returns.changed() => {}
            }
        }
    }

    fn works(&self) {
        if self.down.send_replace(false) {
            tracing::info!("the SuperLink answers again");
            if let Some(node) = *self.identity.borrow() {
                self.tell_up(node);
            }
            self.returns.send_modify(|count| *count += 1);
        }
    }

    /// Reports that the link works, and its transport.
    pub fn tell_up(&self, node: NodeId) -> crate::watch::Transport {
        let transport = match self.fleet.transport() {
            Some(Transport::Http) => crate::watch::Transport::Http,
            Some(Transport::Grpc) | None => crate::watch::Transport::Grpc,
        };
        self.watch.link_up(transport, node);
        transport
    }

    fn fails(&self, error: &FleetError, wait: Duration) {
        self.watch.link_lost(&error.to_string(), wait);
        // Logged once; further failures are logged at debug level.
        if self.down.send_replace(true) {
            tracing::debug!(error = error as &dyn std::error::Error, ?wait, "the SuperLink does not answer");
        } else {
            tracing::warn!(error = error as &dyn std::error::Error, ?wait, "the SuperLink does not answer: retrying");
        }
    }
}

/// Uniform between 0 and 1.
pub fn random() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness all nodes retry at the same time, which is no reason to fail.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}

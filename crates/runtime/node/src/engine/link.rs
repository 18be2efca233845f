//! Calls that are made until they are answered. What a call is about is not known here.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use trellis_client::fleet::retry::Schedule;
use trellis_client::fleet::{Fleet, FleetError, Transport};
use trellis_core::id::NodeId;

use crate::config::Retry;
use crate::watch::Watch;

/// Why a call has no answer.
#[derive(Debug)]
pub enum Unanswered {
    /// The node stops.
    Stopping,
    /// The link did not work for as long as it was told to try.
    GivenUp(FleetError),
    /// The SuperLink said no.
    Refused(FleetError),
}

/// Times that a SuperLink may break over a call before that counts as a refusal.
const MOST_FAULTS: u32 = 3;

pub struct Link {
    fleet: Fleet,
    retry: Retry,
    watch: Watch,
    stop: CancellationToken,
    /// Counts the times that the link came back: those who wait for their next try need not wait longer.
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

    /// Makes a call until it is answered. A SuperLink that is not the right one is tried again too: somebody may mend an
    /// address or a certificate, here or there, and a node that had ended could not come back by itself.
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
                Err(error @ FleetError::Refused { is_fault: true, .. }) if faults < MOST_FAULTS => {
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

    /// Lets everybody know that the link works, and how.
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
        // Told once; each try is of interest only to those who look closely.
        if self.down.send_replace(true) {
            tracing::debug!(error = error as &dyn std::error::Error, ?wait, "the SuperLink does not answer");
        } else {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                ?wait,
                "the SuperLink does not answer: trying again"
            );
        }
    }
}

/// Between 0 and 1.
pub fn random() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness all nodes try again at the same moment: unpleasant, and no reason to stop.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}

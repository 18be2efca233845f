//! OneGate as the agent uses it: when to poll the VM's attributes, what the controller requests in them, and what is published.

use std::time::{Duration, Instant};

use trellis_one::Backoff;
use trellis_one::gate::{GateError, OneGate, VmSnapshot};
use trellis_one::keys;

use super::lifecycle::State;
use crate::failure::{Code, Failure};
use crate::readiness::{Attributes, Publication, Update};

/// First poll interval of the VM's attributes. It doubles after each poll without a change.
const POLL_INTERVAL: Duration = Duration::from_secs(4);
/// Maximum poll interval, and so the maximum delay until the agent reads a change by the controller.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Poll interval until the programs are ready for the first time.
const BOOT_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// OneGate may reject a valid token for a moment. After this many rejections in a row the token is invalid.
const MAX_REJECTIONS: u32 = 3;

/// What the controller requests through attributes of the VM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directives {
    /// Federation of the controller. If it is set, nothing starts without an assignment.
    pub federation: Option<String>,
    pub assignment: Option<String>,
    pub drain: Option<String>,
    /// Instance of the program to restart.
    pub restart: Option<String>,
}

impl Directives {
    fn of(vm: &VmSnapshot) -> Directives {
        let attribute = |key: &str| vm.attribute(key).map(str::to_owned);
        Directives {
            federation: attribute(keys::TRELLIS_FEDERATION),
            assignment: attribute(keys::TRELLIS_ASSIGNMENT),
            drain: attribute(keys::TRELLIS_DRAIN),
            restart: attribute(keys::TRELLIS_RESTART),
        }
    }

    pub fn drains(&self) -> bool {
        self.drain.as_deref() == Some("YES")
    }
}

pub struct Gate {
    client: Option<OneGate>,
    polled: Option<Instant>,
    interval: Duration,
    intervals: Backoff,
    rejections: u32,
    directives: Directives,
    publication: Publication,
}

impl Gate {
    pub fn new(directives: Directives) -> Gate {
        Gate {
            client: None,
            polled: None,
            interval: POLL_INTERVAL,
            intervals: Backoff::exponential(POLL_INTERVAL, MAX_POLL_INTERVAL),
            rejections: 0,
            directives,
            publication: Publication::default(),
        }
    }

    pub fn client(&self) -> Option<&OneGate> {
        self.client.as_ref()
    }

    pub fn directives(&self) -> &Directives {
        &self.directives
    }

    /// Replaces the client after a change of the context; the next poll is due at once.
    pub fn connect(&mut self, client: Option<OneGate>) {
        self.client = client;
        self.polled = None;
    }

    /// Reads the VM's attributes if a poll is due.
    pub async fn poll(&mut self, state: &State) -> Result<(), Failure> {
        let Some(client) = &self.client else { return Ok(()) };
        let interval = match (state.is_booting(), state.observed().serving) {
            (true, _) => BOOT_POLL_INTERVAL,
            (false, false) => POLL_INTERVAL,
            (false, true) => self.interval,
        };
        if self.polled.is_some_and(|at| at.elapsed() < interval) {
            return Ok(());
        }
        match client.vm().await {
            Ok(vm) => {
                self.accept(&vm, state.observed().serving);
                Ok(())
            }
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// Stores the VM's attributes. The poll interval grows while they do not change.
    fn accept(&mut self, vm: &VmSnapshot, serving: bool) {
        self.polled = Some(Instant::now());
        self.rejections = 0;
        let directives = Directives::of(vm);
        if self.directives != directives || !serving {
            self.intervals.reset();
        }
        self.interval = self.intervals.next().unwrap_or(MAX_POLL_INTERVAL);
        self.directives = directives;
        self.publication.observe(&vm.attributes);
    }

    fn failure(&mut self, error: &GateError) -> Failure {
        let rejected = matches!(error, GateError::Unauthorised | GateError::Refused { status: 403, .. });
        self.rejections = if rejected { self.rejections + 1 } else { 0 };
        let code = match self.rejections >= MAX_REJECTIONS {
            true => Code::OnegateUnauthorised,
            false => Code::OnegateUnreachable,
        };
        Failure::new(code, explained(error))
    }

    /// Publishes the attributes that differ from the published ones in one update, and reads it back.
    pub async fn publish(&mut self, desired: &Attributes, now_s: i64, serving: bool) -> Result<(), Failure> {
        let Some(update) = self.publication.due(desired, now_s) else { return Ok(()) };
        self.publication.begin(&update);
        self.send(&update, serving).await?;
        self.publication.confirm(&update, now_s);
        Ok(())
    }

    /// Publishes FL_ERROR alone. The other attributes belong to the resident agent.
    pub async fn publish_failure(&mut self, failure: &Failure) -> Result<(), Failure> {
        let set = [(keys::FL_ERROR.to_owned(), failure.attribute())].into();
        self.send(&Update { set, erase: Vec::new() }, false).await
    }

    async fn send(&mut self, update: &Update, serving: bool) -> Result<(), Failure> {
        let Some(client) = &self.client else { return Ok(()) };
        let read_back = client.update_and_read_back(&update.set).await;
        let mut erased = Ok(());
        for key in update.erase.iter().filter(|_| read_back.is_ok()) {
            if erased.is_ok() {
                erased = client.erase(key).await;
            }
        }
        let sent = read_back.and_then(|vm| {
            // The read-back also counts as a poll, and delays the next one.
            self.accept(&vm, serving);
            erased
        });
        sent.map_err(|error| {
            let failure = self.failure(&error);
            Failure::new(failure.code, format!("the agent cannot publish its state: {}", explained(&error)))
        })
    }
}

/// The error with all its sources.
pub fn explained(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(attributes: &[(&str, &str)]) -> VmSnapshot {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        VmSnapshot { id: 1, name: "x".to_owned(), state: None, lcm_state: None, attributes, nics: Vec::new() }
    }

    #[test]
    fn the_poll_interval_grows_to_a_minute_while_nothing_changes() {
        let mut gate = Gate::new(Directives::default());
        let intervals = |gate: &mut Gate, vm: &VmSnapshot, serving: bool, polls: usize| -> Vec<u64> {
            let interval = |_| {
                gate.accept(vm, serving);
                gate.interval.as_secs()
            };
            (0..polls).map(interval).collect()
        };
        let same = vm(&[(keys::TRELLIS_FEDERATION, "f")]);
        assert_eq!(intervals(&mut gate, &same, true, 6), [4, 8, 16, 32, 60, 60]);
        let drain = vm(&[(keys::TRELLIS_FEDERATION, "f"), (keys::TRELLIS_DRAIN, "YES")]);
        assert_eq!(intervals(&mut gate, &drain, true, 2), [4, 8], "a change resets the interval");
        assert_eq!(intervals(&mut gate, &drain, false, 2), [4, 4], "a program that does not serve needs quick answers");
    }
}

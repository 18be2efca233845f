//! The token of a run's ServerApp: issued with the claim, active while the app sends heartbeats, spent with its
//! outputs.
//!
//! Only a hash of the secret is stored. A run has at most one valid token.

use crate::id::RunId;
use crate::{IllegalTransition, Seconds};

/// Time for a claimed app to pull its inputs; then the run can be claimed again. Loading an app may take a minute on a
/// busy machine, and a second copy would slow down the first.
const LAUNCH_TIMEOUT_S: f64 = 120.0;
/// After a restart of the SuperLink it is unknown whether a claimed app was started: time for it to pull its inputs.
const RELAUNCH_TIMEOUT_S: f64 = 10.0;
/// Time between the inputs and the first heartbeat. Flower 1.25 installs the app meanwhile without heartbeats.
const INSTALL_TIMEOUT_S: f64 = 180.0;
/// Heartbeat timeout.
const HEARTBEAT_TIMEOUT_S: f64 = 60.0;

/// Timeout after the connection was closed: a living app sends a heartbeat at least every 22.5 s.
const HANGUP_TIMEOUT_S: f64 = 25.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum State {
    /// Issued, not used.
    Issued { until: Seconds },
    /// The app has its inputs.
    Active { until: Seconds },
    /// The app pushed its outputs and has not reported its end.
    Spent { until: Seconds },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    PullInputs,
    Heartbeat,
    PushOutputs,
    /// The app's connection was closed.
    Hangup,
    /// The SuperLink was down: the timeout starts again.
    Extend,
}

impl State {
    pub fn issue(now: Seconds) -> State {
        State::Issued { until: now + LAUNCH_TIMEOUT_S }
    }

    /// For a launcher that watches the process and reports its end: the claim has no timeout.
    pub fn issue_watched() -> State {
        State::Issued { until: f64::INFINITY }
    }

    pub fn is_watched(self) -> bool {
        matches!(self, State::Issued { until } if until.is_infinite())
    }

    pub fn until(self) -> Seconds {
        match self {
            State::Issued { until } | State::Active { until } | State::Spent { until } => until,
        }
    }

    pub fn has_expired(self, now: Seconds) -> bool {
        self.until() <= now
    }

    fn name(self) -> &'static str {
        match self {
            State::Issued { .. } => "issued",
            State::Active { .. } => "active",
            State::Spent { .. } => "spent",
        }
    }
}

/// Returns the state after `event` at `now`. The caller checks the expiry: a late heartbeat still renews the token of a
/// run that was not failed yet.
pub fn next(state: State, event: Event, now: Seconds) -> Result<State, IllegalTransition> {
    match (state, event) {
        (State::Issued { .. }, Event::PullInputs) => Ok(State::Active { until: now + INSTALL_TIMEOUT_S }),
        (State::Active { until }, Event::PullInputs) => Ok(State::Active { until: until.max(now + INSTALL_TIMEOUT_S) }),
        (State::Issued { until }, Event::Heartbeat) => {
            Ok(State::Issued { until: until.max(now + HEARTBEAT_TIMEOUT_S) })
        }
        (State::Active { .. }, Event::Heartbeat) => Ok(State::Active { until: now + HEARTBEAT_TIMEOUT_S }),
        (State::Spent { .. }, Event::Heartbeat) | (State::Active { .. } | State::Spent { .. }, Event::PushOutputs) => {
            Ok(State::Spent { until: now + HEARTBEAT_TIMEOUT_S })
        }
        (State::Issued { .. }, Event::Extend) if state.is_watched() => Ok(state),
        (State::Issued { .. }, Event::Extend) => Ok(State::Issued { until: now + RELAUNCH_TIMEOUT_S }),
        (State::Active { until }, Event::Extend) => Ok(State::Active { until: until.max(now + HEARTBEAT_TIMEOUT_S) }),
        (State::Spent { until }, Event::Extend) => Ok(State::Spent { until: until.max(now + HEARTBEAT_TIMEOUT_S) }),
        (State::Issued { .. }, Event::Hangup) => Ok(state),
        (State::Active { until }, Event::Hangup) => Ok(State::Active { until: until.min(now + HANGUP_TIMEOUT_S) }),
        (State::Spent { until }, Event::Hangup) => Ok(State::Spent { until: until.min(now + HANGUP_TIMEOUT_S) }),
        (State::Issued { .. }, Event::PushOutputs) => {
            Err(IllegalTransition { state: state.name(), event: "push outputs" })
        }
        (State::Spent { .. }, Event::PullInputs) => {
            Err(IllegalTransition { state: state.name(), event: "pull inputs" })
        }
    }
}

/// A stored token.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    pub run: RunId,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    pub state: State,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every state, every event. `None` is refused.
    #[test]
    fn table() {
        let now = 1000.0;
        let events = [Event::PullInputs, Event::Heartbeat, Event::PushOutputs, Event::Extend, Event::Hangup];
        let (issued, active, spent) =
            (State::Issued { until: 1010.0 }, State::Active { until: 1040.0 }, State::Spent { until: 1010.0 });
        let rows = [
            (
                issued,
                [
                    Some(State::Active { until: 1180.0 }),
                    Some(State::Issued { until: 1060.0 }),
                    None,
                    Some(State::Issued { until: 1010.0 }),
                    Some(State::Issued { until: 1010.0 }),
                ],
            ),
            (
                active,
                [
                    Some(State::Active { until: 1180.0 }),
                    Some(State::Active { until: 1060.0 }),
                    Some(State::Spent { until: 1060.0 }),
                    Some(State::Active { until: 1060.0 }),
                    Some(State::Active { until: 1025.0 }),
                ],
            ),
            (
                spent,
                [
                    None,
                    Some(State::Spent { until: 1060.0 }),
                    Some(State::Spent { until: 1060.0 }),
                    Some(State::Spent { until: 1060.0 }),
                    Some(State::Spent { until: 1010.0 }),
                ],
            ),
        ];
        for (state, row) in rows {
            for (event, expected) in events.into_iter().zip(row) {
                assert_eq!(next(state, event, now).ok(), expected, "{state:?} + {event:?}");
            }
        }
        let watched = State::issue_watched();
        for event in [Event::Heartbeat, Event::Extend, Event::Hangup] {
            assert_eq!(next(watched, event, now), Ok(watched), "{event:?}: only the launcher ends a watched claim");
        }
        assert_eq!(next(watched, Event::PullInputs, now), Ok(State::Active { until: 1180.0 }));
    }
}

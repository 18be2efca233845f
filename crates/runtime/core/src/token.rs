//! The token of a run's ServerApp: issued to whoever claims the run, active while the app is heard, spent at its end.
//!
//! Only a hash of the secret is kept. At most one token of a run is good at any time.

use crate::id::RunId;
use crate::{Illegal, Seconds};

/// A run claimed by a SuperExec whose app has not asked for its inputs after this time is free again. Loading an app may
/// take a minute on a busy machine, and a second copy would slow down the first.
const LAUNCH_PATIENCE_S: f64 = 120.0;
/// After an absence of the SuperLink nobody can say whether the claimed app was started: it gets this long to show up.
const RELAUNCH_PATIENCE_S: f64 = 10.0;
/// From the inputs to the first heartbeat an app may install itself (1.25 sends no heartbeat meanwhile).
const INSTALL_PATIENCE_S: f64 = 180.0;
/// After a heartbeat the app may be silent for this long.
const HEARTBEAT_PATIENCE_S: f64 = 60.0;

/// An app whose connection was closed is heard again within this time, if it lives: it sends a heartbeat at least every
/// 22.5 s.
const HANGUP_PATIENCE_S: f64 = 25.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum State {
    /// Handed out, not used yet.
    Issued { until: Seconds },
    /// The app has its inputs and is at work.
    Active { until: Seconds },
    /// The app delivered its outputs; only its last word is missing.
    Spent { until: Seconds },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    PullInputs,
    Heartbeat,
    PushOutputs,
    /// The connection that the app works over was closed.
    Hangup,
    /// The SuperLink was away, so silence proves nothing: patience starts again.
    Excuse,
}

impl State {
    pub fn issue(now: Seconds) -> State {
        State::Issued { until: now + LAUNCH_PATIENCE_S }
    }

    /// The launcher watches the process of the app, and says when it is gone: only then is the run free again.
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

/// The step `event` makes at `now`. Whether the token has expired is the caller's question, not the machine's: a late
/// heartbeat of a run that nobody has declared dead yet saves it.
pub fn next(state: State, event: Event, now: Seconds) -> Result<State, Illegal> {
    match (state, event) {
        (State::Issued { .. }, Event::PullInputs) => Ok(State::Active { until: now + INSTALL_PATIENCE_S }),
        (State::Active { until }, Event::PullInputs) => {
            Ok(State::Active { until: until.max(now + INSTALL_PATIENCE_S) })
        }
        (State::Issued { until }, Event::Heartbeat) => {
            Ok(State::Issued { until: until.max(now + HEARTBEAT_PATIENCE_S) })
        }
        (State::Active { .. }, Event::Heartbeat) => Ok(State::Active { until: now + HEARTBEAT_PATIENCE_S }),
        (State::Spent { .. }, Event::Heartbeat) | (State::Active { .. } | State::Spent { .. }, Event::PushOutputs) => {
            Ok(State::Spent { until: now + HEARTBEAT_PATIENCE_S })
        }
        (State::Issued { .. }, Event::Excuse) if state.is_watched() => Ok(state),
        (State::Issued { .. }, Event::Excuse) => Ok(State::Issued { until: now + RELAUNCH_PATIENCE_S }),
        (State::Active { until }, Event::Excuse) => Ok(State::Active { until: until.max(now + HEARTBEAT_PATIENCE_S) }),
        (State::Spent { until }, Event::Excuse) => Ok(State::Spent { until: until.max(now + HEARTBEAT_PATIENCE_S) }),
        (State::Issued { .. }, Event::Hangup) => Ok(state),
        (State::Active { until }, Event::Hangup) => Ok(State::Active { until: until.min(now + HANGUP_PATIENCE_S) }),
        (State::Spent { until }, Event::Hangup) => Ok(State::Spent { until: until.min(now + HANGUP_PATIENCE_S) }),
        (State::Issued { .. }, Event::PushOutputs) => Err(Illegal { state: state.name(), event: "push outputs" }),
        (State::Spent { .. }, Event::PullInputs) => Err(Illegal { state: state.name(), event: "pull inputs" }),
    }
}

/// A token as it is kept.
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
        let events = [Event::PullInputs, Event::Heartbeat, Event::PushOutputs, Event::Excuse, Event::Hangup];
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
            for (event, want) in events.into_iter().zip(row) {
                assert_eq!(next(state, event, now).ok(), want, "{state:?} + {event:?}");
            }
        }
        let watched = State::issue_watched();
        for event in [Event::Heartbeat, Event::Excuse, Event::Hangup] {
            assert_eq!(next(watched, event, now), Ok(watched), "{event:?}: only the launcher ends it");
        }
        assert_eq!(next(watched, Event::PullInputs, now), Ok(State::Active { until: 1180.0 }));
    }
}

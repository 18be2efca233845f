//! The state machine of a node: registered, online, offline, unregistered.
//!
//! Offline depends on the time, not on an event: an online node whose deadline has passed is offline.

use crate::id::NodeId;
use crate::{IllegalTransition, Seconds};

/// Heartbeat intervals a node may announce.
pub const HEARTBEAT_INTERVAL_S: std::ops::RangeInclusive<f64> = 10.0..=1800.0;
/// A node is online until this many intervals have passed without a heartbeat.
const MAX_MISSED_HEARTBEATS: f64 = 2.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum State {
    Registered,
    Online { until: Seconds },
    Offline,
    Unregistered,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// A process with the node's key started. Legal while online too: a node may restart before its deadline.
    Activate {
        interval_s: f64,
    },
    Heartbeat {
        interval_s: f64,
    },
    Deactivate,
    Unregister,
    /// The SuperLink was down: the deadline of online nodes is extended.
    Extend {
        interval_s: f64,
    },
}

impl State {
    /// Returns the state at `now`.
    pub fn at(self, now: Seconds) -> State {
        match self {
            State::Online { until } if until <= now => State::Offline,
            state => state,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            State::Registered => "registered",
            State::Online { .. } => "online",
            State::Offline => "offline",
            State::Unregistered => "unregistered",
        }
    }
}

impl Event {
    pub fn name(self) -> &'static str {
        match self {
            Event::Activate { .. } => "activate",
            Event::Heartbeat { .. } => "heartbeat",
            Event::Deactivate => "deactivate",
            Event::Unregister => "unregister",
            Event::Extend { .. } => "extend",
        }
    }
}

/// Returns the state after `event` at `now`.
pub fn next(state: State, event: Event, now: Seconds) -> Result<State, IllegalTransition> {
    let illegal = || IllegalTransition { state: state.at(now).name(), event: event.name() };
    match (state, event) {
        (State::Unregistered, _) => Err(illegal()),
        (_, Event::Activate { interval_s } | Event::Heartbeat { interval_s }) => {
            Ok(State::Online { until: now + MAX_MISSED_HEARTBEATS * interval_s })
        }
        (State::Online { until }, Event::Extend { interval_s }) => {
            Ok(State::Online { until: until.max(now + MAX_MISSED_HEARTBEATS * interval_s) })
        }
        (_, Event::Extend { .. }) => Err(illegal()),
        (State::Online { until }, Event::Deactivate) if until > now => Ok(State::Offline),
        (_, Event::Deactivate) => Err(illegal()),
        (_, Event::Unregister) => Ok(State::Unregistered),
    }
}

/// A stored node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub id: NodeId,
    pub owner_aid: String,
    pub owner_name: String,
    /// PEM SubjectPublicKeyInfo, as the node sent it.
    pub public_key: Vec<u8>,
    pub registered_at: Seconds,
    pub last_activated_at: Option<Seconds>,
    pub last_deactivated_at: Option<Seconds>,
    pub unregistered_at: Option<Seconds>,
    pub heartbeat_interval_s: f64,
    /// Given by the owner; may be empty.
    pub name: String,
    pub location: String,
    /// Client release at the last activation, like `http 1.42.0`; empty before the first activation.
    pub client: String,
    /// The last deadline. Users see it also after the node went offline.
    pub online_until: Option<Seconds>,
    state: State,
}

impl Node {
    pub fn register(id: NodeId, owner: (&str, &str), public_key: &[u8], interval_s: f64, now: Seconds) -> Node {
        Node {
            id,
            owner_aid: owner.0.to_owned(),
            owner_name: owner.1.to_owned(),
            public_key: public_key.to_vec(),
            registered_at: now,
            last_activated_at: None,
            last_deactivated_at: None,
            unregistered_at: None,
            heartbeat_interval_s: interval_s,
            name: String::new(),
            location: String::new(),
            client: String::new(),
            online_until: None,
            state: State::Registered,
        }
    }

    /// Restores a stored node. For stores.
    pub fn restore(self, state: State) -> Node {
        Node { state, ..self }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Applies an event and updates the dates.
    pub fn apply(&mut self, event: Event, now: Seconds) -> Result<(), IllegalTransition> {
        let before = self.state.at(now);
        if let (State::Online { until }, State::Offline) = (self.state, before) {
            self.last_deactivated_at = Some(until);
        }
        self.state = next(self.state, event, now)?;
        match self.state {
            State::Online { until } => {
                if !matches!(before, State::Online { .. }) || matches!(event, Event::Activate { .. }) {
                    self.last_activated_at = Some(now);
                }
                self.online_until = Some(until);
                if let Event::Activate { interval_s } | Event::Heartbeat { interval_s } = event {
                    self.heartbeat_interval_s = interval_s;
                }
            }
            State::Offline => {
                self.last_deactivated_at = Some(now);
                self.online_until = Some(now);
            }
            State::Unregistered => {
                self.unregistered_at = Some(now);
                self.online_until = self.online_until.map(|until| until.min(now));
            }
            State::Registered => {}
        }
        Ok(())
    }

    /// Returns when the node last went offline, as of `now`.
    pub fn last_deactivated_at(&self, now: Seconds) -> Option<Seconds> {
        match self.state {
            State::Online { until } if until <= now => Some(until),
            _ => self.last_deactivated_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Seconds = 1000.0;
    const I: f64 = 30.0;

    /// Every state, every event. `-` is refused.
    #[test]
    fn table() {
        let states = [
            State::Registered,
            State::Online { until: NOW + 5.0 },
            State::Online { until: NOW - 5.0 },
            State::Offline,
            State::Unregistered,
        ];
        let events = [
            Event::Activate { interval_s: I },
            Event::Heartbeat { interval_s: I },
            Event::Deactivate,
            Event::Unregister,
            Event::Extend { interval_s: I },
        ];
        let up = Some(State::Online { until: NOW + 60.0 });
        let gone = Some(State::Unregistered);
        let expected = [
            [up, up, None, gone, None],
            [up, up, Some(State::Offline), gone, up],
            [up, up, None, gone, up],
            [up, up, None, gone, None],
            [None, None, None, None, None],
        ];
        for (state, row) in states.into_iter().zip(expected) {
            for (event, expected) in events.into_iter().zip(row) {
                assert_eq!(next(state, event, NOW).ok(), expected, "{state:?} + {event:?}");
            }
        }
    }

    #[test]
    fn dates_follow_the_state() {
        let mut node = Node::register(NodeId(7), ("aid", "name"), b"key", 0.0, 1.0);
        node.apply(Event::Activate { interval_s: I }, 10.0).unwrap();
        assert_eq!((node.last_activated_at, node.online_until), (Some(10.0), Some(70.0)));
        node.apply(Event::Heartbeat { interval_s: I }, 20.0).unwrap();
        assert_eq!((node.last_activated_at, node.online_until), (Some(10.0), Some(80.0)));
        assert_eq!(node.last_deactivated_at(81.0), Some(80.0), "offline by time");
        node.apply(Event::Heartbeat { interval_s: I }, 100.0).unwrap();
        assert_eq!((node.last_activated_at, node.last_deactivated_at), (Some(100.0), Some(80.0)), "it came back");
        node.apply(Event::Unregister, 110.0).unwrap();
        assert_eq!((node.unregistered_at, node.online_until), (Some(110.0), Some(110.0)));
    }

    #[test]
    fn an_extension_never_shortens_the_deadline() {
        let state = State::Online { until: 500.0 };
        assert_eq!(next(state, Event::Extend { interval_s: I }, 100.0), Ok(State::Online { until: 500.0 }));
    }
}

//! The rotation of an authority, as a state machine: the signing authority, the trusted ones, the legal steps. Knows no files,
//! certificates or nodes. The operator must ensure that every node has the trust bundle before a step;
//! [`State::next_step`] says so.
//!
//! ```text
//! steady --begin--> announced --switch--> switched --finish--> steady
//!    ^----cancel-------'   ^----switch back---'
//! ```

use serde::{Deserialize, Serialize};

use crate::certificate::KeyId;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase", deny_unknown_fields)]
pub enum State {
    /// One authority signs and is trusted.
    Steady { signing: KeyId },
    /// There is a new authority, and it is trusted; the old one still signs.
    Announced { signing: KeyId, next: KeyId },
    /// The new one signs; the old one is still trusted, for leaves that are still served.
    Switched { signing: KeyId, old: KeyId },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A new authority was created.
    Begin { next: KeyId },
    /// Every client trusts the new one: let it sign.
    Switch,
    /// Some client does not trust it: the old one signs again.
    SwitchBack,
    /// No leaf of the old one is served any more: trust it no longer.
    Finish,
    /// Drops the new authority, which has not issued a leaf in use.
    Cancel,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{event} is not possible while the rotation is {state}")]
pub struct Illegal {
    pub state: &'static str,
    pub event: &'static str,
}

/// The transition of `event`. Steps are idempotent, so that each can be repeated after a crash.
pub fn next(state: &State, event: &Event) -> Result<State, Illegal> {
    match (state.clone(), event) {
        (State::Steady { signing }, Event::Begin { next }) => Ok(State::Announced { signing, next: next.clone() }),
        (State::Announced { signing, next }, Event::Switch) => Ok(State::Switched { signing: next, old: signing }),
        (State::Switched { signing, old }, Event::SwitchBack) => Ok(State::Announced { signing: old, next: signing }),
        (State::Switched { signing, .. }, Event::Finish) => Ok(State::Steady { signing }),
        (State::Announced { signing, .. }, Event::Cancel) => Ok(State::Steady { signing }),

        (same @ State::Announced { .. }, Event::Begin { .. } | Event::SwitchBack)
        | (same @ State::Switched { .. }, Event::Switch)
        | (same @ State::Steady { .. }, Event::Finish | Event::Cancel) => Ok(same),

        (state, event) => Err(Illegal { state: state.name(), event: event.name() }),
    }
}

impl State {
    pub fn name(&self) -> &'static str {
        match self {
            State::Steady { .. } => "steady",
            State::Announced { .. } => "announced",
            State::Switched { .. } => "switched",
        }
    }

    pub fn signing(&self) -> &KeyId {
        match self {
            State::Steady { signing } | State::Announced { signing, .. } | State::Switched { signing, .. } => signing,
        }
    }

    /// All trusted authorities, the signing one first.
    pub fn trusted(&self) -> Vec<&KeyId> {
        match self {
            State::Steady { signing } => vec![signing],
            State::Announced { signing, next: other } | State::Switched { signing, old: other } => {
                vec![signing, other]
            }
        }
    }

    /// The next step: its flag, its effect, and its precondition.
    pub fn next_step(&self) -> NextStep {
        match self {
            State::Steady { .. } => NextStep {
                flag: "--begin",
                does: "creates a new CA and adds it to the trust bundle; the present one keeps signing",
                before: "nothing: a rotation can begin at any time",
            },
            State::Announced { .. } => NextStep {
                flag: "--switch",
                does: "lets the new CA sign all leaves from then on",
                before: "every SuperNode, flwr client and SuperLink has the trust bundle with both CAs \
                         (trellis pki trust) and was started with it",
            },
            State::Switched { .. } => NextStep {
                flag: "--finish",
                does: "removes the old CA from the trust bundle and destroys its key",
                before: "every SuperLink serves a leaf of the new CA (trellis pki issue --renew)",
            },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextStep {
    pub flag: &'static str,
    pub does: &'static str,
    pub before: &'static str,
}

impl Event {
    pub fn name(&self) -> &'static str {
        match self {
            Event::Begin { .. } => "begin",
            Event::Switch => "switch",
            Event::SwitchBack => "switch back",
            Event::Finish => "finish",
            Event::Cancel => "cancel",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> KeyId {
        KeyId::of(name.as_bytes())
    }

    /// Every state, every event. `None` is illegal.
    #[test]
    fn table() {
        let (a, b) = (id("a"), id("b"));
        let steady = |signing: &KeyId| State::Steady { signing: signing.clone() };
        let announced = State::Announced { signing: a.clone(), next: b.clone() };
        let switched = State::Switched { signing: b.clone(), old: a.clone() };
        let events = [Event::Begin { next: b.clone() }, Event::Switch, Event::SwitchBack, Event::Finish, Event::Cancel];
        let (some_announced, some_switched) = (Some(announced.clone()), Some(switched.clone()));
        let rows = [
            (steady(&a), [some_announced.clone(), None, None, Some(steady(&a)), Some(steady(&a))]),
            (
                announced,
                [some_announced.clone(), some_switched.clone(), some_announced.clone(), None, Some(steady(&a))],
            ),
            (switched, [None, some_switched, some_announced, Some(steady(&b)), None]),
        ];
        for (state, row) in rows {
            for (event, want) in events.iter().zip(row) {
                assert_eq!(next(&state, event).ok(), want, "{state:?} + {event:?}");
            }
        }
    }

    /// Clients with the bundle of a state trust every leaf of that state and of its neighbours.
    #[test]
    fn neighbours_trust_each_other() {
        let mut state = State::Steady { signing: id("a") };
        for event in [
            Event::Begin { next: id("b") },
            Event::Switch,
            Event::SwitchBack,
            Event::Switch,
            Event::Finish,
            Event::Begin { next: id("c") },
            Event::Cancel,
        ] {
            let after = next(&state, &event).expect("a legal step");
            assert!(after.trusted().contains(&state.signing()), "{event:?}");
            assert!(state.trusted().contains(&after.signing()), "{event:?}");
            state = after;
        }
    }

    #[test]
    fn states_are_kept_as_text() {
        let state = State::Switched { signing: id("b"), old: id("a") };
        let text = serde_json::to_string(&state).expect("text");
        assert_eq!(serde_json::from_str::<State>(&text).expect("a state"), state);
        assert!(text.starts_with("{\"state\":\"switched\","), "{text}");
    }
}

//! The life of one instruction on the node: which step follows which. Decides only; rows and files are `store`'s.
//!
//! ```text
//!  Fetching --fetched--> Ready --started--> Running --replied--> Replied --delivered--> (gone)
//!     ^                    ^                   |                    |
//!     |                    +---- postponed ----+                    |
//!     +------ objects lost (of the instruction, or of the reply) ---+
//! ```

/// How often an instruction is begun before the node answers that it cannot be carried out. An app that takes the whole
/// node with it must not do so for ever.
pub const MOST_ATTEMPTS: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Known; not all of its objects are here, and the SuperLink has not been told that it has arrived.
    Fetching,
    /// Everything is here.
    Ready,
    /// An app works on it.
    Running,
    /// Answered; the reply was not delivered yet.
    Replied,
}

impl State {
    pub const ALL: [State; 4] = [State::Fetching, State::Ready, State::Running, State::Replied];

    /// As it is stored.
    pub fn number(self) -> i64 {
        match self {
            State::Fetching => 0,
            State::Ready => 1,
            State::Running => 2,
            State::Replied => 3,
        }
    }

    pub fn from_number(number: i64) -> Option<State> {
        State::ALL.into_iter().find(|state| state.number() == number)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// All its objects are here.
    Fetched,
    /// An app begins to work on it.
    Started,
    /// There is a reply, by the app or about why there is none.
    Replied,
    /// The app could not do it just now, or the node stops: this attempt does not count.
    Postponed,
    /// The node ended while the app was at it.
    Interrupted,
    /// Objects that should be here are not, or are damaged.
    ObjectsLost,
}

impl Event {
    pub const ALL: [Event; 6] =
        [Event::Fetched, Event::Started, Event::Replied, Event::Postponed, Event::Interrupted, Event::ObjectsLost];
}

/// The state after an event; `None`: the event cannot happen in this state.
pub fn next(state: State, event: Event) -> Option<State> {
    use State::*;
    match (state, event) {
        (Fetching, Event::Fetched) => Some(Ready),
        (Ready, Event::Started) => Some(Running),
        // Without an app too: it is too late, its app is not good, its objects are gone.
        (Fetching | Ready | Running, Event::Replied) => Some(Replied),
        (Running, Event::Postponed | Event::Interrupted) => Some(Ready),
        // Where a reply was damaged the instruction is carried out again, on the context of before.
        (Ready | Running | Replied, Event::ObjectsLost) => Some(Fetching),
        (Fetching, Event::ObjectsLost) => Some(Fetching),
        _ => None,
    }
}

/// What becomes of an instruction when the node starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Nobody waits for it any more.
    Forget,
    /// It goes on from this state.
    GoOn(State),
    /// It is answered with an error: it was begun too often.
    GiveUp,
}

pub fn recover(state: State, attempts: u32, expires_at: f64, now: f64) -> Recovery {
    match state {
        _ if now >= expires_at => Recovery::Forget,
        State::Running if attempts >= MOST_ATTEMPTS => Recovery::GiveUp,
        State::Running => Recovery::GoOn(State::Ready),
        state => Recovery::GoOn(state),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_and_event() {
        use Event::*;
        use State::*;
        for (state, expected) in [
            (
                Fetching,
                [
                    (Fetched, Some(Ready)),
                    (Started, None),
                    (Event::Replied, Some(State::Replied)),
                    (Postponed, None),
                    (Interrupted, None),
                    (ObjectsLost, Some(Fetching)),
                ],
            ),
            (
                Ready,
                [
                    (Fetched, None),
                    (Started, Some(Running)),
                    (Event::Replied, Some(State::Replied)),
                    (Postponed, None),
                    (Interrupted, None),
                    (ObjectsLost, Some(Fetching)),
                ],
            ),
            (
                Running,
                [
                    (Fetched, None),
                    (Started, None),
                    (Event::Replied, Some(State::Replied)),
                    (Postponed, Some(Ready)),
                    (Interrupted, Some(Ready)),
                    (ObjectsLost, Some(Fetching)),
                ],
            ),
            (
                State::Replied,
                [
                    (Fetched, None),
                    (Started, None),
                    (Event::Replied, None),
                    (Postponed, None),
                    (Interrupted, None),
                    (ObjectsLost, Some(Fetching)),
                ],
            ),
        ] {
            assert_eq!(expected.map(|(event, _)| event), Event::ALL);
            for (event, after) in expected {
                assert_eq!(next(state, event), after, "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn a_restart_loses_nothing_that_somebody_waits_for() {
        for state in State::ALL {
            assert_eq!(recover(state, 0, 10.0, 10.0), Recovery::Forget, "{state:?}");
            assert_eq!(State::from_number(state.number()), Some(state));
        }
        assert_eq!(recover(State::Fetching, 0, 10.0, 9.0), Recovery::GoOn(State::Fetching));
        assert_eq!(recover(State::Running, MOST_ATTEMPTS - 1, 10.0, 9.0), Recovery::GoOn(State::Ready));
        assert_eq!(recover(State::Running, MOST_ATTEMPTS, 10.0, 9.0), Recovery::GiveUp);
        assert_eq!(recover(State::Replied, MOST_ATTEMPTS, 10.0, 9.0), Recovery::GoOn(State::Replied));
    }
}

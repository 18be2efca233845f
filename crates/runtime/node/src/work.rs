//! The state machine of one instruction on the node. Decides only; the store has rows and files.
//!
//! ```text
//!  Fetching --fetched--> Ready --started--> Running --replied--> Replied --delivered--> (gone)
//!     ^                    ^                   |                    |
//!     |                    +---- postponed ----+                    |
//!     +------ objects lost (of the instruction, or of the reply) ---+
//! ```

/// The limit of executions, after which the node answers with an error. An app that crashes the whole node must not do so
/// forever.
pub const MAX_ATTEMPTS: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Received; some objects are missing, and the instruction is not confirmed.
    Fetching,
    /// All objects are stored.
    Ready,
    /// An app executes it.
    Running,
    /// Answered; the reply is not delivered.
    Replied,
}

impl State {
    pub const ALL: [State; 4] = [State::Fetching, State::Ready, State::Running, State::Replied];

    /// The stored number.
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
    /// All its objects are stored.
    Fetched,
    /// An app starts the execution.
    Started,
    /// There is a reply, of the app or an error of the node.
    Replied,
    /// The app cannot run now, or the node is stopping; the attempt does not count.
    Postponed,
    /// The node died during the execution.
    Interrupted,
    /// Objects are missing or damaged.
    ObjectsLost,
}

impl Event {
    pub const ALL: [Event; 6] =
        [Event::Fetched, Event::Started, Event::Replied, Event::Postponed, Event::Interrupted, Event::ObjectsLost];
}

/// The state after an event; `None`: the event is not possible in this state.
pub fn next(state: State, event: Event) -> Option<State> {
    use State::*;
    match (state, event) {
        (Fetching, Event::Fetched) => Some(Ready),
        (Ready, Event::Started) => Some(Running),
        // Also without an app, with an error: it is too late, its app is invalid, or its objects are lost.
        (Fetching | Ready | Running, Event::Replied) => Some(Replied),
        (Running, Event::Postponed | Event::Interrupted) => Some(Ready),
        // The instruction of a damaged reply is executed again, with the context before it.
        (Ready | Running | Replied, Event::ObjectsLost) => Some(Fetching),
        (Fetching, Event::ObjectsLost) => Some(Fetching),
        _ => None,
    }
}

/// What happens to an instruction when the node restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Its TTL has passed.
    Forget,
    /// It continues in this state.
    Continue(State),
    /// It is answered with an error: too many attempts.
    GiveUp,
}

pub fn recover(state: State, attempts: u32, expires_at: f64, now: f64) -> Recovery {
    match state {
        _ if now >= expires_at => Recovery::Forget,
        State::Running if attempts >= MAX_ATTEMPTS => Recovery::GiveUp,
        State::Running => Recovery::Continue(State::Ready),
        state => Recovery::Continue(state),
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
    fn a_restart_loses_no_instruction_that_is_still_valid() {
        for state in State::ALL {
            assert_eq!(recover(state, 0, 10.0, 10.0), Recovery::Forget, "{state:?}");
            assert_eq!(State::from_number(state.number()), Some(state));
        }
        assert_eq!(recover(State::Fetching, 0, 10.0, 9.0), Recovery::Continue(State::Fetching));
        assert_eq!(recover(State::Running, MAX_ATTEMPTS - 1, 10.0, 9.0), Recovery::Continue(State::Ready));
        assert_eq!(recover(State::Running, MAX_ATTEMPTS, 10.0, 9.0), Recovery::GiveUp);
        assert_eq!(recover(State::Replied, MAX_ATTEMPTS, 10.0, 9.0), Recovery::Continue(State::Replied));
    }
}

//! The state machine of a run: pending, starting, running, finished.

use crate::id::RunId;
use crate::{IllegalTransition, Seconds};

/// Maximum number of launches of a ServerApp that never pulls its inputs.
pub const MAX_LAUNCHES: u32 = 5;
/// Maximum number of restarts of a native ServerApp without a finished round in between.
pub const MAX_RESTARTS: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    Completed,
    Failed,
    Stopped,
}

/// The kind of ServerApp of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ServerApp {
    /// The Python program in the run's FAB.
    #[default]
    Flower,
    /// The native ServerApp of Trellis.
    Native,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Pending,
    Starting,
    Running,
    Finished { outcome: Outcome, details: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A launcher took the run and got a token for its ServerApp.
    Claim,
    /// The ServerApp pulled its inputs. Idempotent: the first answer may have been lost.
    PullInputs,
    /// The launch failed: the run may be claimed again.
    LoseLaunch,
    /// The ServerApp died, and a new process continues the run.
    Restart,
    Finish {
        outcome: Outcome,
        details: String,
    },
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Failed => "failed",
            Outcome::Stopped => "stopped",
        }
    }

    pub fn from_name(name: &str) -> Option<Outcome> {
        [Outcome::Completed, Outcome::Failed, Outcome::Stopped].into_iter().find(|outcome| outcome.name() == name)
    }
}

impl State {
    pub fn name(&self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Starting => "starting",
            State::Running => "running",
            State::Finished { .. } => "finished",
        }
    }

    pub fn is_finished(&self) -> bool {
        matches!(self, State::Finished { .. })
    }
}

impl Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Claim => "claim",
            Event::PullInputs => "pull inputs",
            Event::LoseLaunch => "lose launch",
            Event::Restart => "restart",
            Event::Finish { .. } => "finish",
        }
    }
}

/// Returns the next state.
pub fn next(state: &State, event: Event) -> Result<State, IllegalTransition> {
    let illegal = IllegalTransition { state: state.name(), event: event.name() };
    match (state, event) {
        (State::Pending, Event::Claim) => Ok(State::Starting),
        (State::Pending | State::Starting | State::Running, Event::PullInputs) => Ok(State::Running),
        (State::Pending | State::Starting, Event::LoseLaunch) => Ok(State::Pending),
        (State::Running, Event::Restart) => Ok(State::Running),
        (State::Pending | State::Starting, Event::Finish { outcome: Outcome::Completed, .. }) => Err(illegal),
        (State::Pending | State::Starting | State::Running, Event::Finish { outcome, details }) => {
            Ok(State::Finished { outcome, details })
        }
        (State::Finished { outcome: was, details: why }, Event::Finish { outcome, details })
            if *was == outcome && *why == details =>
        {
            Ok(state.clone())
        }
        _ => Err(illegal),
    }
}

/// A stored run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub id: RunId,
    pub fab_id: String,
    pub fab_version: String,
    pub fab_hash: String,
    /// Overrides in the front end's encoding. The core does not interpret them.
    pub override_config: Vec<u8>,
    /// Federation options in the front end's encoding.
    pub federation_options: Vec<u8>,
    pub federation: String,
    pub account: String,
    pub server_app: ServerApp,
    pub pending_at: Seconds,
    pub starting_at: Option<Seconds>,
    pub running_at: Option<Seconds>,
    pub finished_at: Option<Seconds>,
    /// Number of launches of its ServerApp.
    pub launches: u32,
    pub clientapp_runtime_s: f64,
    /// Client release of its ServerApp, like `grpc 1.39.0`; empty before it pulled its inputs.
    pub client: String,
    state: State,
}

/// A new run as submitted by a user.
#[derive(Debug, Clone, Default)]
pub struct NewRun {
    pub fab_id: String,
    pub fab_version: String,
    pub fab_hash: String,
    pub override_config: Vec<u8>,
    pub federation_options: Vec<u8>,
    pub federation: String,
    pub account: String,
    pub server_app: ServerApp,
}

impl Run {
    pub fn new(id: RunId, new: NewRun, now: Seconds) -> Run {
        Run {
            id,
            fab_id: new.fab_id,
            fab_version: new.fab_version,
            fab_hash: new.fab_hash,
            override_config: new.override_config,
            federation_options: new.federation_options,
            federation: new.federation,
            account: new.account,
            server_app: new.server_app,
            pending_at: now,
            starting_at: None,
            running_at: None,
            finished_at: None,
            launches: 0,
            clientapp_runtime_s: 0.0,
            client: String::new(),
            state: State::Pending,
        }
    }

    /// Restores a stored run. For stores.
    pub fn restore(self, state: State) -> Run {
        Run { state, ..self }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Resets the count of restarts after a finished round. Returns whether there were restarts.
    pub fn note_progress(&mut self) -> bool {
        let had_died = self.state == State::Running && self.launches > 1;
        if had_died {
            self.launches = 1;
        }
        had_died
    }

    /// Applies an event and updates the dates.
    pub fn apply(&mut self, event: Event, now: Seconds) -> Result<(), IllegalTransition> {
        self.launches += u32::from(self.state == State::Running && event == Event::Restart);
        let state = next(&self.state, event)?;
        match (&self.state, &state) {
            (_, State::Starting) => {
                self.starting_at = Some(now);
                self.launches += 1;
            }
            (State::Pending | State::Starting, State::Running) => {
                self.starting_at.get_or_insert(now);
                self.running_at = Some(now);
            }
            (_, State::Pending) => self.starting_at = None,
            (State::Pending | State::Starting | State::Running, State::Finished { .. }) => self.finished_at = Some(now),
            _ => {}
        }
        self.state = state;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(outcome: Outcome) -> State {
        State::Finished { outcome, details: "why".into() }
    }

    fn finish(outcome: Outcome) -> Event {
        Event::Finish { outcome, details: "why".into() }
    }

    /// Every state, every event. `None` is refused.
    #[test]
    fn table() {
        use Outcome::*;
        let events = [
            Event::Claim,
            Event::PullInputs,
            Event::LoseLaunch,
            Event::Restart,
            finish(Completed),
            finish(Failed),
            finish(Stopped),
        ];
        let (starting, running, pending) = (Some(State::Starting), Some(State::Running), Some(State::Pending));
        let (completed, failed, stopped) = (Some(finished(Completed)), Some(finished(Failed)), Some(finished(Stopped)));
        let rows = [
            (State::Pending, [starting, running.clone(), pending.clone(), None, None, failed.clone(), stopped.clone()]),
            (State::Starting, [None, running.clone(), pending, None, None, failed.clone(), stopped.clone()]),
            (
                State::Running,
                [None, running.clone(), None, running, completed.clone(), failed.clone(), stopped.clone()],
            ),
            (finished(Completed), [None, None, None, None, completed, None, None]),
            (finished(Failed), [None, None, None, None, None, failed, None]),
            (finished(Stopped), [None, None, None, None, None, None, stopped]),
        ];
        for (state, row) in rows {
            for (event, expected) in events.iter().zip(row) {
                assert_eq!(next(&state, event.clone()).ok(), expected, "{state:?} + {event:?}");
            }
        }
    }

    #[test]
    fn repeated_events_keep_the_first_date() {
        let mut run = Run::new(RunId(1), NewRun::default(), 1.0);
        run.apply(Event::Claim, 2.0).unwrap();
        run.apply(Event::PullInputs, 3.0).unwrap();
        run.apply(Event::PullInputs, 4.0).unwrap();
        assert_eq!((run.starting_at, run.running_at, run.launches), (Some(2.0), Some(3.0), 1));
        run.apply(Event::Restart, 4.5).unwrap();
        assert_eq!((run.running_at, run.launches), (Some(3.0), 2), "it runs on");
        run.apply(finish(Outcome::Completed), 5.0).unwrap();
        run.apply(finish(Outcome::Completed), 6.0).unwrap();
        assert_eq!(run.finished_at, Some(5.0));
    }
}

//! State machine of the agent: the steps of a reconcile in their order, and what the result of each step leads to. Pure: the
//! agent performs the effects and reports each result as an event.

use std::time::{Duration, Instant};

use crate::failure::{Code, Failure};
use crate::readiness::Observed;
use crate::supervisor::Change;

/// Delay between two reconciles. The end of a program cuts it short.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(1);
/// The same delay until the programs are ready for the first time.
const BOOT_RECONCILE_INTERVAL: Duration = Duration::from_millis(500);

/// What the agent does about a failure during the boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolve {
    /// Ends at the first failure that no retry can repair, and at the latest after `limit`.
    GiveUp { limit: Duration },
    /// Reports the failure and retries.
    Stay,
}

#[derive(Debug, Clone, PartialEq)]
pub struct State {
    resolve: Resolve,
    phase: Phase,
    boot: Boot,
    rollout: Rollout,
    observed: Observed,
    reported: Report,
}

/// The step that is in progress.
#[derive(Debug, Clone, PartialEq)]
enum Phase {
    /// Reads context, OneGate and machine, and renders the recipe.
    Observing,
    /// Publishes READY=NO before the agent stops the programs.
    Retracting(Disruption),
    Applying,
    /// Follows the controller's requests to drain and to restart.
    Following,
    Restarting,
    Probing {
        failure: Option<Failure>,
    },
    Publishing {
        failure: Option<Failure>,
    },
    Waiting,
    /// A program ended: its state is published before the next reconcile.
    ProbingEnd,
    PublishingEnd,
    Leaving(Reason),
    Stopped(Reason),
}

/// Why the agent stops the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disruption {
    Change,
    Restart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Boot {
    /// The programs were never ready.
    Pending {
        since: Instant,
    },
    Complete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rollout {
    /// No recipe is in force.
    Absent,
    InForce,
    /// A changed recipe waits until no round is running. The recipe in force stays.
    Deferred,
}

/// Why the agent ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    Requested,
    Failed(Failure),
    /// The boot exceeded its limit, and no failure is known.
    TimedOut,
}

/// Contents of the last report in the log.
#[derive(Debug, Clone, Default, PartialEq)]
struct Report {
    failure: Option<Failure>,
    serving: bool,
}

/// When a change may stop the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    Now,
    AfterRound,
}

/// Result of following the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    Nothing,
    Restart,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Rendered(Change, Schedule),
    Applied,
    Followed(Request),
    Restarted,
    Probed {
        observed: Observed,
        /// How the first program ends, if it ends repeatedly.
        crash: Option<String>,
    },
    Published,
    /// The step in progress failed.
    Failed(Failure),
    Elapsed,
    ProgramEnded,
    Stop,
    Left,
}

/// A step that the agent performs. The last effect of a list reports the next event.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Observe,
    Apply,
    Follow,
    Restart,
    Probe,
    Publish(Option<Failure>),
    /// Starts the run of the use case if it is due.
    SubmitRun,
    LogDeferred,
    LogFailure(Option<Failure>),
    LogReadiness(bool),
    WriteStatus(Option<Failure>),
    Wait(Duration),
    /// Publishes the final state and leaves the programs to systemd, or stops them.
    Leave(Reason),
}

/// The event is not legal in the current phase.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the agent cannot take {event:?} while it is {phase:?}")]
pub struct Illegal {
    phase: Box<Phase>,
    event: Box<Event>,
}

impl State {
    pub fn new(resolve: Resolve, now: Instant) -> State {
        State {
            resolve,
            phase: Phase::Observing,
            boot: Boot::Pending { since: now },
            rollout: Rollout::Absent,
            observed: Observed::default(),
            reported: Report::default(),
        }
    }

    /// Result of the last probe; not serving as soon as the agent decides to stop the programs.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// Whether the programs were never ready.
    pub fn is_booting(&self) -> bool {
        self.boot != Boot::Complete
    }

    /// Whether a change waits for the end of a round.
    pub fn is_deferred(&self) -> bool {
        self.rollout == Rollout::Deferred
    }

    /// Whether the agent already ends, so that a request to stop changes nothing.
    pub fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving(_) | Phase::Stopped(_))
    }

    /// Why the agent ended.
    pub fn outcome(&self) -> Option<&Reason> {
        match &self.phase {
            Phase::Stopped(reason) => Some(reason),
            _ => None,
        }
    }

    fn enter(self, phase: Phase, effect: Effect) -> (State, Vec<Effect>) {
        (State { phase, ..self }, vec![effect])
    }

    fn probe(self, failure: Option<Failure>) -> (State, Vec<Effect>) {
        self.enter(Phase::Probing { failure }, Effect::Probe)
    }

    fn retract(mut self, disruption: Disruption) -> (State, Vec<Effect>) {
        self.observed.serving = false;
        self.enter(Phase::Retracting(disruption), Effect::Publish(None))
    }

    fn leave(mut self, reason: Reason) -> (State, Vec<Effect>) {
        self.observed.serving = false;
        self.enter(Phase::Leaving(reason.clone()), Effect::Leave(reason))
    }

    fn rendered(mut self, change: Change, schedule: Schedule) -> (State, Vec<Effect>) {
        let in_round = self.observed.serving && self.observed.busy == Some(true);
        if change == Change::Restart && schedule == Schedule::AfterRound && in_round {
            let effects = match self.rollout {
                Rollout::Deferred => vec![Effect::Follow],
                _ => vec![Effect::LogDeferred, Effect::Follow],
            };
            return (State { phase: Phase::Following, rollout: Rollout::Deferred, ..self }, effects);
        }
        if self.rollout == Rollout::Deferred {
            self.rollout = Rollout::InForce;
        }
        match change {
            Change::Restart => self.retract(Disruption::Change),
            Change::Nothing | Change::Start => self.enter(Phase::Applying, Effect::Apply),
        }
    }

    /// Ends a reconcile: reports its result, then waits or gives up.
    fn conclude(mut self, failure: Option<Failure>, now: Instant) -> (State, Vec<Effect>) {
        let report = Report { failure: failure.clone(), serving: self.observed.serving };
        let mut effects = vec![Effect::SubmitRun];
        if self.reported.failure != report.failure {
            effects.push(Effect::LogFailure(failure.clone()));
        }
        if self.reported.serving != report.serving {
            effects.push(Effect::LogReadiness(report.serving));
        }
        effects.push(Effect::WriteStatus(failure.clone()));
        self.reported = report;
        let (state, last) = match (self.verdict(failure, now), self.boot) {
            (Some(reason), _) => self.leave(reason),
            (None, Boot::Pending { .. }) => self.enter(Phase::Waiting, Effect::Wait(BOOT_RECONCILE_INTERVAL)),
            (None, Boot::Complete) => self.enter(Phase::Waiting, Effect::Wait(RECONCILE_INTERVAL)),
        };
        effects.extend(last);
        (state, effects)
    }

    /// The reason to give up the boot, if there is one.
    fn verdict(&self, failure: Option<Failure>, now: Instant) -> Option<Reason> {
        let (Resolve::GiveUp { limit }, Boot::Pending { since }) = (self.resolve, self.boot) else { return None };
        let is_over = now.duration_since(since) >= limit;
        match failure {
            Some(failure) if failure.code.entry().is_final || is_over => Some(Reason::Failed(failure)),
            None if is_over => Some(Reason::TimedOut),
            _ => None,
        }
    }
}

/// Returns the state after `event`, and what the agent has to do.
pub fn next(mut state: State, event: Event, now: Instant) -> Result<(State, Vec<Effect>), Illegal> {
    Ok(match (state.phase.clone(), event) {
        (Phase::Leaving(reason), Event::Left) => (State { phase: Phase::Stopped(reason), ..state }, Vec::new()),
        (phase @ (Phase::Leaving(_) | Phase::Stopped(_)), event) => return Err(illegal(phase, event)),
        (_, Event::Stop) => state.leave(Reason::Requested),
        (Phase::Observing, Event::Rendered(change, schedule)) => state.rendered(change, schedule),
        (Phase::Retracting(Disruption::Change), Event::Published | Event::Failed(_)) => {
            state.enter(Phase::Applying, Effect::Apply)
        }
        (Phase::Retracting(Disruption::Restart), Event::Published | Event::Failed(_)) => {
            state.enter(Phase::Restarting, Effect::Restart)
        }
        (Phase::Applying, Event::Applied) => {
            State { rollout: Rollout::InForce, ..state }.enter(Phase::Following, Effect::Follow)
        }
        (Phase::Following, Event::Followed(Request::Nothing)) | (Phase::Restarting, Event::Restarted) => {
            state.probe(None)
        }
        (Phase::Following, Event::Followed(Request::Restart)) => state.retract(Disruption::Restart),
        (Phase::Observing | Phase::Applying | Phase::Restarting, Event::Failed(failure)) => state.probe(Some(failure)),
        (Phase::Probing { failure }, Event::Probed { observed, crash }) => {
            state.observed = observed;
            let failure = failure.or_else(|| crash.map(|how| Failure::new(Code::StartFailed, how)));
            state.enter(Phase::Publishing { failure: failure.clone() }, Effect::Publish(failure))
        }
        (Phase::Publishing { failure }, Event::Published) => {
            if state.observed.serving {
                state.boot = Boot::Complete;
            }
            state.conclude(failure, now)
        }
        (Phase::Publishing { failure }, Event::Failed(unpublished)) => {
            state.conclude(Some(failure.unwrap_or(unpublished)), now)
        }
        (Phase::Waiting, Event::Elapsed) => state.enter(Phase::Observing, Effect::Observe),
        (Phase::Waiting, Event::ProgramEnded) => state.enter(Phase::ProbingEnd, Effect::Probe),
        (Phase::ProbingEnd, Event::Probed { observed, .. }) => {
            let failure = state.reported.failure.clone();
            State { observed, ..state }.enter(Phase::PublishingEnd, Effect::Publish(failure))
        }
        (Phase::PublishingEnd, Event::Published | Event::Failed(_)) => state.enter(Phase::Observing, Effect::Observe),
        (phase, event) => return Err(illegal(phase, event)),
    })
}

fn illegal(phase: Phase, event: Event) -> Illegal {
    Illegal { phase: Box::new(phase), event: Box::new(event) }
}

#[cfg(test)]
mod tests;

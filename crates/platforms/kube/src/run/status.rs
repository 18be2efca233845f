//! The status of a `FederationRun`: fields of the newest run, and conditions for generic tools.

use super::clock::time;
use super::machine::{FederationState, Seen};
use super::{Condition, FederationRun, Job, Past, RunStatus, State};
use trellis_diagnostic::Diagnostic;

/// Computes all fields that follow from the runs.
pub(super) fn complete(status: &mut RunStatus, run: &FederationRun, seen: &Seen, problems: &[Diagnostic], now: i64) {
    match (status.active.last().cloned(), status.history.first().cloned()) {
        (Some(job), _) => set_active(status, &job, run, seen),
        (None, Some(past)) => set_finished(status, past),
        (None, None) => {
            status.state = State::Waiting;
            status.message = match run.spec.suspend {
                true => "is suspended".to_owned(),
                false => "waits for the time of its schedule".to_owned(),
            };
        }
    }
    if !problems.is_empty() && status.active.iter().all(|job| job.run_id.is_none()) && !is_over(status, run) {
        status.state = State::Failed;
        let problems = problems.iter().map(|it| format!("{} ({})", it.finding(), it.advice));
        status.message = problems.collect::<Vec<_>>().join("; ");
    }
    status.progress = match (status.round, status.rounds) {
        (Some(round), Some(rounds)) => Some(format!("{round}/{rounds}")),
        (Some(round), None) => Some(round.to_string()),
        (None, _) => None,
    };
    conditions(status, run, !problems.is_empty(), now);
}

/// The condition of a finished run whose spec was changed afterwards.
const EDIT_IGNORED: &str = "EditIgnored";
pub(super) const EDIT_ADVICE: &str = "the run has ended, so only a change of ttlSecondsAfterFinished has an effect; \
                                      create another FederationRun to run again";

/// Whether the spec changed since the last reconcile, which had already recorded the end of the run.
pub(super) fn is_edited_after_end(run: &FederationRun) -> bool {
    is_over(&run.status, run) && run.status.observed_generation.is_some_and(|observed| observed < run.generation)
}

/// Whether the resource has no schedule and its run has ended.
fn is_over(status: &RunStatus, run: &FederationRun) -> bool {
    run.spec.schedule.is_none() && status.active.is_empty() && !status.history.is_empty()
}

fn set_active(status: &mut RunStatus, job: &Job, run: &FederationRun, seen: &Seen) {
    status.state = if job.run_id.is_some() { State::Running } else { State::Waiting };
    status.run_id.clone_from(&job.run_id);
    status.attempt = Some(job.attempt);
    (status.round, status.rounds) = (job.round, job.rounds);
    status.started.clone_from(&job.submitted);
    status.finished = None;
    status.result.clone_from(&job.result);
    status.message.clone_from(&job.message);
    if job.submitted.is_some() {
        return;
    }
    let waits = match &seen.federation {
        FederationState::Absent => format!("there is no Federation {} in this namespace", run.spec.federation),
        _ if run.spec.suspend => "is suspended".to_owned(),
        FederationState::Unready(why) => format!("waits for the federation {}: {why}", run.spec.federation),
        FederationState::Ready => {
            job.not_before.as_ref().map(|due| format!("tries again at {due}")).unwrap_or_default()
        }
    };
    let colon = if job.message.is_empty() || waits.is_empty() { "" } else { "; " };
    status.message = format!("{}{colon}{waits}", job.message);
}

fn set_finished(status: &mut RunStatus, past: Past) {
    status.state = past.state;
    status.run_id = past.run_id;
    status.attempt = Some(past.attempt);
    (status.round, status.rounds) = (past.round, past.rounds);
    status.started = past.started;
    status.finished = Some(past.finished);
    status.result = past.result;
    status.message = past.message;
}

fn conditions(status: &mut RunStatus, run: &FederationRun, unsound: bool, now: i64) {
    let word = match status.state {
        State::Pending => "Pending",
        State::Waiting => "Waiting",
        State::Running => "Running",
        State::Succeeded => "Succeeded",
        State::Failed if unsound => "Invalid",
        State::Failed => "Failed",
        State::Stopped => "Stopped",
    };
    let ended = is_over(status, run);
    let scheduled = run.spec.schedule.is_some() && !unsound;
    let (succeeded, failed) = (status.state == State::Succeeded, ended && status.state != State::Succeeded);
    let stalled = failed || (unsound && status.state == State::Failed);
    let wanted = [
        ("Ready", scheduled || (ended && succeeded)),
        ("Reconciling", !scheduled && !ended && !stalled),
        ("Stalled", stalled),
        ("Complete", ended && succeeded),
        ("Failed", failed),
    ];
    let before = std::mem::take(&mut status.conditions);
    status.conditions =
        wanted.into_iter().map(|(kind, holds)| condition(kind, holds, word, status, run, &before, now)).collect();
    let known = before.iter().any(|condition| condition.kind == EDIT_IGNORED);
    if ended && (known || is_edited_after_end(run)) {
        let edited = condition(EDIT_IGNORED, true, "RunEnded", status, run, &before, now);
        status.conditions.push(Condition { message: EDIT_ADVICE.to_owned(), ..edited });
    }
}

fn condition(
    kind: &str,
    holds: bool,
    word: &str,
    status: &RunStatus,
    run: &FederationRun,
    before: &[Condition],
    now: i64,
) -> Condition {
    let state = if holds { "True" } else { "False" };
    let same = before.iter().find(|condition| condition.kind == kind && condition.status == state);
    Condition {
        kind: kind.to_owned(),
        status: state.to_owned(),
        reason: word.to_owned(),
        message: status.message.clone(),
        observed_generation: Some(run.generation),
        last_transition_time: same.map_or_else(|| time(now), |condition| condition.last_transition_time.clone()),
    }
}

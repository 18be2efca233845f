//! The state machine of a `FederationRun`: from the resource, the report of the SuperLink and the time to the next
//! status, and effects to execute after the status is written.
//!
//! Each attempt has a unique mark that the SuperLink stores with the run. An attempt is submitted only after the status
//! says that it may have been submitted, and only if the SuperLink reports no run with its mark. So the state survives
//! an interruption. A call that was delayed for longer could create a second run: a Trellis SuperLink responds to it
//! with the first one; on other SuperLinks the second one is stopped once it is observed.

use trellis_spec::Schedule;

use super::clock::{last_due, next_due, seconds, time};
use super::{Concurrency, FederationRun, Job, Past, RunSpec, RunStatus, State, check, status};
use trellis_diagnostic::Diagnostic;

/// Limit of concurrent runs of one schedule.
pub const MAX_ACTIVE_RUNS: usize = 5;
/// Finished runs of a schedule in the status.
pub const MAX_HISTORY: usize = 10;
/// Default delay before the first retry.
pub const BACKOFF_S: u32 = 10;
/// Limit of the doubled delay.
pub const MAX_BACKOFF_S: i64 = 3600;
/// After this time a resource is deleted although its SuperLink does not respond, so that users need not remove
/// finalizers.
pub const DELETION_TIMEOUT_S: i64 = 600;

/// Identifies an attempt of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Try {
    pub number: u64,
    pub attempt: u32,
}

impl Try {
    /// The mark that the SuperLink stores with the run.
    pub fn mark(self, uid: &str) -> String {
        format!("{uid}.{}.{}", self.number, self.attempt)
    }

    /// Parses the mark of the resource with this UID.
    pub fn of_mark(mark: &str, uid: &str) -> Option<Try> {
        let (number, attempt) = mark.strip_prefix(uid)?.strip_prefix('.')?.split_once('.')?;
        Some(Try { number: number.parse().ok()?, attempt: attempt.parse().ok()? })
    }
}

/// Observed state in addition to the resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub federation: FederationState,
    /// Runs with a mark of this resource, or why the SuperLink could not be called.
    pub runs: Result<Vec<SeenRun>, String>,
    /// Problems of the submission that do not depend on the SuperLink, such as a missing app.
    pub unfit: Vec<Diagnostic>,
    /// Attempts that the SuperLink rejected, and why. Lost with the process: then they are submitted and rejected
    /// again.
    pub refused: Vec<(Try, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FederationState {
    /// The federation does not exist.
    Absent,
    /// Why no run can be submitted yet.
    Unready(String),
    Ready,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SeenRun {
    pub of: Try,
    pub id: u64,
    pub phase: Phase,
    /// Seconds since 1970 by the clock of the SuperLink.
    pub submitted: i64,
    pub finished: Option<i64>,
    pub details: String,
    pub round: Option<u64>,
    pub rounds: Option<u64>,
    pub result: std::collections::BTreeMap<String, f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Completed,
    Failed,
    Stopped,
}

impl Phase {
    pub fn is_over(self) -> bool {
        matches!(self, Phase::Completed | Phase::Failed | Phase::Stopped)
    }
}

/// Effects, executed after the status is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Adds our finalizer.
    Hold,
    /// Removes our finalizer.
    LetGo,
    /// Submits an attempt.
    Submit(Try),
    Stop(u64),
    /// Deletes the resource.
    Delete,
    /// An event.
    Tell {
        warning: bool,
        reason: &'static str,
        note: String,
    },
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Next {
    pub status: RunStatus,
    /// Not executed before the status is written.
    pub effects: Vec<Effect>,
    /// Time of the next step at the latest, in seconds since 1970.
    pub wake_at: Option<i64>,
    /// The SuperLink must be polled because a run is active.
    pub follow: bool,
}

/// The next step.
pub fn next(run: &FederationRun, seen: &Seen, now: i64) -> Next {
    let mut step = Step { run, seen, now, next: Next { status: run.status.clone(), ..Next::default() } };
    step.next.status.observed_generation = Some(run.generation);
    match run.deleted {
        Some(since) => step.leave(since),
        None if !run.held => step.next.effects.push(Effect::Hold),
        None => step.live(),
    }
    step.next
}

struct Step<'a> {
    run: &'a FederationRun,
    seen: &'a Seen,
    now: i64,
    next: Next,
}

/// Outcome of one job.
enum Fate {
    Goes(Job),
    Over(Past),
}

impl Step<'_> {
    fn spec(&self) -> &RunSpec {
        &self.run.spec
    }

    fn live(&mut self) {
        let mut problems = check::problems(self.spec());
        problems.extend(self.seen.unfit.iter().cloned());
        let jobs = std::mem::take(&mut self.next.status.active);
        self.stop_strays(&jobs);
        for job in jobs {
            match self.advance(job, problems.is_empty()) {
                Fate::Goes(job) => self.next.status.active.push(job),
                Fate::Over(past) => self.remember(past),
            }
        }
        if problems.is_empty() {
            self.begin();
        }
        self.end();
        self.next.follow = self.next.status.active.iter().any(|job| job.submitted.is_some());
        if status::is_edited_after_end(self.run) {
            self.publish(true, "EditIgnored", status::EDIT_ADVICE.to_owned());
        }
        status::complete(&mut self.next.status, self.run, self.seen, &problems, self.now);
    }

    /// The resource is deleted with its runs.
    fn leave(&mut self, since: i64) {
        if !self.run.held {
            return;
        }
        let at_work: Vec<u64> = match (&self.seen.federation, &self.seen.runs) {
            (FederationState::Absent, _) => Vec::new(),
            (_, Ok(runs)) => runs.iter().filter(|run| !run.phase.is_over()).map(|run| run.id).collect(),
            (_, Err(_)) if self.run.status.active.iter().all(|job| job.submitted.is_none()) => Vec::new(),
            (_, Err(why)) => {
                let deadline = since.saturating_add(DELETION_TIMEOUT_S);
                if self.now < deadline {
                    self.next.status.message = format!("waits for the SuperLink, to stop its run there: {why}");
                    self.next.follow = true;
                    return self.wake_at(deadline);
                }
                let note = format!("its run may continue: cannot stop it at the SuperLink: {why}");
                self.publish(true, "RunLeftBehind", note);
                Vec::new()
            }
        };
        if at_work.is_empty() {
            return self.next.effects.push(Effect::LetGo);
        }
        self.next.status.message = "stops its run at the SuperLink".to_owned();
        self.next.effects.extend(at_work.into_iter().map(Effect::Stop));
        self.next.follow = true;
    }

    /// Runs that no job refers to: duplicates and abandoned attempts.
    fn stop_strays(&mut self, jobs: &[Job]) {
        let Ok(runs) = &self.seen.runs else { return };
        let kept: Vec<u64> = jobs.iter().filter_map(|job| self.found(job)).map(|run| run.id).collect();
        let strays = runs.iter().filter(|run| !run.phase.is_over() && !kept.contains(&run.id));
        self.next.effects.extend(strays.map(|run| Effect::Stop(run.id)));
    }

    /// The run of an attempt. Of duplicates the known one, else the first.
    fn found(&self, job: &Job) -> Option<&SeenRun> {
        let runs = self.seen.runs.as_ref().ok()?;
        let of = Try { number: job.number, attempt: job.attempt };
        let mine = runs.iter().filter(|run| run.of == of);
        mine.min_by_key(|run| (job.run_id.as_deref() != Some(&run.id.to_string()), run.submitted, run.id))
    }

    fn refusal(&self, job: &Job) -> Option<String> {
        let of = Try { number: job.number, attempt: job.attempt };
        let refused = self.seen.refused.iter().find(|(refused, _)| *refused == of)?;
        Some(format!("the SuperLink did not take it: {}", refused.1))
    }

    fn advance(&mut self, mut job: Job, sound: bool) -> Fate {
        if self.seen.federation == FederationState::Absent && job.submitted.is_some() {
            return self.failed(job, "its federation is gone".to_owned(), None);
        }
        if let Some(found) = self.found(&job).cloned() {
            return self.follow(job, &found);
        }
        if let Err(why) = &self.seen.runs
            && job.submitted.is_some()
        {
            job.message = format!("the SuperLink is unreachable: {why}");
            return Fate::Goes(job);
        }
        if let Some(why) = self.refusal(&job).filter(|_| job.run_id.is_none()) {
            return self.failed(job, why, None);
        }
        match (&job.run_id, job.submitted.is_some()) {
            (Some(id), _) => {
                let why = format!("the SuperLink does not know run {id} any more: its state was lost");
                self.failed(job, why, None)
            }
            // A recorded attempt is submitted once the SuperLink is known not to have it.
            (None, true) if sound && !self.spec().suspend => {
                self.next.effects.push(Effect::Submit(Try { number: job.number, attempt: job.attempt }));
                job.message = "is being sent to the SuperLink".to_owned();
                Fate::Goes(job)
            }
            (None, true) => Fate::Goes(job),
            (None, false) => {
                self.announce(&mut job, sound);
                Fate::Goes(job)
            }
        }
    }

    /// Records that an attempt may have been submitted, unless something prevents it.
    fn announce(&mut self, job: &mut Job, sound: bool) {
        let due = job.not_before.as_deref().and_then(seconds).filter(|due| *due > self.now);
        if let Some(due) = due {
            return self.wake_at(due);
        }
        if sound && !self.spec().suspend && self.seen.federation == FederationState::Ready {
            job.submitted = Some(time(self.now));
            job.not_before = None;
            job.message = "is about to be sent to the SuperLink".to_owned();
        }
    }

    fn follow(&mut self, mut job: Job, found: &SeenRun) -> Fate {
        let started = job.submitted.get_or_insert_with(|| time(found.submitted)).clone();
        let known = job.run_id.replace(found.id.to_string()).is_some();
        if !known {
            let note = format!("run {} was submitted (attempt {})", found.id, job.attempt);
            self.publish(false, "RunSubmitted", note);
        }
        job.round = found.round.or(job.round);
        job.rounds = found.rounds.or(job.rounds);
        if !found.result.is_empty() {
            job.result.clone_from(&found.result);
        }
        job.message = match found.phase {
            Phase::Pending => "waits for its ServerApp".to_owned(),
            _ => String::new(),
        };
        match found.phase {
            Phase::Completed => Fate::Over(self.over(job, State::Succeeded, String::new(), found.finished)),
            Phase::Failed => {
                let why = if found.details.is_empty() { "see its log" } else { &found.details };
                self.failed(job, why.to_owned(), found.finished)
            }
            Phase::Stopped if job.timed_out => {
                let limit = self.spec().timeout_seconds.unwrap_or_default();
                self.failed(job, format!("it took longer than {limit} seconds"), found.finished)
            }
            Phase::Stopped => {
                let why = "it was stopped at the SuperLink".to_owned();
                Fate::Over(self.over(job, State::Stopped, why, found.finished))
            }
            Phase::Pending | Phase::Running => {
                self.limit(&mut job, found, seconds(&started).unwrap_or(self.now));
                Fate::Goes(job)
            }
        }
    }

    /// Stops an attempt that exceeds its time limit.
    fn limit(&mut self, job: &mut Job, found: &SeenRun, started: i64) {
        let Some(limit) = self.spec().timeout_seconds else { return };
        let due = started.saturating_add(i64::from(limit));
        if self.now >= due {
            job.timed_out = true;
            job.message = format!("is being stopped: it takes longer than {limit} seconds");
            self.next.effects.push(Effect::Stop(found.id));
        } else {
            self.wake_at(due);
        }
    }

    /// After a failed attempt: the next one, or the end.
    fn failed(&mut self, mut job: Job, why: String, finished: Option<i64>) -> Fate {
        let spec = self.spec();
        if job.attempt > spec.retries {
            return Fate::Over(self.over(job, State::Failed, why, finished));
        }
        let first = i64::from(spec.backoff_seconds.unwrap_or(BACKOFF_S));
        let doublings = (job.attempt - 1).min(20);
        let wait = first.saturating_mul(1 << doublings).min(MAX_BACKOFF_S.max(first));
        let due = self.now.saturating_add(wait);
        self.publish(
            true,
            "RunFailed",
            format!("attempt {} failed: {why}; the next one is due in {wait} s", job.attempt),
        );
        job = Job {
            number: job.number,
            attempt: job.attempt + 1,
            scheduled: job.scheduled,
            not_before: Some(time(due)),
            message: format!("attempt {} failed: {why}", job.attempt),
            ..Job::default()
        };
        self.wake_at(due);
        Fate::Goes(job)
    }

    fn over(&mut self, job: Job, state: State, message: String, finished: Option<i64>) -> Past {
        let (warning, reason) = match state {
            State::Succeeded => (false, "RunSucceeded"),
            State::Stopped => (true, "RunStopped"),
            _ => (true, "RunFailed"),
        };
        let id = job.run_id.as_deref().unwrap_or("that was not submitted");
        let colon = if message.is_empty() { "" } else { ": " };
        let end = match state {
            State::Succeeded => "completed",
            State::Stopped => "was stopped",
            _ => "failed for good",
        };
        self.publish(warning, reason, format!("run {id} {end} (attempt {}){colon}{message}", job.attempt));
        Past {
            number: job.number,
            state,
            attempt: job.attempt,
            run_id: job.run_id,
            scheduled: job.scheduled,
            started: job.submitted,
            finished: time(finished.unwrap_or(self.now)),
            round: job.round,
            rounds: job.rounds,
            result: job.result,
            message,
        }
    }

    fn remember(&mut self, past: Past) {
        let history = &mut self.next.status.history;
        history.insert(0, past);
        history.truncate(MAX_HISTORY);
    }

    /// New runs: the only one, or the one that is due.
    fn begin(&mut self) {
        let schedule = self.spec().schedule.as_deref().and_then(|text| Schedule::parse(text).ok());
        let Some(schedule) = schedule else {
            if self.next.status.count == 0 {
                self.add(None);
            }
            return;
        };
        let due = next_due(&schedule, self.now);
        self.next.status.next = due.filter(|_| !self.spec().suspend).map(time);
        due.into_iter().for_each(|due| self.wake_at(due));
        let heeded = self.run.status.scheduled.as_deref().and_then(seconds).unwrap_or(self.run.created);
        let Some(due) = last_due(&schedule, self.now).filter(|due| *due > heeded) else { return };
        self.next.status.scheduled = Some(time(due));
        let most = match self.spec().concurrency {
            Concurrency::Forbid => 1,
            Concurrency::Allow => MAX_ACTIVE_RUNS,
        };
        if self.spec().suspend {
            return;
        }
        if self.next.status.active.len() >= most {
            let note = format!("nothing was started at {}: an earlier run is under way", time(due));
            return self.publish(true, "SchedulePassedOver", note);
        }
        self.add(Some(time(due)));
    }

    fn add(&mut self, scheduled: Option<String>) {
        self.next.status.count += 1;
        let mut job = Job { number: self.next.status.count, attempt: 1, scheduled, ..Job::default() };
        self.announce(&mut job, true);
        self.next.status.active.push(job);
    }

    /// Deletes a finished resource after its time.
    fn end(&mut self) {
        let status = &self.next.status;
        if self.spec().schedule.is_some() || !status.active.is_empty() {
            return;
        }
        let Some(past) = status.history.first() else { return };
        let Some(ttl) = self.spec().ttl_seconds_after_finished else { return };
        let due = seconds(&past.finished).unwrap_or(self.now).saturating_add(i64::from(ttl));
        // Not in the step that records the end, so that clients can observe it.
        let is_recorded = self.run.status.history.first() == Some(past);
        if self.now >= due && is_recorded {
            self.next.effects.push(Effect::Delete);
        } else {
            self.wake_at(due.max(self.now));
        }
    }

    fn publish(&mut self, warning: bool, reason: &'static str, note: String) {
        self.next.effects.push(Effect::Tell { warning, reason, note });
    }

    fn wake_at(&mut self, at: i64) {
        self.next.wake_at = Some(self.next.wake_at.map_or(at, |before| before.min(at)));
    }
}

#[cfg(test)]
mod tests;

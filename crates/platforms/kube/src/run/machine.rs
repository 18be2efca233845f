//! What is done about a `FederationRun`: from the resource, what the SuperLink tells and the time, to the next status and what is
//! to be done once that status is written.
//!
//! Each try has a mark that only it has, and the SuperLink keeps it with the run. A try is sent only when the resource says
//! already that it may have been sent, and the SuperLink, asked after that, has no run with its mark. So whoever dies in between
//! leaves behind what the next one needs to know. A call that was on its way for longer than that could still bring a second
//! run: a Trellis SuperLink answers it with the first one; of others, the second is stopped as soon as it is seen.

use trellis_spec::Schedule;

use super::clock::{last_due, next_due, seconds, time};
use super::{Concurrency, FederationRun, Job, Past, RunSpec, RunStatus, State, check, told};
use crate::render::Problem;

/// Runs of one schedule that may be under way at once.
pub const MOST_ACTIVE: usize = 5;
/// Runs of a schedule that are remembered.
pub const MOST_HISTORY: usize = 10;
/// Before the first new try, where nothing is said.
pub const BACKOFF_S: u32 = 10;
/// Waits between tries are doubled up to this.
pub const LONGEST_BACKOFF_S: i64 = 3600;
/// A resource that is deleted while its SuperLink cannot be asked goes after this: nobody should have to remove finalizers.
pub const DELETION_PATIENCE_S: i64 = 600;

/// Which try of which run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Try {
    pub number: u64,
    pub attempt: u32,
}

impl Try {
    /// What the SuperLink keeps with the run.
    pub fn mark(self, uid: &str) -> String {
        format!("{uid}.{}.{}", self.number, self.attempt)
    }

    /// The try of the resource with this uid, if it is one.
    pub fn of_mark(mark: &str, uid: &str) -> Option<Try> {
        let (number, attempt) = mark.strip_prefix(uid)?.strip_prefix('.')?.split_once('.')?;
        Some(Try { number: number.parse().ok()?, attempt: attempt.parse().ok()? })
    }
}

/// What there is besides the resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub federation: Ground,
    /// Runs with a mark of this resource, as the SuperLink tells of them; or why it could not be asked.
    pub runs: Result<Vec<SeenRun>, String>,
    /// Why what is wanted cannot be sent, whoever is asked: there is no such app.
    pub unfit: Vec<Problem>,
    /// Tries that the SuperLink did not take, and why. Forgotten with the process: then they are sent and refused again.
    pub refused: Vec<(Try, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ground {
    /// There is no such federation.
    Absent,
    /// Why nothing can be sent yet.
    Unready(String),
    Ready,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SeenRun {
    pub of: Try,
    pub id: u64,
    pub phase: Phase,
    /// Seconds since 1970, by the SuperLink's clock.
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

/// What is to be done once the status is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Put our finalizer on the resource.
    Hold,
    /// Take it away.
    LetGo,
    /// Send a try to the SuperLink.
    Submit(Try),
    Stop(u64),
    /// Delete the resource.
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
    /// Nothing of it happens before the status is written.
    pub effects: Vec<Effect>,
    /// When to look again, seconds since 1970, even if nobody says that something changed.
    pub wake_at: Option<i64>,
    /// The SuperLink has to be asked again and again: something is under way there.
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

/// What became of one job in a step.
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
        if told::is_edited_after_end(self.run) {
            self.tell(true, "EditIgnored", told::EDIT_ADVICE.to_owned());
        }
        told::tell(&mut self.next.status, self.run, self.seen, &problems, self.now);
    }

    /// The resource goes: its runs with it.
    fn leave(&mut self, since: i64) {
        if !self.run.held {
            return;
        }
        let at_work: Vec<u64> = match (&self.seen.federation, &self.seen.runs) {
            (Ground::Absent, _) => Vec::new(),
            (_, Ok(runs)) => runs.iter().filter(|run| !run.phase.is_over()).map(|run| run.id).collect(),
            (_, Err(_)) if self.run.status.active.iter().all(|job| job.submitted.is_none()) => Vec::new(),
            (_, Err(why)) => {
                let patience = since.saturating_add(DELETION_PATIENCE_S);
                if self.now < patience {
                    self.next.status.message = format!("waits for the SuperLink, to stop its run there: {why}");
                    self.next.follow = true;
                    return self.wake_at(patience);
                }
                let note = format!("its run may go on: the SuperLink could not be asked to stop it: {why}");
                self.tell(true, "RunLeftBehind", note);
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

    /// Runs of ours that nobody is waiting for: twins of a try, and tries that were given up.
    fn stop_strays(&mut self, jobs: &[Job]) {
        let Ok(runs) = &self.seen.runs else { return };
        let kept: Vec<u64> = jobs.iter().filter_map(|job| self.found(job)).map(|run| run.id).collect();
        let strays = runs.iter().filter(|run| !run.phase.is_over() && !kept.contains(&run.id));
        self.next.effects.extend(strays.map(|run| Effect::Stop(run.id)));
    }

    /// The run of a job's try. Of twins the one that is known already, else the first.
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
        if self.seen.federation == Ground::Absent && job.submitted.is_some() {
            return self.failed(job, "its federation is gone".to_owned(), None);
        }
        if let Some(found) = self.found(&job).cloned() {
            return self.follow(job, &found);
        }
        if let Err(why) = &self.seen.runs
            && job.submitted.is_some()
        {
            job.message = format!("the SuperLink cannot be asked: {why}");
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
            // What was announced is sent, once it is known that it is not there.
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

    /// Says that a try may be at the SuperLink from now on, where nothing is in its way.
    fn announce(&mut self, job: &mut Job, sound: bool) {
        let due = job.not_before.as_deref().and_then(seconds).filter(|due| *due > self.now);
        if let Some(due) = due {
            return self.wake_at(due);
        }
        if sound && !self.spec().suspend && self.seen.federation == Ground::Ready {
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
            self.tell(false, "RunSubmitted", note);
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
                let why = if found.details.is_empty() { "its log says why" } else { &found.details };
                self.failed(job, why.to_owned(), found.finished)
            }
            Phase::Stopped if job.timed_out => {
                let limit = self.spec().timeout_seconds.unwrap_or_default();
                self.failed(job, format!("it took longer than {limit} seconds"), found.finished)
            }
            Phase::Stopped => {
                let why = "somebody stopped it at the SuperLink".to_owned();
                Fate::Over(self.over(job, State::Stopped, why, found.finished))
            }
            Phase::Pending | Phase::Running => {
                self.limit(&mut job, found, seconds(&started).unwrap_or(self.now));
                Fate::Goes(job)
            }
        }
    }

    /// Stops a try that takes too long.
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

    /// A try failed: another one, or the end.
    fn failed(&mut self, mut job: Job, why: String, finished: Option<i64>) -> Fate {
        let spec = self.spec();
        if job.attempt > spec.retries {
            return Fate::Over(self.over(job, State::Failed, why, finished));
        }
        let first = i64::from(spec.backoff_seconds.unwrap_or(BACKOFF_S));
        let doublings = (job.attempt - 1).min(20);
        let wait = first.saturating_mul(1 << doublings).min(LONGEST_BACKOFF_S.max(first));
        let due = self.now.saturating_add(wait);
        self.tell(true, "RunFailed", format!("attempt {} failed: {why}; the next one is due in {wait} s", job.attempt));
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
        self.tell(warning, reason, format!("run {id} {end} (attempt {}){colon}{message}", job.attempt));
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
        history.truncate(MOST_HISTORY);
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
            Concurrency::Allow => MOST_ACTIVE,
        };
        if self.spec().suspend {
            return;
        }
        if self.next.status.active.len() >= most {
            let note = format!("nothing was started at {}: an earlier run is under way", time(due));
            return self.tell(true, "SchedulePassedOver", note);
        }
        self.add(Some(time(due)));
    }

    fn add(&mut self, scheduled: Option<String>) {
        self.next.status.count += 1;
        let mut job = Job { number: self.next.status.count, attempt: 1, scheduled, ..Job::default() };
        self.announce(&mut job, true);
        self.next.status.active.push(job);
    }

    /// What is over goes after its time.
    fn end(&mut self) {
        let status = &self.next.status;
        if self.spec().schedule.is_some() || !status.active.is_empty() {
            return;
        }
        let Some(past) = status.history.first() else { return };
        let Some(ttl) = self.spec().ttl_seconds_after_finished else { return };
        let due = seconds(&past.finished).unwrap_or(self.now).saturating_add(i64::from(ttl));
        // In the same step as the end itself nobody would have seen it.
        let is_told = self.run.status.history.first() == Some(past);
        if self.now >= due && is_told {
            self.next.effects.push(Effect::Delete);
        } else {
            self.wake_at(due.max(self.now));
        }
    }

    fn tell(&mut self, warning: bool, reason: &'static str, note: String) {
        self.next.effects.push(Effect::Tell { warning, reason, note });
    }

    fn wake_at(&mut self, at: i64) {
        self.next.wake_at = Some(self.next.wake_at.map_or(at, |before| before.min(at)));
    }
}

#[cfg(test)]
mod tests;

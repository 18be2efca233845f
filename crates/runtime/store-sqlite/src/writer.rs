//! The one thread that writes. It takes what is waiting, runs it in one transaction (each job in its own savepoint) and
//! commits once: a hundred requests share one trip to the disk. Nobody is told that a job is done before that trip.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use trellis_core::port::{Commit, Job, OnCommit, Topic, crash};
use trellis_core::refusal::{Kind, Refusal};

use crate::error::{CANNOT, OrTransient};
use crate::tx::Change;
use crate::vault::Vault;

/// Jobs in one commit. More would make the first of them wait for too long.
const MAX_BATCH: usize = 256;
/// A commit accepts no further jobs after this time, so that slow jobs do not accumulate.
const MAX_BATCH_TIME: Duration = Duration::from_millis(100);
/// Jobs that can wait get a commit of their own no sooner than this after the last commit. So they wait only while there
/// are commits to share: on an idle machine a heartbeat is answered at once.
const COMMIT_INTERVAL: Duration = Duration::from_millis(100);

/// So many of them are company enough for a commit of their own.
pub(crate) const COMPANY: usize = 16;

/// Jobs that can wait. They wake the writer when the first of them comes and when they are enough.
pub(crate) type Patient = Arc<Mutex<Vec<Box<dyn Job>>>>;

/// What reaches the writer.
pub(crate) enum Call {
    Job(Box<dyn Job>),
    /// There is something among the patient.
    Patient,
    /// There is enough among the patient.
    Company,
}

pub(crate) struct Writer {
    pub(crate) connection: Connection,
    pub(crate) calls: Receiver<Call>,
    pub(crate) patient: Patient,
    pub(crate) vault: Arc<Vault>,
    pub(crate) on_commit: OnCommit,
    /// Whether the last commit worked.
    pub(crate) works: Arc<AtomicBool>,
    /// Jobs that were submitted and are not done.
    pub(crate) waiting: Arc<AtomicU64>,
}

/// What a batch leaves behind it.
#[derive(Default)]
struct Aftermath {
    topics: Vec<Topic>,
    unlink: Vec<String>,
    names_files: bool,
}

impl Writer {
    /// Works until all senders are gone.
    pub(crate) fn run(mut self) {
        let (mut patient_until, mut last_commit): (Option<Instant>, Option<Instant>) = (None, None);
        loop {
            let call = match patient_until {
                None => self.calls.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(until) => self.calls.recv_timeout(until.saturating_duration_since(Instant::now())),
            };
            let is_last = matches!(call, Err(RecvTimeoutError::Disconnected));
            let mut waiting = match call {
                Ok(Call::Patient) => {
                    patient_until.get_or_insert_with(|| patient_commit_at(last_commit, Instant::now()));
                    continue;
                }
                Ok(Call::Job(job)) => VecDeque::from([job]),
                Ok(Call::Company) | Err(_) => VecDeque::new(),
            };
            patient_until = None;
            waiting.extend(std::mem::take(&mut *self.patient.lock().expect("no holder panics")));
            while !waiting.is_empty() {
                self.commit(&mut waiting);
            }
            last_commit = Some(Instant::now());
            if is_last {
                return;
            }
        }
    }

    /// Commits what is waiting, up to a batch, and tells.
    fn commit(&mut self, waiting: &mut VecDeque<Box<dyn Job>>) {
        let mut batch = Vec::with_capacity(16);
        let begun = Instant::now();
        let result = self.batch(waiting, &mut batch);
        let (took, worked) = (begun.elapsed(), result.is_ok());
        self.works.store(worked, Ordering::Relaxed);
        match result {
            Ok(mut aftermath) => {
                let jobs = batch.len();
                self.waiting.fetch_sub(jobs as u64, Ordering::Relaxed);
                for job in batch {
                    job.done(Ok(()));
                }
                aftermath.topics.sort_unstable();
                aftermath.topics.dedup();
                (self.on_commit)(&Commit { topics: &aftermath.topics, jobs, took, worked });
                if !aftermath.unlink.is_empty() {
                    crash::point("file-unlink");
                }
                for file in &aftermath.unlink {
                    self.vault.remove(file);
                }
            }
            Err(error) => {
                let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                tracing::error!(error = why, jobs = batch.len(), "state could not be written");
                if batch.is_empty() {
                    // Not even a transaction can be begun: nobody would ever be told.
                    batch.extend(waiting.drain(..));
                }
                let jobs = batch.len();
                self.waiting.fetch_sub(jobs as u64, Ordering::Relaxed);
                (self.on_commit)(&Commit { topics: &[], jobs, took, worked });
                for job in batch {
                    job.done(Err(Refusal::new(Kind::Transient, CANNOT)));
                }
            }
        }
    }

    fn batch(
        &mut self,
        waiting: &mut VecDeque<Box<dyn Job>>,
        batch: &mut Vec<Box<dyn Job>>,
    ) -> Result<Aftermath, Refusal> {
        let mut aftermath = Aftermath::default();
        let begun = Instant::now();
        let tx = self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).or_transient()?;
        while let Some(mut job) = waiting.pop_front() {
            let ran = run_job(&tx, job.as_mut(), &mut aftermath);
            batch.push(job);
            ran?;
            if batch.len() == MAX_BATCH || begun.elapsed() > MAX_BATCH_TIME {
                break;
            }
            if waiting.is_empty() {
                match self.calls.try_recv() {
                    Ok(Call::Job(job)) => waiting.push_back(job),
                    Ok(Call::Patient | Call::Company) => {
                        waiting.extend(std::mem::take(&mut *self.patient.lock().expect("no holder panics")))
                    }
                    Err(_) => {}
                }
            }
        }
        if aftermath.names_files {
            self.vault.sync_names().or_transient()?;
        }
        crash::point("before-commit");
        tx.commit().or_transient()?;
        crash::point("after-commit");
        Ok(aftermath)
    }
}

/// When jobs that can wait are committed, if nothing else is before.
fn patient_commit_at(last_commit: Option<Instant>, now: Instant) -> Instant {
    last_commit.map_or(now, |last| now.max(last + COMMIT_INTERVAL))
}

/// Runs one job; an error means that the whole transaction is lost.
fn run_job(connection: &Connection, job: &mut dyn Job, aftermath: &mut Aftermath) -> Result<(), Refusal> {
    let sql = |text: &str| connection.prepare_cached(text).and_then(|mut s| s.execute([])).map(drop).or_transient();
    sql("SAVEPOINT job")?;
    let mut change = Change::new(connection);
    let keep = job.run(&mut change);
    if keep {
        aftermath.topics.append(&mut change.topics);
        aftermath.unlink.append(&mut change.unlink);
        aftermath.names_files |= change.names_files;
    } else {
        // Fails if SQLite gave up the whole transaction by itself (disk full): then everybody has to hear of it.
        sql("ROLLBACK TO job")?;
    }
    sql("RELEASE job")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patient_jobs_wait_only_for_commits_that_they_could_share() {
        let now = Instant::now();
        assert_eq!(patient_commit_at(None, now), now);
        assert_eq!(patient_commit_at(Some(now), now), now + COMMIT_INTERVAL);
        let long_ago = now.checked_sub(COMMIT_INTERVAL * 2);
        assert!(long_ago.is_none() || patient_commit_at(long_ago, now) == now, "idle");
    }
}

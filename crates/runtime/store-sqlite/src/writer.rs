//! The writer thread. It runs the waiting jobs in one transaction, each in its own savepoint, and commits once: a
//! hundred requests share one fsync. A job completes only after the commit.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use trellis_core::port::{Commit, Job, OnCommit, Topic, crash};
use trellis_core::refusal::{Kind, Refusal};

use crate::error::{CANNOT, OrTransient};
use crate::file_store::FileStore;
use crate::read::View;

/// Maximum number of jobs per commit. More would delay the first of them too long.
const MAX_BATCH: usize = 256;
/// A commit accepts no further jobs after this time, so that slow jobs do not accumulate.
const MAX_BATCH_TIME: Duration = Duration::from_millis(100);
/// Deferrable jobs are committed no sooner than this after the last commit, so they wait only if there are commits to
/// share: an idle SuperLink answers a heartbeat at once.
const COMMIT_INTERVAL: Duration = Duration::from_millis(100);

/// This many deferred jobs are committed without further delay.
pub(crate) const MAX_DEFERRED: usize = 16;

/// Deferred jobs. They wake the writer when the first of them arrives and when they reach `MAX_DEFERRED`.
pub(crate) type Deferred = Arc<Mutex<Vec<Box<dyn Job>>>>;

pub(crate) enum WriterMessage {
    Job(Box<dyn Job>),
    /// The first deferred job arrived.
    Deferred,
    /// `MAX_DEFERRED` jobs are deferred.
    DeferredFull,
}

pub(crate) struct Writer {
    pub(crate) connection: Connection,
    pub(crate) calls: Receiver<WriterMessage>,
    pub(crate) deferred: Deferred,
    pub(crate) files: Arc<FileStore>,
    pub(crate) on_commit: OnCommit,
    /// Whether the last commit succeeded.
    pub(crate) healthy: Arc<AtomicBool>,
    /// Jobs that were submitted and are not complete.
    pub(crate) waiting: Arc<AtomicU64>,
}

/// Effects of a batch after its commit.
#[derive(Default)]
pub(crate) struct AfterCommit {
    pub(crate) topics: Vec<Topic>,
    /// Object files without references.
    pub(crate) unlink: Vec<String>,
    /// Whether a row references a file for the first time.
    pub(crate) names_files: bool,
}

impl Writer {
    /// Runs until all senders are dropped.
    pub(crate) fn run(mut self) {
        let (mut deferred_until, mut last_commit): (Option<Instant>, Option<Instant>) = (None, None);
        loop {
            let call = match deferred_until {
                None => self.calls.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(until) => self.calls.recv_timeout(until.saturating_duration_since(Instant::now())),
            };
            let is_last = matches!(call, Err(RecvTimeoutError::Disconnected));
            let mut waiting = match call {
                Ok(WriterMessage::Deferred) => {
                    deferred_until.get_or_insert_with(|| deferred_commit_at(last_commit, Instant::now()));
                    continue;
                }
                Ok(WriterMessage::Job(job)) => VecDeque::from([job]),
                Ok(WriterMessage::DeferredFull) | Err(_) => VecDeque::new(),
            };
            deferred_until = None;
            waiting.extend(std::mem::take(&mut *self.deferred.lock().expect("no holder panics")));
            while !waiting.is_empty() {
                self.commit(&mut waiting);
            }
            last_commit = Some(Instant::now());
            if is_last {
                return;
            }
        }
    }

    /// Commits one batch of the waiting jobs and completes them.
    fn commit(&mut self, waiting: &mut VecDeque<Box<dyn Job>>) {
        let mut batch = Vec::with_capacity(16);
        let begun = Instant::now();
        let result = self.batch(waiting, &mut batch);
        let (took, succeeded) = (begun.elapsed(), result.is_ok());
        self.healthy.store(succeeded, Ordering::Relaxed);
        match result {
            Ok(mut after_commit) => {
                let jobs = batch.len();
                self.waiting.fetch_sub(jobs as u64, Ordering::Relaxed);
                for job in batch {
                    job.done(Ok(()));
                }
                after_commit.topics.sort_unstable();
                after_commit.topics.dedup();
                (self.on_commit)(&Commit { topics: &after_commit.topics, jobs, took, succeeded });
                if !after_commit.unlink.is_empty() {
                    crash::point("file-unlink");
                }
                for file in &after_commit.unlink {
                    self.files.remove(file);
                }
            }
            Err(error) => {
                let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                tracing::error!(error = why, jobs = batch.len(), "state could not be written");
                if batch.is_empty() {
                    // The transaction could not begin: fail all waiting jobs, or they would never complete.
                    batch.extend(waiting.drain(..));
                }
                let jobs = batch.len();
                self.waiting.fetch_sub(jobs as u64, Ordering::Relaxed);
                (self.on_commit)(&Commit { topics: &[], jobs, took, succeeded });
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
    ) -> Result<AfterCommit, Refusal> {
        let mut after_commit = AfterCommit::default();
        let begun = Instant::now();
        let tx = self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).or_transient()?;
        while let Some(mut job) = waiting.pop_front() {
            let ran = run_job(&tx, job.as_mut(), &mut after_commit);
            batch.push(job);
            ran?;
            if batch.len() == MAX_BATCH || begun.elapsed() > MAX_BATCH_TIME {
                break;
            }
            if waiting.is_empty() {
                match self.calls.try_recv() {
                    Ok(WriterMessage::Job(job)) => waiting.push_back(job),
                    Ok(WriterMessage::Deferred | WriterMessage::DeferredFull) => {
                        waiting.extend(std::mem::take(&mut *self.deferred.lock().expect("no holder panics")))
                    }
                    Err(_) => {}
                }
            }
        }
        if after_commit.names_files {
            self.files.sync_names().or_transient()?;
        }
        crash::point("before-commit");
        tx.commit().or_transient()?;
        crash::point("after-commit");
        Ok(after_commit)
    }
}

/// Returns the latest time of the commit of deferred jobs.
fn deferred_commit_at(last_commit: Option<Instant>, now: Instant) -> Instant {
    last_commit.map_or(now, |last| now.max(last + COMMIT_INTERVAL))
}

/// Runs one job. An error means that the whole transaction is rolled back.
fn run_job(connection: &Connection, job: &mut dyn Job, after_commit: &mut AfterCommit) -> Result<(), Refusal> {
    let sql = |text: &str| connection.prepare_cached(text).and_then(|mut s| s.execute([])).map(drop).or_transient();
    sql("SAVEPOINT job")?;
    let mut view = View::new(connection);
    let keep = job.run(&mut view);
    if keep {
        after_commit.topics.append(&mut view.after_commit.topics);
        after_commit.unlink.append(&mut view.after_commit.unlink);
        after_commit.names_files |= view.after_commit.names_files;
    } else {
        // Fails if SQLite rolled back the whole transaction (disk full): all jobs of the batch must fail.
        sql("ROLLBACK TO job")?;
    }
    sql("RELEASE job")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deferred_jobs_wait_only_for_commits_that_they_can_share() {
        let now = Instant::now();
        assert_eq!(deferred_commit_at(None, now), now);
        assert_eq!(deferred_commit_at(Some(now), now), now + COMMIT_INTERVAL);
        let long_ago = now.checked_sub(COMMIT_INTERVAL * 2);
        assert!(long_ago.is_none() || deferred_commit_at(long_ago, now) == now, "idle");
    }
}

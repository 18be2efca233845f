//! The one thread that writes. It takes what is waiting, runs it in one transaction (each job in its own savepoint) and
//! commits once: a hundred requests share one trip to the disk. Nobody is told that a job is done before that trip.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use rusqlite::Connection;
use trellis_core::port::{Job, Topic};
use trellis_core::refusal::{Kind, Refusal};

use crate::crash;
use crate::error::{CANNOT, OrTransient};
use crate::tx::Change;
use crate::vault::Vault;

/// Jobs in one commit. More would make the first of them wait for too long.
const MAX_BATCH: usize = 256;

/// Called with what became true, after each commit.
pub type OnCommit = Box<dyn Fn(&[Topic]) + Send>;

pub(crate) struct Writer {
    pub(crate) connection: Connection,
    pub(crate) jobs: Receiver<Box<dyn Job>>,
    pub(crate) vault: Arc<Vault>,
    pub(crate) on_commit: OnCommit,
    /// Whether the last commit worked.
    pub(crate) works: Arc<AtomicBool>,
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
        while let Ok(first) = self.jobs.recv() {
            let mut batch = Vec::with_capacity(16);
            let mut next = Some(first);
            let result = self.batch(&mut next, &mut batch);
            self.works.store(result.is_ok(), Ordering::Relaxed);
            // A job that was taken but not run yet when the batch failed shares its fate.
            batch.extend(next);
            match result {
                Ok(mut aftermath) => {
                    for job in batch {
                        job.done(Ok(()));
                    }
                    aftermath.topics.sort_unstable();
                    aftermath.topics.dedup();
                    (self.on_commit)(&aftermath.topics);
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
                    for job in batch {
                        job.done(Err(Refusal::new(Kind::Transient, CANNOT)));
                    }
                }
            }
        }
    }

    fn batch(&mut self, next: &mut Option<Box<dyn Job>>, batch: &mut Vec<Box<dyn Job>>) -> Result<Aftermath, Refusal> {
        let mut aftermath = Aftermath::default();
        let tx = self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).or_transient()?;
        while let Some(mut job) = next.take() {
            let ran = run_job(&tx, job.as_mut(), &mut aftermath);
            batch.push(job);
            ran?;
            if batch.len() < MAX_BATCH {
                *next = self.jobs.try_recv().ok();
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

//! What is told of a training, round by round, by a native ServerApp or by who watches another one. Kept with the run and handed back unread: what is in a
//! report is between the ServerApp and those who ask for it.

use crate::fleet::running;
use crate::id::RunId;
use crate::port::{Topic, Tx};
use crate::refusal::{Kind, Refusal};

/// A longer name of a kind is nobody's.
pub const MAX_KIND_BYTES: usize = 32;
/// The kind of a report of a round that is over.
pub const ROUND: &str = "round";

/// A report as it is kept. A run has one of each kind for a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainingReport {
    pub run: RunId,
    pub round: u64,
    /// What it tells of, in small letters and dashes.
    pub kind: String,
    /// JSON, as the front end took it.
    pub body: String,
}

/// Keeps what was seen of a round, in place of what was seen before. The run may be over: its last round is then, too.
pub fn keep_observed(tx: &mut dyn Tx, report: &TrainingReport) -> Result<(), Refusal> {
    if tx.run(report.run)?.is_some() && i64::try_from(report.round).is_ok() {
        tx.put_report(report)?;
        tx.wake(Topic::Run(report.run));
    }
    Ok(())
}

/// Keeps a report of a running run, and gives back the one that it replaces. Said again, nothing changes.
pub fn keep(tx: &mut dyn Tx, report: &TrainingReport) -> Result<Option<TrainingReport>, Refusal> {
    let mut run = running(tx, report.run)?;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
    if report.kind.is_empty() || report.kind.len() > MAX_KIND_BYTES || !report.kind.bytes().all(is_name) {
        let text = format!(
            "'{:.40}' is not a kind of report: small letters and dashes, at most {MAX_KIND_BYTES}",
            report.kind
        );
        return Err(Refusal::new(Kind::Invalid, text));
    }
    if i64::try_from(report.round).is_err() {
        return Err(Refusal::new(Kind::Invalid, format!("there is no round {}", report.round)));
    }
    let before = tx.report(report.run, report.round, &report.kind)?;
    if before.as_ref() != Some(report) {
        tx.put_report(report)?;
        tx.wake(Topic::Run(report.run));
    }
    if before.is_none() && report.kind == ROUND && run.note_progress() {
        tx.put_run(&run)?;
    }
    Ok(before)
}

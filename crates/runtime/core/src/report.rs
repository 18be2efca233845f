//! Training reports of native ServerApps, or of an observer of other ServerApps. The core does not interpret them.

use crate::fleet::running;
use crate::id::RunId;
use crate::port::{Topic, Tx};
use crate::refusal::{Kind, Refusal};

/// Maximum length of the name of a kind.
pub const MAX_KIND_BYTES: usize = 32;
/// The kind of reports about finished rounds.
pub const ROUND: &str = "round";

/// A stored report. A run has at most one report of each kind per round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainingReport {
    pub run: RunId,
    pub round: u64,
    /// Lower-case letters and dashes.
    pub kind: String,
    /// JSON, as received.
    pub body: String,
}

/// Stores an observation of a round. Replaces the previous one. The run may have finished with this round.
pub fn store_observed(tx: &mut dyn Tx, report: &TrainingReport) -> Result<(), Refusal> {
    if tx.run(report.run)?.is_some() && i64::try_from(report.round).is_ok() {
        tx.put_report(report)?;
        tx.wake(Topic::Run(report.run));
    }
    Ok(())
}

/// Stores a report of a running run and returns the report that it replaces. Idempotent.
pub fn store(tx: &mut dyn Tx, report: &TrainingReport) -> Result<Option<TrainingReport>, Refusal> {
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

//! Reports of rounds and findings.

use std::collections::BTreeMap;
use std::path::Path;

use trellis_client::app::AppError;
use trellis_strategy::health::{Finding, Severity};
use trellis_wire::report::{CheckpointReport, TrainingReport};

use super::rounds::{Change, Evaluated, Trained};
use super::{Training, now_s};
use crate::error::TrainError;
use crate::exchange::Act;
use crate::progress::{Events, reported_finding};
use crate::report::phase_report;
use crate::round::FailureKind;

/// Metric errors per phase that the log lists.
const MAX_LOGGED_ERRORS: usize = 5;

impl Training {
    /// Records a round, and logs new findings.
    pub(super) fn record_round(
        &mut self,
        trained: &Trained,
        evaluated: Option<&Evaluated>,
        change: &Change,
    ) -> Vec<Finding> {
        let events = events(trained, change);
        let evaluation = evaluated.map(|(_, measurement)| measurement);
        let loss_key = &self.settings.train_loss_key;
        self.progress.record(self.round, trained.measurement.as_ref(), evaluation, events, loss_key);
        let (findings, new) = self.progress.findings();
        for finding in &new {
            let text = format!("{} To try: {}", finding.what, finding.advice);
            match finding.severity {
                Severity::Notice => self.log.info(text),
                Severity::Warning | Severity::Critical => self.log.warn(text),
            }
        }
        findings
    }

    pub(super) async fn report_round(
        &mut self,
        started_at: f64,
        trained: &Trained,
        evaluated: Option<&Evaluated>,
        change: &Change,
        findings: &[Finding],
        saved: Option<&Path>,
    ) -> Result<(), TrainError> {
        let (measurement, chosen) = (trained.measurement.as_ref(), change.chosen.as_deref());
        let train = |conducted| phase_report(conducted, measurement, &change.norms, chosen);
        let evaluate =
            |(conducted, measurement): &Evaluated| phase_report(conducted, Some(measurement), &BTreeMap::new(), None);
        let checkpoint =
            |path: &Path| CheckpointReport { path: path.display().to_string(), size_bytes: directory_bytes(path) };
        self.report(TrainingReport {
            kind: "round".to_owned(),
            started_at,
            train: trained.conducted.as_ref().map(train),
            evaluate: evaluated.map(evaluate),
            update_norm: change.update_norm.filter(|norm| norm.is_finite()),
            findings: findings.iter().map(reported_finding).collect(),
            checkpoint: saved.map(checkpoint),
            epsilon: self.epsilon().filter(|epsilon| epsilon.is_finite()),
            note: trained.note.clone(),
            ..self.blank_report()
        })
        .await
    }

    pub(super) async fn report_end(&mut self, note: String) -> Result<(), TrainError> {
        let report = TrainingReport { kind: "end".to_owned(), started_at: now_s(), note, ..self.blank_report() };
        self.report(report).await
    }

    fn blank_report(&self) -> TrainingReport {
        TrainingReport {
            round: self.round,
            strategy: self.settings.strategy.name().to_owned(),
            rounds_planned: self.settings.rounds,
            ..TrainingReport::default()
        }
    }

    /// Reports are optional: a SuperLink that refuses one is not asked again.
    async fn report(&mut self, report: TrainingReport) -> Result<(), TrainError> {
        if !self.takes_reports {
            return Ok(());
        }
        match self.receiver.app.report_training(&report.fitted()).await {
            Ok(()) => Ok(()),
            Err(error @ AppError::RunOver { .. }) => Err(error.into()),
            Err(error) => {
                self.takes_reports = false;
                self.log.warn(format!(
                    "the SuperLink takes no reports of this training; they are in this log only: {error}"
                ));
                Ok(())
            }
        }
    }

    pub(super) fn warn_of_metrics(&self, act: Act, errors: &[String]) {
        for problem in errors.iter().take(MAX_LOGGED_ERRORS) {
            self.log.warn(format!("{}: some metrics have no mean: {problem}", act.name()));
        }
    }
}

/// The events of a round.
fn events(trained: &Trained, change: &Change) -> Events {
    let failures = trained.conducted.iter().flat_map(|conducted| conducted.phase.failures());
    let (mut failed, mut rejected) = (0, Vec::new());
    for (node, failure) in failures {
        match failure.kind {
            FailureKind::NotNeeded => {}
            FailureKind::Rejected => rejected.push((node, failure.reason.clone())),
            FailureKind::Error | FailureKind::Late | FailureKind::Unreachable => failed += 1,
        }
    }
    let (norms, mean_update_norm) = (change.norms.clone(), change.mean_update_norm);
    Events { norms, mean_update_norm, failures: failed, rejected }
}

/// The size of a checkpoint's files.
fn directory_bytes(path: &Path) -> Option<u64> {
    let files = std::fs::read_dir(path).ok()?;
    let bytes = |file: std::io::Result<std::fs::DirEntry>| file.ok()?.metadata().ok().map(|facts| facts.len());
    files.map(bytes).sum()
}

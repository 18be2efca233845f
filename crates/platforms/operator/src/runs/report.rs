//! Converts reports of a SuperLink about runs to types of `trellis-kube`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use trellis_client::{Error, SuperLink};
use trellis_kube::run::machine::{Phase, SeenRun, Try};
use trellis_wire::call::RunHistory;
use trellis_wire::fab::RUN_MARK;
use trellis_wire::proto;
use trellis_wire::proto::scalar::Scalar;
use trellis_wire::report::{MetricReport, TrainingReport};

const OVER: &str = "finished";

/// Runs with the mark of the resource `uid`: those of `known`, or all if an attempt with an unknown id may exist.
pub async fn runs(superlink: &SuperLink, uid: &str, known: Option<&[u64]>) -> Result<Vec<SeenRun>, Error> {
    let Some(known) = known else {
        let all = superlink.list_runs(None).await?;
        return Ok(all.into_iter().filter_map(|run| marked(run, uid)).collect());
    };
    let mut found = Vec::new();
    for id in known {
        match superlink.list_runs(Some(*id)).await {
            // Only a SuperLink responds with this error; other servers at its address respond differently.
            Err(Error::Refused { status: 404, .. }) => {}
            answer => found.extend(answer?.into_iter().filter_map(|run| marked(run, uid))),
        }
    }
    Ok(found)
}

fn marked(run: proto::Run, uid: &str) -> Option<SeenRun> {
    let mark = match run.override_config.get(RUN_MARK)?.scalar.as_ref()? {
        Scalar::String(mark) => Try::of_mark(mark, uid)?,
        _ => return None,
    };
    let status = run.status.unwrap_or_default();
    Some(SeenRun {
        of: mark,
        id: run.run_id,
        phase: match (status.status.as_str(), status.sub_status.as_str()) {
            (OVER, "completed") => Phase::Completed,
            (OVER, "stopped") => Phase::Stopped,
            (OVER, _) => Phase::Failed,
            ("running", _) => Phase::Running,
            _ => Phase::Pending,
        },
        submitted: seconds(&run.pending_at).unwrap_or_default(),
        finished: seconds(&run.finished_at),
        details: status.details,
        round: None,
        rounds: None,
        result: BTreeMap::new(),
    })
}

/// `None`: it has not happened.
fn seconds(moment: &str) -> Option<i64> {
    moment.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

/// Progress and last metrics of a training.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Training {
    pub round: Option<u64>,
    pub rounds: Option<u64>,
    /// Duration of the last round.
    pub seconds: Option<f64>,
    pub metrics: BTreeMap<String, f64>,
}

/// Progress of a training that a Trellis SuperLink reports, from a round on.
pub async fn training(superlink: &SuperLink, run: u64, from: u64) -> Result<Training, Error> {
    let mut training = Training::default();
    let mut after = from.checked_sub(1);
    loop {
        let history = superlink.call(&RunHistory { run_id: run.to_string(), after_round: after }).await?;
        let reports = history.reports.iter().filter_map(|report| serde_json::from_str(report.get()).ok());
        let mut reports: Vec<TrainingReport> = reports.collect();
        reports.sort_by_key(|report| (report.round, report.kind != "round"));
        reports.iter().for_each(|report| training.add(report));
        match (history.more, reports.last()) {
            (true, Some(last)) => after = Some(last.round),
            _ => return Ok(training),
        }
    }
}

impl Training {
    fn add(&mut self, report: &TrainingReport) {
        self.round = self.round.max(Some(report.round));
        self.rounds = Some(report.rounds_planned).filter(|rounds| *rounds > 0).or(self.rounds);
        let phases = [("train", &report.train), ("evaluate", &report.evaluate)];
        let phases: Vec<_> = phases.into_iter().filter_map(|(name, phase)| Some((name, phase.as_ref()?))).collect();
        if !phases.is_empty() {
            self.seconds = Some(phases.iter().map(|(_, phase)| phase.seconds).sum());
        }
        let metrics: BTreeMap<String, f64> = phases
            .iter()
            .flat_map(|(name, phase)| phase.metrics.iter().filter_map(move |(key, metric)| number(name, key, metric)))
            .collect();
        // The report at the end has no metrics.
        if !metrics.is_empty() {
            self.metrics = metrics;
        }
    }
}

fn number(phase: &str, key: &str, metric: &MetricReport) -> Option<(String, f64)> {
    match metric {
        MetricReport::Number(number) => {
            // Common names of the metric.
            let bare =
                key.strip_prefix(phase).map(|rest| rest.trim_start_matches(['_', '-'])).filter(|it| !it.is_empty());
            Some((format!("{phase}.{}", bare.unwrap_or(key)), *number))
        }
        MetricReport::Numbers(_) | MetricReport::Text(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use trellis_wire::report::PhaseReport;

    use super::*;

    #[test]
    fn a_run_is_known_by_its_mark() {
        let run = |mark: &str, status: &str, outcome: &str| {
            let value = proto::Scalar { scalar: Some(Scalar::String(mark.to_owned())) };
            proto::Run {
                run_id: 7,
                pending_at: "1970-01-01T00:00:01.500000+00:00".to_owned(),
                override_config: [(RUN_MARK.to_owned(), value)].into(),
                status: Some(proto::RunStatus {
                    status: status.to_owned(),
                    sub_status: outcome.to_owned(),
                    details: String::new(),
                }),
                ..Default::default()
            }
        };
        let of = Try { number: 3, attempt: 2 };
        for (status, outcome, phase) in [
            ("pending", "", Phase::Pending),
            ("running", "", Phase::Running),
            ("finished", "completed", Phase::Completed),
            ("finished", "failed", Phase::Failed),
            ("finished", "stopped", Phase::Stopped),
        ] {
            let found = marked(run(&of.mark("u1"), status, outcome), "u1").expect("it is ours");
            assert_eq!((found.of, found.phase, found.submitted), (of, phase, 1));
        }
        assert_eq!(marked(run(&of.mark("u1"), "running", ""), "u"), None, "of another resource");
        assert_eq!(marked(proto::Run::default(), "u1"), None, "of another client");
    }

    #[test]
    fn the_last_numbers_stay_when_the_end_is_told() {
        let phase = |key: &str, number: f64| {
            let metrics = BTreeMap::from([(key.to_owned(), MetricReport::number(number))]);
            Some(PhaseReport { seconds: 2.0, metrics, ..PhaseReport::default() })
        };
        let round = TrainingReport {
            round: 2,
            rounds_planned: 2,
            train: phase("train_loss", 0.5),
            evaluate: phase("accuracy", 0.9),
            ..TrainingReport::default()
        };
        let mut training = Training::default();
        training.add(&round);
        training.add(&TrainingReport { round: 2, kind: "end".to_owned(), ..TrainingReport::default() });
        let expected = [("evaluate.accuracy".to_owned(), 0.9), ("train.loss".to_owned(), 0.5)];
        assert_eq!((training.round, training.rounds, training.seconds), (Some(2), Some(2), Some(4.0)));
        assert_eq!(training.metrics, expected.into());
    }
}

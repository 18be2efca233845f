//! Conversion of runs and nodes from the wire of the SuperLink to the types of the API.

use std::collections::BTreeMap;

use jiff::Timestamp;
use trellis_api::{MetricReport, Run, RunState, Scalar, Training, TrainingReport};
use trellis_plan::LinkNode;
use trellis_wire::fab::RUN_MARK;
use trellis_wire::proto;
use trellis_wire::proto::scalar::Scalar as Value;

const FINISHED: &str = "finished";
const ONLINE: &str = "online";

pub fn node(node: trellis_wire::call::Node) -> LinkNode {
    let is_online = node.status == ONLINE;
    let since = if is_online { node.last_activated_at } else { node.last_deactivated_at };
    LinkNode {
        is_online,
        draining: node.draining,
        drained: false,
        asks_for_shard: node.asks_for_shard,
        version: Some(node.client).filter(|client| !client.is_empty()),
        since_ms: since.map(|since| (since * 1000.0) as u64),
        id: node.id,
        name: node.name,
        location: node.location,
    }
}

pub fn run(federation: &str, run: proto::Run) -> Run {
    let status = run.status.unwrap_or_default();
    let finished = status.status == FINISHED;
    Run {
        id: run.run_id.to_string(),
        federation: federation.to_owned(),
        app: run.fab_id,
        version: run.fab_version,
        state: match status.status.as_str() {
            FINISHED => RunState::Finished,
            "running" => RunState::Running,
            "starting" => RunState::Starting,
            _ => RunState::Pending,
        },
        outcome: finished.then_some(status.sub_status),
        details: status.details,
        native: run.native,
        account: run.account_name,
        started_by: None,
        config: run.override_config.into_iter().filter_map(setting).collect(),
        submitted_at: seconds(&run.pending_at).unwrap_or_default(),
        started_at: seconds(&run.running_at),
        finished_at: seconds(&run.finished_at),
        training: None,
    }
}

/// Finishes a run that will not be reported again. A finished run stays unchanged.
pub fn ended(run: Run, outcome: &str, why: &str) -> Run {
    match run.state {
        RunState::Finished => run,
        _ => {
            let outcome = Some(outcome.to_owned());
            Run { state: RunState::Finished, outcome, details: why.to_owned(), ..run }
        }
    }
}

/// `None`: the key is internal, or the API has no form for the value.
fn setting((key, value): (String, proto::Scalar)) -> Option<(String, Scalar)> {
    let value = match value.scalar? {
        Value::Double(number) => Scalar::Float(number),
        Value::Uint64(number) => i64::try_from(number).map_or(Scalar::Float(number as f64), Scalar::Int),
        Value::Sint64(number) => Scalar::Int(number),
        Value::Bool(truth) => Scalar::Bool(truth),
        Value::String(text) => Scalar::Text(text),
        Value::Bytes(_) => return None,
    };
    (key != RUN_MARK).then_some((key, value))
}

/// `None`: not set.
fn seconds(moment: &str) -> Option<f64> {
    let moment: Timestamp = moment.parse().ok()?;
    Some(moment.as_microsecond() as f64 / 1e6)
}

/// Adds a report to the progress of a training.
pub fn train(training: &mut Training, report: &TrainingReport) {
    training.strategy.clone_from(&report.strategy);
    training.round = training.round.max(report.round);
    training.rounds_planned = report.rounds_planned;
    let seconds: Vec<f64> =
        [&report.train, &report.evaluate].into_iter().flatten().map(|phase| phase.seconds).collect();
    if !seconds.is_empty() {
        training.round_seconds = Some(seconds.into_iter().sum());
    }
    if let Some(checkpoint) = &report.checkpoint {
        training.checkpoint = Some(checkpoint.path.clone());
    }
    let metrics = metrics(report);
    // The report of the end has no metrics.
    if !metrics.is_empty() {
        training.metrics = metrics;
    }
}

fn metrics(report: &TrainingReport) -> BTreeMap<String, f64> {
    let phases = [("train", &report.train), ("evaluate", &report.evaluate)];
    let phases = phases.into_iter().filter_map(|(name, phase)| Some((name, phase.as_ref()?)));
    let named = phases.flat_map(|(name, phase)| {
        phase.metrics.iter().filter_map(move |(key, metric)| match metric {
            // Many names have the prefix already.
            MetricReport::Number(number) if key.starts_with(name) => Some((key.clone(), *number)),
            MetricReport::Number(number) => Some((format!("{name}_{key}"), *number)),
            MetricReport::Numbers(_) | MetricReport::Text(_) => None,
        })
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trellis_api::PhaseReport;

    #[test]
    fn a_run_in_the_words_of_the_api() {
        let status = proto::RunStatus {
            status: "finished".to_owned(),
            sub_status: "completed".to_owned(),
            details: "all is well".to_owned(),
        };
        let listed = proto::Run {
            run_id: u64::MAX,
            fab_id: "me/app".to_owned(),
            pending_at: "1970-01-01T00:00:01.500000+00:00".to_owned(),
            native: true,
            account_name: "me".to_owned(),
            override_config: [
                ("lr".to_owned(), proto::Scalar { scalar: Some(Value::Double(0.5)) }),
                (RUN_MARK.to_owned(), proto::Scalar { scalar: Some(Value::String("mark".to_owned())) }),
            ]
            .into(),
            status: Some(status),
            ..Default::default()
        };
        let run = run("fed", listed);
        assert_eq!((run.id.as_str(), run.native, run.submitted_at), ("18446744073709551615", true, 1.5));
        assert_eq!((run.state, run.outcome.as_deref()), (RunState::Finished, Some("completed")));
        assert_eq!((run.started_at, run.details.as_str()), (None, "all is well"));
        assert_eq!((run.account.as_str(), run.config), ("me", [("lr".to_owned(), Scalar::Float(0.5))].into()));
    }

    #[test]
    fn the_last_numbers_stay_when_the_end_is_told() {
        let phase = |key: &str, number: f64| {
            let metrics = BTreeMap::from([(key.to_owned(), MetricReport::number(number))]);
            Some(PhaseReport { metrics, ..PhaseReport::default() })
        };
        let round = TrainingReport {
            round: 2,
            rounds_planned: 2,
            strategy: "FedAvg".to_owned(),
            train: phase("train_loss", 0.5),
            evaluate: phase("accuracy", 0.9),
            ..TrainingReport::default()
        };
        let end = TrainingReport { round: 2, kind: "end".to_owned(), rounds_planned: 2, ..TrainingReport::default() };
        let mut training = Training::default();
        train(&mut training, &round);
        train(&mut training, &end);
        let expected = [("evaluate_accuracy".to_owned(), 0.9), ("train_loss".to_owned(), 0.5)];
        assert_eq!((training.round, training.metrics), (2, expected.into()));
    }
}

//! Points: named numbers of a round, made of its report. Pure.

use std::collections::BTreeMap;

use trellis_wire::report::{MetricReport, PhaseReport, TrainingReport};

/// MLflow takes no longer names.
const MAX_NAME_CHARS: usize = 250;
/// The kind of reports with numbers of a round.
pub const ROUND: &str = "round";
/// `not-needed`: enough other nodes had answered.
const NO_FAILURE: &str = "not-needed";

/// A metric of a round.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// `train/loss`. Of characters that every tracker takes.
    pub name: String,
    /// The round.
    pub step: u64,
    pub value: f64,
    /// When the round was over, in seconds since 1970. Taken from the report, so that a point that is sent again is the same point.
    pub at: f64,
}

/// The points of the report of a round: metrics of both phases, and what the round took.
pub fn points(report: &TrainingReport) -> Vec<Point> {
    if report.kind != ROUND {
        return Vec::new();
    }
    let phases: Vec<&PhaseReport> = report.train.iter().chain(&report.evaluate).collect();
    let sum = |number: fn(&PhaseReport) -> f64| phases.iter().map(|phase| number(phase)).sum::<f64>();
    let seconds = sum(|phase| phase.seconds);
    let mut numbers: Vec<(String, f64)> = Vec::new();
    for (prefix, phase) in [("train", &report.train), ("evaluate", &report.evaluate)] {
        phase.iter().for_each(|phase| add_metrics(prefix, &phase.metrics, &mut numbers));
    }
    // Both phases ask nodes; the training is what people count by.
    let nodes = phases.first().map(|phase| ("round/nodes", phase.answered as f64));
    let took = [
        Some(("round/seconds", seconds)),
        nodes,
        Some(("round/failures", sum(failures))),
        report.update_norm.map(|norm| ("round/update_norm", norm)),
        report.epsilon.map(|epsilon| ("round/epsilon", epsilon)),
    ];
    numbers.extend(took.into_iter().flatten().map(|(name, value)| (name.to_owned(), value)));
    let (step, at) = (report.round, report.started_at + seconds);
    numbers.into_iter().map(|(name, value)| Point { name, step, value, at }).collect()
}

fn failures(phase: &PhaseReport) -> f64 {
    phase.failed.iter().filter(|node| node.kind != NO_FAILURE).count() as f64
}

fn add_metrics(prefix: &str, metrics: &BTreeMap<String, MetricReport>, to: &mut Vec<(String, f64)>) {
    for (name, value) in metrics {
        let name = clean(&format!("{prefix}/{name}"));
        match value {
            MetricReport::Number(number) => to.push((name, *number)),
            // `nan`, `inf` and `-inf` are numbers of Rust, too.
            MetricReport::Text(text) => to.extend(text.parse().ok().map(|number| (name, number))),
            MetricReport::Numbers(numbers) => {
                to.extend(numbers.iter().enumerate().map(|(index, number)| (format!("{name}/{index}"), *number)));
            }
        }
    }
}

/// A name that MLflow takes, too: letters, digits and `_-. /:`, and no part of a path that leads elsewhere.
pub fn clean(name: &str) -> String {
    let fits = |char: char| char.is_ascii_alphanumeric() || "_-. :/".contains(char);
    let fitting: String = name.chars().map(|char| if fits(char) { char } else { '_' }).collect();
    let parts = fitting.split('/').filter(|part| !matches!(*part, "" | "." | ".."));
    parts.collect::<Vec<_>>().join("/").chars().take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use trellis_wire::report::FailedNode;

    use super::*;

    fn phase(seconds: f64, metrics: &[(&str, MetricReport)], failed: &[&str]) -> PhaseReport {
        let node = |kind: &&str| FailedNode { node: "1".to_owned(), kind: (*kind).to_owned(), reason: String::new() };
        PhaseReport {
            seconds,
            answered: 4,
            failed: failed.iter().map(node).collect(),
            metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn a_report_becomes_points() {
        let train = [("loss", MetricReport::Number(1.5)), ("per class", MetricReport::Numbers(vec![0.5, 0.25]))];
        let evaluate = [("acc%", MetricReport::number(f64::INFINITY)), ("note", MetricReport::Text("x".to_owned()))];
        let report = TrainingReport {
            round: 3,
            kind: ROUND.to_owned(),
            started_at: 100.0,
            train: Some(phase(2.0, &train, &["late", "not-needed"])),
            evaluate: Some(phase(0.5, &evaluate, &["error"])),
            epsilon: Some(1.25),
            ..Default::default()
        };
        let expected = [
            ("train/loss", 1.5),
            ("train/per class/0", 0.5),
            ("train/per class/1", 0.25),
            ("evaluate/acc_", f64::INFINITY),
            ("round/seconds", 2.5),
            ("round/nodes", 4.0),
            ("round/failures", 2.0),
            ("round/epsilon", 1.25),
        ];
        let found = points(&report);
        let numbers: Vec<(&str, f64)> = found.iter().map(|point| (point.name.as_str(), point.value)).collect();
        assert_eq!(numbers, expected);
        assert!(found.iter().all(|point| (point.step, point.at) == (3, 102.5)));
    }

    #[test]
    fn names_are_taken_by_every_tracker() {
        for (name, expected) in [
            ("train/loss", "train/loss"),
            ("train/../é//x", "train/_/x"),
            ("train/", "train"),
            ("a".repeat(300).as_str(), "a".repeat(250).as_str()),
        ] {
            assert_eq!(clean(name), expected);
        }
    }
}

//! Loss and accuracy of a run by round, also as a line of small bars.

use trellis_api::{MetricReport, PhaseReport, TrainingReport};

/// Only the newest rounds are kept: more do not fit any terminal.
const MAX_POINTS: usize = 1000;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// A non-finite value.
const GAP: char = '·';

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub round: u64,
    pub loss: Option<f64>,
    pub accuracy: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    points: Vec<Point>,
}

impl Curve {
    /// Adds a round. Reports of earlier rounds are ignored, so repeated reports are safe.
    pub fn add(&mut self, report: &TrainingReport) {
        if report.kind == "end" || self.last_round().is_some_and(|last| report.round <= last) {
            return;
        }
        let point = Point { round: report.round, loss: metric(report, "loss"), accuracy: metric(report, "acc") };
        self.points.push(point);
        let many = self.points.len().saturating_sub(MAX_POINTS);
        self.points.drain(..many);
    }

    pub fn last_round(&self) -> Option<u64> {
        self.points.last().map(|point| point.round)
    }

    pub fn losses(&self) -> Vec<f64> {
        self.points.iter().filter_map(|point| point.loss).collect()
    }

    pub fn accuracies(&self) -> Vec<f64> {
        self.points.iter().filter_map(|point| point.accuracy).collect()
    }
}

/// The first metric whose name contains `part`: of the evaluation, or else of the training.
fn metric(report: &TrainingReport, part: &str) -> Option<f64> {
    let within = |phase: &PhaseReport| {
        let mut numbers = phase.metrics.iter().filter(|(name, _)| name.to_lowercase().contains(part));
        numbers.find_map(|(_, value)| match value {
            MetricReport::Number(number) => Some(*number),
            MetricReport::Text(text) => text.parse().ok(),
            MetricReport::Numbers(_) => None,
        })
    };
    report.evaluate.as_ref().and_then(within).or_else(|| report.train.as_ref().and_then(within))
}

/// The newest values that fit, scaled from the minimum (a low bar) to the maximum.
pub fn bars(values: &[f64], width: usize) -> String {
    let values = &values[values.len().saturating_sub(width)..];
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let (min, max) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let bar = |value: &f64| match value.is_finite() {
        false => GAP,
        true if max <= min => BARS[BARS.len() / 2],
        true => BARS[((value - min) / (max - min) * (BARS.len() - 1) as f64).round() as usize],
    };
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_scaled_to_the_values() {
        assert_eq!(bars(&[0.0, 0.5, 1.0], 10), "▁▅█");
        assert_eq!(bars(&[9.0, 0.0, 0.5, 1.0], 3), "▁▅█");
        assert_eq!(bars(&[1.0, 1.0], 10), "▅▅");
        assert_eq!(bars(&[1.0, f64::NAN, 2.0, f64::INFINITY], 10), "▁·█·");
        assert_eq!(bars(&[], 10), "");
    }

    #[test]
    fn metrics_of_the_evaluation_take_precedence() {
        let phase = |metrics: &[(&str, MetricReport)]| PhaseReport {
            metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            ..Default::default()
        };
        let number = MetricReport::number;
        let mut report = TrainingReport {
            round: 1,
            train: Some(phase(&[("train_loss", number(2.0)), ("train_acc", number(0.1))])),
            evaluate: Some(phase(&[("eval_Loss", MetricReport::Text("nan".to_owned()))])),
            ..Default::default()
        };
        let mut curve = Curve::default();
        curve.add(&report);
        curve.add(&report);
        let [Point { round: 1, loss: Some(loss), accuracy: Some(accuracy) }] = curve.points[..] else {
            panic!("{curve:?}")
        };
        assert!(loss.is_nan() && accuracy == 0.1);
        (report.round, report.kind) = (2, "end".to_owned());
        curve.add(&report);
        assert_eq!(curve.last_round(), Some(1));
    }
}

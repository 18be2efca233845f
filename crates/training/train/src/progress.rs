//! The history of a training: its metrics, early stopping, and findings. Pure.

use std::collections::BTreeMap;

use trellis_core::id::NodeId;
use trellis_models::Measured;
use trellis_strategy::health::{Client, Finding, Round, diagnose};
use trellis_strategy::metrics::{scalar, weighted_mean};
use trellis_wire::object::{MetricRecord, MetricValue};
use trellis_wire::report::{FindingReport, MetricReport};

use crate::conduct::ReplyMetrics;
use crate::settings::{Patience, Target};

/// The metric by which an app may report the number of examples with each label.
const LABEL_COUNTS: &str = "label-counts";
/// The number of rounds that findings are based on.
const HEALTH_ROUNDS: usize = 100;

/// The rounds of a training.
#[derive(Debug, Default)]
pub struct Progress {
    /// The aggregated metrics of all rounds, including those before a resume.
    pub measured: Vec<Measured>,
    health: Vec<Round>,
    /// The codes of the previous round's findings: a finding is reported only when it is new.
    reported: Vec<&'static str>,
}

/// Whether to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Continue,
    /// With the reason to stop.
    Stop(String),
}

/// The metrics of a phase.
#[derive(Debug, Clone, Default)]
pub struct Measurement {
    pub mean: MetricRecord,
    pub replies: Vec<ReplyMetrics>,
}

impl Measurement {
    /// The means over the replies, and an error for each metric without a mean, because replies differ. If the strategy selects
    /// some replies, the means are over those only, as in Flower.
    pub fn of(replies: Vec<ReplyMetrics>, chosen: Option<&[NodeId]>, weighted_by: &str) -> (Measurement, Vec<String>) {
        let counts = |reply: &&ReplyMetrics| chosen.is_none_or(|chosen| chosen.contains(&reply.node));
        let counted: Vec<&ReplyMetrics> = replies.iter().filter(counts).collect();
        let records: Vec<(NodeId, &MetricRecord)> = counted.iter().map(|reply| (reply.node, &reply.metrics)).collect();
        let (mean, errors) = match weighted_mean(&records, weighted_by) {
            Ok(mean) => (mean, Vec::new()),
            Err(errors) => (mean_of_common(&counted, weighted_by), errors),
        };
        (Measurement { mean, replies }, errors)
    }
}

/// The means of the metrics that all replies have in the same form.
fn mean_of_common(replies: &[&ReplyMetrics], weighted_by: &str) -> MetricRecord {
    let Some(first) = replies.first() else { return MetricRecord::default() };
    let is_common = |name: &str, like: &MetricValue| {
        let same = |reply: &&ReplyMetrics| reply.metrics.0.get(name).is_some_and(|value| form(value) == form(like));
        replies.iter().all(same)
    };
    let names: Vec<&str> =
        first.metrics.0.iter().filter(|(name, value)| is_common(name, value)).map(|(name, _)| name.as_str()).collect();
    let records: Vec<(NodeId, MetricRecord)> = replies
        .iter()
        .map(|reply| {
            let mut record = MetricRecord::default();
            for name in &names {
                if let Some(value) = reply.metrics.0.get(name) {
                    record.0.insert(*name, value.clone());
                }
            }
            (reply.node, record)
        })
        .collect();
    let records: Vec<(NodeId, &MetricRecord)> = records.iter().map(|(node, record)| (*node, record)).collect();
    weighted_mean(&records, weighted_by).unwrap_or_default()
}

/// The length of a list.
fn form(value: &MetricValue) -> Option<usize> {
    match value {
        MetricValue::DoubleList(list) => Some(list.vals.len()),
        MetricValue::SintList(list) => Some(list.vals.len()),
        MetricValue::UintList(list) => Some(list.vals.len()),
        _ => None,
    }
}

/// The events of a round.
#[derive(Debug, Default)]
pub struct Events {
    pub norms: BTreeMap<NodeId, f64>,
    /// The norm of the mean of all updates, if the strategy computes it.
    pub mean_update_norm: Option<f64>,
    pub failures: usize,
    pub rejected: Vec<(NodeId, String)>,
}

impl Progress {
    /// Continues after the rounds of another run.
    pub fn resumed(measured: Vec<Measured>) -> Progress {
        Progress { measured, ..Progress::default() }
    }

    /// Records a round.
    pub fn record(
        &mut self,
        round: u64,
        train: Option<&Measurement>,
        evaluate: Option<&Measurement>,
        events: Events,
        loss_key: &str,
    ) {
        let numbers = |phase: Option<&Measurement>| phase.map(|phase| numbers(&phase.mean)).unwrap_or_default();
        self.measured.push(Measured { round, train: numbers(train), evaluate: numbers(evaluate) });
        self.health.push(health(round, train, evaluate, events, loss_key));
        if self.health.len() > HEALTH_ROUNDS {
            self.health.remove(0);
        }
    }

    /// All findings, and the new ones among them.
    pub fn findings(&mut self) -> (Vec<Finding>, Vec<Finding>) {
        let all = diagnose(&self.health);
        let new = all.iter().filter(|finding| !self.reported.contains(&finding.code)).cloned().collect();
        self.reported = all.iter().map(|finding| finding.code).collect();
        (all, new)
    }

    /// Whether the training stops before its last round.
    pub fn verdict(&self, target: Option<&Target>, patience: Option<&Patience>) -> Verdict {
        if let Some(Target { metric, value }) = target
            && let Some(reached) = self.latest(metric)
            && is_better_or_equal(metric, reached, *value)
        {
            return Verdict::Stop(format!("{metric} is {reached}, the target is {value}"));
        }
        let Some(patience) = patience else { return Verdict::Continue };
        let Some(metric) = patience.metric.clone().or_else(|| self.first_loss()) else { return Verdict::Continue };
        let series: Vec<f64> = self.measured.iter().filter_map(|round| metric_of(round, &metric)).collect();
        let since = rounds_since_best(&metric, &series);
        match since >= patience.rounds {
            true => Verdict::Stop(format!("{metric} has not improved for {since} rounds")),
            false => Verdict::Continue,
        }
    }

    fn latest(&self, metric: &str) -> Option<f64> {
        metric_of(self.measured.last()?, metric)
    }

    fn first_loss(&self) -> Option<String> {
        let round = self.measured.last()?;
        let names = round.evaluate.keys().chain(round.train.keys());
        names.into_iter().find(|name| name.contains("loss")).cloned()
    }
}

/// The metric of the evaluation, otherwise that of the training.
fn metric_of(round: &Measured, metric: &str) -> Option<f64> {
    round.evaluate.get(metric).or_else(|| round.train.get(metric)).copied()
}

/// Losses and error rates improve downwards.
fn is_lower_better(metric: &str) -> bool {
    let metric = metric.to_lowercase();
    ["loss", "err", "perplexity", "mse", "mae"].iter().any(|word| metric.contains(word))
}

fn is_better_or_equal(metric: &str, reached: f64, target: f64) -> bool {
    if is_lower_better(metric) { reached <= target } else { reached >= target }
}

fn rounds_since_best(metric: &str, series: &[f64]) -> u64 {
    let mut best: Option<(usize, f64)> = None;
    for (index, value) in series.iter().copied().enumerate().filter(|(_, value)| value.is_finite()) {
        let improves = best.is_none_or(|(_, best)| if is_lower_better(metric) { value < best } else { value > best });
        if improves {
            best = Some((index, value));
        }
    }
    let measured = series.len() as u64;
    best.map_or(measured, |(index, _)| measured - 1 - index as u64)
}

/// The metrics with a single number.
fn numbers(metrics: &MetricRecord) -> BTreeMap<String, f64> {
    metrics.0.names().filter_map(|name| Some((name.to_owned(), scalar(metrics, name)?))).collect()
}

/// The first metric whose name contains the word.
fn containing(metrics: &MetricRecord, word: &str) -> Option<f64> {
    let name = metrics.0.names().find(|name| name.to_lowercase().contains(word))?;
    scalar(metrics, name)
}

fn health(
    number: u64,
    train: Option<&Measurement>,
    evaluate: Option<&Measurement>,
    events: Events,
    loss_key: &str,
) -> Round {
    let loss = |metrics: &MetricRecord| scalar(metrics, loss_key).or_else(|| containing(metrics, "loss"));
    let mut clients: BTreeMap<NodeId, Client> = BTreeMap::new();
    for reply in train.into_iter().flat_map(|phase| &phase.replies) {
        let client = clients.entry(reply.node).or_insert_with(|| Client::new(reply.node));
        client.examples = Some(reply.weight);
        client.update_norm = events.norms.get(&reply.node).copied();
        client.train_loss = loss(&reply.metrics);
        client.label_counts = list(&reply.metrics, LABEL_COUNTS);
    }
    for reply in evaluate.into_iter().flat_map(|phase| &phase.replies) {
        let client = clients.entry(reply.node).or_insert_with(|| Client::new(reply.node));
        client.eval_loss = containing(&reply.metrics, "loss");
        client.eval_accuracy = containing(&reply.metrics, "acc");
        client.eval_examples = Some(reply.weight);
        if client.label_counts.is_empty() {
            client.label_counts = list(&reply.metrics, LABEL_COUNTS);
        }
    }
    Round {
        number,
        train_loss: train.and_then(|phase| loss(&phase.mean)),
        eval_loss: evaluate.and_then(|phase| containing(&phase.mean, "loss")),
        eval_accuracy: evaluate.and_then(|phase| containing(&phase.mean, "acc")),
        mean_update_norm: events.mean_update_norm,
        clients: clients.into_values().collect(),
        failures: events.failures,
        rejected: events.rejected,
    }
}

fn list(metrics: &MetricRecord, name: &str) -> Vec<f64> {
    match metrics.0.get(name) {
        Some(MetricValue::DoubleList(list)) => list.vals.clone(),
        Some(MetricValue::SintList(list)) => list.vals.iter().map(|&number| number as f64).collect(),
        Some(MetricValue::UintList(list)) => list.vals.iter().map(|&number| number as f64).collect(),
        _ => Vec::new(),
    }
}

/// Metrics in the form of reports.
pub fn reported(metrics: &MetricRecord) -> BTreeMap<String, MetricReport> {
    let value = |name: &str| match scalar(metrics, name) {
        Some(number) => MetricReport::number(number),
        None => MetricReport::Numbers(list(metrics, name)),
    };
    metrics.0.names().map(|name| (name.to_owned(), value(name))).collect()
}

pub fn reported_finding(finding: &Finding) -> FindingReport {
    FindingReport {
        code: finding.code.to_owned(),
        severity: finding.severity.name().to_owned(),
        what: finding.what.clone(),
        // JSON cannot express non-finite numbers.
        numbers: finding
            .numbers
            .iter()
            .filter(|(_, number)| number.is_finite())
            .map(|(name, number)| (name.clone(), *number))
            .collect(),
        advice: finding.advice.clone(),
    }
}

/// Metrics as text: `loss 0.1234, accuracy 0.98`.
pub fn described(metrics: &MetricRecord) -> String {
    let one = |(name, value): &(String, MetricValue)| match form(value) {
        None => format!("{name} {}", rounded(scalar(metrics, name).unwrap_or(f64::NAN))),
        Some(length) => format!("{name} (a list of {length})"),
    };
    metrics.0.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Few digits for any magnitude.
pub fn rounded(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        size if (1e-3..1e6).contains(&size) => format!("{number:.4}"),
        _ => format!("{number:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use trellis_wire::object::Entries;

    use super::*;

    fn reply_metrics(node: u64, metrics: Entries<MetricValue>) -> ReplyMetrics {
        let metrics = MetricRecord(metrics.with("num-examples", 10i64));
        ReplyMetrics { node: NodeId(node), weight: 10.0, metrics, seconds: 0.0 }
    }

    fn progress(metric: &str, series: &[f64]) -> Progress {
        let mut progress = Progress::default();
        for (index, value) in series.iter().enumerate() {
            let (measurement, _) =
                Measurement::of(vec![reply_metrics(1, Entries::default().with(metric, *value))], None, "num-examples");
            progress.record(index as u64 + 1, None, Some(&measurement), Events::default(), "train_loss");
        }
        progress
    }

    #[test]
    fn a_training_stops_at_its_target() {
        for (metric, series, value, stops) in [
            ("accuracy", &[0.5, 0.9][..], 0.9, true),
            ("accuracy", &[0.9, 0.5], 0.9, false),
            ("eval_loss", &[0.5, 0.1], 0.2, true),
            ("eval_loss", &[0.1, 0.5], 0.2, false),
            ("eval_loss", &[f64::NAN], 0.2, false),
            ("rmse", &[0.1], 0.2, true),
        ] {
            let target = Target { metric: metric.to_owned(), value };
            let verdict = progress(metric, series).verdict(Some(&target), None);
            assert_eq!(verdict != Verdict::Continue, stops, "{metric} {series:?}: {verdict:?}");
        }
        let other = Target { metric: "nobody-measures-this".to_owned(), value: 0.0 };
        assert_eq!(progress("accuracy", &[1.0]).verdict(Some(&other), None), Verdict::Continue);
    }

    #[test]
    fn a_training_stops_without_improvement() {
        for (metric, series, rounds, stops) in [
            ("eval_loss", &[3.0, 2.0, 1.0][..], 1, false),
            ("eval_loss", &[3.0, 2.0, 2.0], 1, true),
            ("eval_loss", &[3.0, 1.0, 2.0], 2, false),
            ("eval_loss", &[3.0, 1.0, 2.0, 1.5], 2, true),
            ("eval_loss", &[f64::NAN, f64::NAN], 2, true),
            ("accuracy", &[0.1, 0.2, 0.15], 1, false),
        ] {
            let patience = Patience { rounds, metric: None };
            let verdict = progress(metric, series).verdict(None, Some(&patience));
            assert_eq!(verdict != Verdict::Continue, stops, "{metric} {series:?}: {verdict:?}");
        }
        let accuracy = Patience { rounds: 1, metric: Some("accuracy".to_owned()) };
        let verdict = progress("accuracy", &[0.1, 0.2, 0.15]).verdict(None, Some(&accuracy));
        assert_eq!(verdict, Verdict::Stop("accuracy has not improved for 1 rounds".to_owned()));
    }

    #[test]
    fn a_metric_that_some_replies_lack_does_not_affect_others() {
        let replies = vec![
            reply_metrics(1, Entries::default().with("loss", 1.0).with("odd", 1.0).with("list", vec![1.0, 2.0])),
            reply_metrics(2, Entries::default().with("loss", 3.0).with("list", vec![1.0])),
        ];
        let (measurement, errors) = Measurement::of(replies, None, "num-examples");
        assert_eq!(measurement.mean, MetricRecord(Entries::default().with("loss", 2.0)));
        assert!(errors.iter().any(|error| error.contains("node 2") && error.contains("odd")), "{errors:?}");
        assert_eq!(described(&measurement.mean), "loss 2.0000");
    }

    #[test]
    fn replies_that_the_strategy_did_not_select_do_not_count() {
        let replies = [1.0, 2.0, 90.0].into_iter().zip(1..);
        let replies = replies.map(|(loss, node)| reply_metrics(node, Entries::default().with("loss", loss))).collect();
        let (measurement, errors) = Measurement::of(replies, Some(&[NodeId(1), NodeId(2)]), "num-examples");
        assert_eq!(measurement.mean, MetricRecord(Entries::default().with("loss", 1.5)));
        assert!(errors.is_empty() && measurement.replies.len() == 3, "the report has every reply");
    }

    #[test]
    fn a_persistent_finding_is_new_only_once() {
        let mut progress = progress("eval_loss", &[f64::NAN]);
        let (all, new) = progress.findings();
        assert!(!all.is_empty() && all == new, "a NaN loss is a finding");
        let (all, new) = progress.findings();
        assert!(!all.is_empty() && new.is_empty());
    }
}

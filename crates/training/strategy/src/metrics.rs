//! The metrics of a round: the weighted mean of the clients' measurements, as Flower computes it.

use std::collections::BTreeSet;

use trellis_core::id::NodeId;
use trellis_wire::object::{MetricRecord, MetricValue};

/// A metric that is a single number.
pub fn scalar(metrics: &MetricRecord, name: &str) -> Option<f64> {
    match metrics.0.get(name)? {
        MetricValue::Double(number) => Some(*number),
        MetricValue::Sint64(number) => Some(*number as f64),
        MetricValue::Uint64(number) => Some(*number as f64),
        _ => None,
    }
}

/// The mean of each metric, lists by element, weighted by the metric `weighted_by`, which the result omits. Integers become
/// floats. Replies must be sorted by node id, because the order affects sums of floats. Returns all errors at once.
pub fn weighted_mean(replies: &[(NodeId, &MetricRecord)], weighted_by: &str) -> Result<MetricRecord, Vec<String>> {
    let Some((_, first)) = replies.first() else { return Ok(MetricRecord::default()) };
    let errors = differences(replies);
    if !errors.is_empty() {
        return Err(errors);
    }
    let shares = shares(replies, weighted_by)?;
    let mut mean = MetricRecord::default();
    for (name, like) in first.0.iter().filter(|(name, _)| name != weighted_by) {
        let mut sums = vec![0.0; numbers(like).len()];
        for ((_, metrics), share) in replies.iter().zip(&shares) {
            let values = numbers(metrics.0.get(name).expect("all have the same names"));
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value * share;
            }
        }
        let value = if is_list(like) { MetricValue::from(sums) } else { MetricValue::from(sums[0]) };
        mean.0.insert(name.clone(), value);
    }
    Ok(mean)
}

/// The normalised weight of each reply.
fn shares(replies: &[(NodeId, &MetricRecord)], weighted_by: &str) -> Result<Vec<f64>, Vec<String>> {
    let mut errors = Vec::new();
    let mut weights = Vec::with_capacity(replies.len());
    for (node, metrics) in replies {
        match scalar(metrics, weighted_by) {
            Some(weight) if weight >= 0.0 && weight.is_finite() => weights.push(weight),
            Some(weight) => errors.push(format!("node {node} sent {weighted_by} = {weight}: it must be 0 or more")),
            None => errors.push(format!("node {node} sent no single number {weighted_by:?} among its metrics")),
        }
    }
    let total: f64 = weights.iter().sum();
    if errors.is_empty() && total == 0.0 {
        errors.push(format!("{weighted_by} is 0 in all replies, so there is no mean"));
    }
    if errors.is_empty() { Ok(weights.iter().map(|weight| weight / total).collect()) } else { Err(errors) }
}

/// Metrics that some replies lack or send in another form.
fn differences(replies: &[(NodeId, &MetricRecord)]) -> Vec<String> {
    let all: BTreeSet<&str> = replies.iter().flat_map(|(_, metrics)| metrics.0.names()).collect();
    let mut errors = Vec::new();
    for (node, metrics) in replies {
        let lacking: Vec<&str> = all.iter().copied().filter(|name| metrics.0.get(name).is_none()).collect();
        if !lacking.is_empty() {
            errors.push(format!("node {node} did not send {}, which other nodes sent", lacking.join(", ")));
        }
    }
    for name in all {
        let mut forms = replies.iter().filter_map(|(node, metrics)| Some((node, form(metrics.0.get(name)?))));
        let Some((model, expected)) = forms.next() else { continue };
        for (node, form) in forms.filter(|(_, form)| *form != expected) {
            errors.push(format!("node {node} sent {name} as {form}, and node {model} as {expected}"));
        }
    }
    errors
}

fn form(value: &MetricValue) -> String {
    if is_list(value) { format!("a list of {}", numbers(value).len()) } else { "a number".into() }
}

fn is_list(value: &MetricValue) -> bool {
    matches!(value, MetricValue::DoubleList(_) | MetricValue::SintList(_) | MetricValue::UintList(_))
}

fn numbers(value: &MetricValue) -> Vec<f64> {
    match value {
        MetricValue::Double(number) => vec![*number],
        MetricValue::Sint64(number) => vec![*number as f64],
        MetricValue::Uint64(number) => vec![*number as f64],
        MetricValue::DoubleList(list) => list.vals.clone(),
        MetricValue::SintList(list) => list.vals.iter().map(|&number| number as f64).collect(),
        MetricValue::UintList(list) => list.vals.iter().map(|&number| number as f64).collect(),
    }
}

#[cfg(test)]
mod tests {
    use trellis_wire::object::Entries;

    use super::*;

    fn record() -> Entries<MetricValue> {
        Entries::default()
    }

    fn mean(replies: Vec<Entries<MetricValue>>) -> Result<MetricRecord, Vec<String>> {
        let records: Vec<MetricRecord> = replies.into_iter().map(MetricRecord).collect();
        let replies: Vec<_> = (1..).map(NodeId).zip(&records).collect();
        weighted_mean(&replies, "num-examples")
    }

    #[test]
    fn metrics_are_weighted_by_examples() {
        let mean_metrics = mean(vec![
            record().with("loss", 1.0).with("num-examples", 30i64).with("right", 3i64).with("by-class", vec![1i64, 0]),
            record().with("num-examples", 10i64).with("loss", 3.0).with("by-class", vec![0.5, 1.0]).with("right", 5i64),
        ]);
        let expected = record().with("loss", 1.5).with("right", 3.5).with("by-class", vec![0.875, 0.25]);
        assert_eq!(mean_metrics.unwrap(), MetricRecord(expected));
        assert_eq!(mean(vec![]).unwrap(), MetricRecord::default());
        assert_eq!(
            mean(vec![record().with("num-examples", 1i64).with("none", Vec::<f64>::new())]).unwrap(),
            MetricRecord(record().with("none", Vec::<f64>::new()))
        );
    }

    #[test]
    fn mismatched_metrics_are_reported_by_node_and_name() {
        let errors = mean(vec![
            record().with("num-examples", 1i64).with("loss", 1.0).with("bins", vec![1.0, 2.0]),
            record().with("num-examples", 1i64).with("los", 1.0).with("bins", vec![1.0]),
            record().with("num-examples", 1i64).with("loss", vec![1.0]).with("bins", 4.0),
        ]);
        assert_eq!(
            errors.unwrap_err(),
            [
                "node 1 did not send los, which other nodes sent",
                "node 2 did not send loss, which other nodes sent",
                "node 3 did not send los, which other nodes sent",
                "node 2 sent bins as a list of 1, and node 1 as a list of 2",
                "node 3 sent bins as a number, and node 1 as a list of 2",
                "node 3 sent loss as a list of 1, and node 1 as a number",
            ]
        );
        for (weights, expected) in [
            (vec![MetricValue::from(0i64), MetricValue::from(0i64)], "num-examples is 0 in all replies"),
            (vec![MetricValue::from(-1.0), MetricValue::from(3.0)], "node 1 sent num-examples = -1"),
            (vec![MetricValue::from(vec![1.0]), MetricValue::from(vec![1.0])], "node 1 sent no single number"),
        ] {
            let errors = mean(weights.into_iter().map(|weight| record().with("num-examples", weight)).collect());
            assert!(errors.as_ref().unwrap_err()[0].starts_with(expected), "{errors:?}");
        }
    }
}

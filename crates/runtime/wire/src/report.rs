//! Training reports of native runs, from the ServerApp to the SuperLink and to its observers. Ids are strings and times
//! are Unix seconds, as in all calls of Trellis.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::call::{Call, Done};

/// Maximum size of a report.
pub const MAX_REPORT_BYTES: usize = 1 << 20;

/// A report. One per round and kind; a later report replaces an earlier one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TrainingReport {
    pub round: u64,
    /// `round`: after each round; `end`: after the last one, about the whole training.
    pub kind: String,
    pub strategy: String,
    pub rounds_planned: u64,
    pub started_at: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<PhaseReport>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluate: Option<PhaseReport>,
    /// L2 norm of the model update of this round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_norm: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<FindingReport>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointReport>,
    /// Privacy budget spent so far (differential privacy).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// Why the model did not change in this round, or why the training ended.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What was left out because the report would have been too long.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub left_out: String,
}

/// Training or evaluation of a round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PhaseReport {
    pub seconds: f64,
    /// Nodes that got an instruction.
    pub asked: u64,
    /// Nodes whose replies were aggregated.
    pub answered: u64,
    /// Nodes without an aggregated reply, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedNode>,
    /// Weighted means over the replies.
    #[serde(default)]
    pub metrics: BTreeMap<String, MetricReport>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum MetricReport {
    Number(f64),
    Numbers(Vec<f64>),
    /// JSON lacks non-finite numbers: `nan`, `inf`, `-inf`.
    Text(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailedNode {
    pub node: String,
    /// `error`, `rejected` (invalid reply), `late`, `unreachable` or `not-needed` (enough other replies arrived).
    pub kind: String,
    pub reason: String,
}

/// The reply of one node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClientReport {
    pub node: String,
    pub weight: f64,
    /// Time from the instruction to the reply.
    pub seconds: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_norm: Option<f64>,
    /// The strategy used the reply, for strategies that choose among replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<bool>,
    #[serde(default)]
    pub metrics: BTreeMap<String, MetricReport>,
}

/// A finding about the training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FindingReport {
    pub code: String,
    /// `info` or `warning`.
    pub severity: String,
    pub what: String,
    #[serde(default)]
    pub numbers: BTreeMap<String, f64>,
    pub advice: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckpointReport {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}

impl Call for TrainingReport {
    const NAME: &'static str = "report-training";
    type Answer = Done;
}

impl MetricReport {
    pub fn number(number: f64) -> MetricReport {
        match number {
            finite if finite.is_finite() => MetricReport::Number(finite),
            other if other.is_nan() => MetricReport::Text("nan".to_owned()),
            other => MetricReport::Text(if other > 0.0 { "inf" } else { "-inf" }.to_owned()),
        }
    }
}

impl TrainingReport {
    /// Removes details of single nodes until the report fits the limit.
    pub fn fitted(mut self) -> TrainingReport {
        let is_too_long = |report: &TrainingReport| {
            serde_json::to_vec(report).map_or(usize::MAX, |bytes| bytes.len()) > MAX_REPORT_BYTES
        };
        if !is_too_long(&self) {
            return self;
        }
        let phases = |report: &mut TrainingReport, act: fn(&mut PhaseReport)| {
            report.train.iter_mut().chain(&mut report.evaluate).for_each(act);
        };
        phases(&mut self, |phase| phase.clients.iter_mut().for_each(|client| client.metrics.clear()));
        self.left_out = "metrics of single nodes: the report would exceed 1 MiB".to_owned();
        if is_too_long(&self) {
            phases(&mut self, |phase| phase.clients.clear());
            self.left_out = "details of single nodes: the report would exceed 1 MiB".to_owned();
        }
        if is_too_long(&self) {
            phases(&mut self, |phase| {
                phase.failed.clear();
                phase.metrics.clear();
            });
            self.left_out = "metrics and failed nodes: the report would exceed 1 MiB".to_owned();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(clients: usize, metrics: usize) -> TrainingReport {
        let metrics: BTreeMap<String, MetricReport> =
            (0..metrics).map(|index| (format!("metric-{index}"), MetricReport::number(0.5))).collect();
        let client =
            |index: usize| ClientReport { node: index.to_string(), metrics: metrics.clone(), ..Default::default() };
        let phase = PhaseReport { clients: (0..clients).map(client).collect(), ..Default::default() };
        TrainingReport { train: Some(phase), ..Default::default() }
    }

    #[test]
    fn every_report_fits_the_limit() {
        for (clients, metrics, left) in [(10, 5, (10, 5)), (1000, 100, (1000, 0)), (30_000, 1, (0, 0))] {
            let fitted = report(clients, metrics).fitted();
            let phase = fitted.train.clone().unwrap();
            let most = phase.clients.iter().map(|client| client.metrics.len()).max().unwrap_or_default();
            assert_eq!((phase.clients.len(), most), left);
            assert_eq!(fitted.left_out.is_empty(), left == (clients, metrics), "the report names what was left out");
            assert!(serde_json::to_vec(&fitted).unwrap().len() <= MAX_REPORT_BYTES);
        }
    }

    #[test]
    fn non_finite_numbers_are_written_as_text() {
        let all = [1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(MetricReport::number);
        assert_eq!(serde_json::to_string(&all).unwrap(), r#"[1.5,"nan","inf","-inf"]"#);
    }
}

//! Diagnoses a training: what its rounds show, and what to try. Reads measurements only; this module knows nothing of models,
//! messages or how findings are displayed.
//!
//! Every finding rests on thresholds, which are constants with their reasons. A healthy training has no findings: permanent
//! warnings are ignored.

mod clients;
mod curves;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use trellis_core::id::NodeId;

/// The measurements of one round. Missing ones are `None` or empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Round {
    /// From 1.
    pub number: u64,
    /// Means over the clients.
    pub train_loss: Option<f64>,
    pub eval_loss: Option<f64>,
    pub eval_accuracy: Option<f64>,
    /// The L2 norm of the weighted mean of the clients' updates, before the strategy's own step.
    pub mean_update_norm: Option<f64>,
    pub clients: Vec<Client>,
    /// The number of clients that did not answer, or answered with an error.
    pub failures: usize,
    /// The nodes whose replies were rejected, and why.
    pub rejected: Vec<(NodeId, String)>,
}

/// The measurements of one client in a round.
#[derive(Debug, Clone, PartialEq)]
pub struct Client {
    pub node: NodeId,
    /// The `num-examples` of its training.
    pub examples: Option<f64>,
    /// The L2 norm of its update.
    pub update_norm: Option<f64>,
    /// On its own data, with its own model.
    pub train_loss: Option<f64>,
    /// On its own data, with the global model.
    pub eval_loss: Option<f64>,
    pub eval_accuracy: Option<f64>,
    /// The `num-examples` of its evaluation.
    pub eval_examples: Option<f64>,
    /// The number of examples with each label, if the app reports the metric `label-counts`; otherwise empty.
    pub label_counts: Vec<f64>,
}

impl Client {
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            examples: None,
            update_norm: None,
            train_loss: None,
            eval_loss: None,
            eval_accuracy: None,
            eval_examples: None,
            label_counts: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Information.
    Notice,
    /// The result will be worse than necessary.
    Warning,
    /// The training fails.
    Critical,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// A stable identifier for programs.
    pub code: &'static str,
    pub severity: Severity,
    /// The observation.
    pub what: String,
    /// The values that the finding is based on, by name.
    pub numbers: BTreeMap<String, f64>,
    /// What to try.
    pub advice: String,
}

impl Finding {
    fn new(code: &'static str, severity: Severity, what: String, numbers: &[(&str, f64)], advice: &str) -> Self {
        let numbers = numbers.iter().map(|&(name, number)| (name.to_string(), number)).collect();
        Self { code, severity, what, numbers, advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {} To do: {}", self.severity.name(), self.code, self.what, self.advice)
    }
}

/// The findings of the rounds so far, most severe first. Only conditions that hold in the last round are reported.
pub fn diagnose(history: &[Round]) -> Vec<Finding> {
    let checks = [
        curves::not_finite,
        curves::diverging,
        curves::stalled,
        clients::drift,
        clients::skewed_labels,
        clients::uneven_accuracy,
        clients::dominating,
        clients::outliers,
        clients::rejected,
        clients::failing,
    ];
    let mut findings: Vec<Finding> = checks.iter().filter_map(|check| check(history)).collect();
    findings.sort_by(|left, right| right.severity.cmp(&left.severity).then(left.code.cmp(right.code)));
    findings
}

/// A fraction as a percentage.
fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// "node 3", "nodes 3 and 7", "nodes 3, 5 and 7".
fn nodes(ids: &[NodeId]) -> String {
    let names: Vec<String> = ids.iter().map(NodeId::to_string).collect();
    match names.as_slice() {
        [one] => format!("node {one}"),
        [first @ .., last] => format!("nodes {} and {last}", first.join(", ")),
        [] => "no node".into(),
    }
}

#[cfg(test)]
mod tests;

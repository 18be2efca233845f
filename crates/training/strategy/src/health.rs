//! What is wrong with a training, in words: what its rounds show, and what to try. Reads what was measured; nothing
//! here knows of models, messages or how a finding is shown.
//!
//! Every finding rests on thresholds that are constants with their reasons. They are meant to be silent while a
//! training is well: a warning that is always there is not read.

mod clients;
mod curves;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use trellis_core::id::NodeId;

/// What was measured in one round. What was not measured is `None`, or not there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Round {
    /// From 1.
    pub number: u64,
    /// Means over the clients.
    pub train_loss: Option<f64>,
    pub eval_loss: Option<f64>,
    pub eval_accuracy: Option<f64>,
    /// The L2 norm of the weighted mean of the clients' updates, before a strategy made a step of its own of it.
    pub mean_update_norm: Option<f64>,
    pub clients: Vec<Client>,
    /// How many clients were asked and did not answer, or answered that they failed.
    pub failures: usize,
    /// Whose replies were not taken, and why.
    pub rejected: Vec<(NodeId, String)>,
}

/// What is known of one client in a round.
#[derive(Debug, Clone, PartialEq)]
pub struct Client {
    pub node: NodeId,
    /// Of its training: `num-examples`.
    pub examples: Option<f64>,
    /// The L2 norm of what it changed in the model.
    pub update_norm: Option<f64>,
    /// On its own data, with its own model.
    pub train_loss: Option<f64>,
    /// On its own data, with the global model.
    pub eval_loss: Option<f64>,
    pub eval_accuracy: Option<f64>,
    /// Of its evaluation: `num-examples`.
    pub eval_examples: Option<f64>,
    /// How many examples of each label it has, where the app tells by the metric `label-counts`; else empty.
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
    /// Worth knowing.
    Notice,
    /// The result will be worse than it could be.
    Warning,
    /// The training comes to nothing.
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
    /// What it is, for programs.
    pub code: &'static str,
    pub severity: Severity,
    /// What was seen.
    pub what: String,
    /// What it rests on, by name.
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

/// What the rounds so far show, the worst first. The last round is the present: what has passed is not told any more.
pub fn diagnose(history: &[Round]) -> Vec<Finding> {
    let looks = [
        curves::not_finite,
        curves::diverging,
        curves::stalled,
        clients::drift,
        clients::skewed_labels,
        clients::unlike,
        clients::dominating,
        clients::outliers,
        clients::rejected,
        clients::failing,
    ];
    let mut findings: Vec<Finding> = looks.iter().filter_map(|look| look(history)).collect();
    findings.sort_by(|left, right| right.severity.cmp(&left.severity).then(left.code.cmp(right.code)));
    findings
}

/// A share as people read it.
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

//! The replies of one phase of a round, for the report of the round. Bounded: means cover all replies, details a
//! limited number of clients.

use std::collections::BTreeMap;

use trellis_core::Seconds;
use trellis_core::id::NodeId;
use trellis_wire::report::{ClientReport, FailedNode, MetricReport, PhaseReport};

use super::measure::ReplyValues;
use super::round::{Asked, Mean, Phase};

/// Maximum number of clients, and of failed nodes, in a report.
const MAX_CLIENTS: usize = 1000;
/// Maximum number of metrics per client and per phase.
const MAX_METRICS: usize = 32;
/// Longer reasons are truncated.
const MAX_REASON_CHARS: usize = 500;

/// The error of a failed reply, with Flower's code and text.
#[derive(Debug, Clone, Copy)]
pub struct Failure<'a> {
    pub code: i64,
    pub reason: &'a str,
}

impl Failure<'_> {
    /// Returns the name in reports of native trainings.
    fn kind(&self) -> &'static str {
        match self.code {
            3 | 4 => "late",
            5 => "unreachable",
            _ => "error",
        }
    }
}

#[derive(Debug, Default)]
pub struct Tally {
    began_at: Option<Seconds>,
    last_at: Seconds,
    clients: Vec<ClientReport>,
    failed: Vec<FailedNode>,
    means: BTreeMap<String, Mean>,
    has_more: bool,
}

impl Tally {
    pub fn asked(&mut self, now: Seconds) {
        self.began_at.get_or_insert(now);
        self.last_at = self.last_at.max(now);
    }

    pub fn answered(&mut self, asked: Asked, reply_values: &ReplyValues, weight: Option<f64>, now: Seconds) {
        let came_at = asked.came_at.unwrap_or(now);
        self.last_at = self.last_at.max(came_at);
        let metrics: Vec<&(String, f64)> = reply_values.metrics.iter().take(MAX_METRICS).collect();
        for (name, value) in &metrics {
            if self.means.len() < MAX_METRICS || self.means.contains_key(name) {
                self.means.entry(name.clone()).or_default().add(*value, weight);
            }
        }
        if self.clients.len() == MAX_CLIENTS {
            self.has_more = true;
            return;
        }
        self.clients.push(ClientReport {
            node: asked.node.to_string(),
            weight: weight.unwrap_or(1.0),
            seconds: milliseconds(came_at - asked.at),
            metrics: metrics.into_iter().map(|(name, value)| (name.clone(), MetricReport::number(*value))).collect(),
            ..ClientReport::default()
        });
    }

    pub fn failed(&mut self, asked: Asked, failure: &Failure<'_>, now: Seconds) {
        self.last_at = self.last_at.max(asked.came_at.unwrap_or(now));
        self.name_failed(asked.node, failure.kind(), failure.reason);
    }

    fn name_failed(&mut self, node: NodeId, kind: &str, reason: &str) {
        if self.failed.len() == MAX_CLIENTS {
            self.has_more = true;
            return;
        }
        let reason = reason.chars().take(MAX_REASON_CHARS).collect();
        self.failed.push(FailedNode { node: node.to_string(), kind: kind.to_owned(), reason });
    }

    /// Returns the report of the phase so far; `is_over`: no more replies will count.
    pub fn report(&self, phase: &Phase, is_over: bool) -> PhaseReport {
        let mut partial = Tally { failed: self.failed.clone(), ..Tally::default() };
        if is_over {
            phase
                .unanswered()
                .for_each(|node| partial.name_failed(node, "late", "the ServerApp went on without its reply"));
        }
        let mean = |(name, mean): (&String, &Mean)| Some((name.clone(), MetricReport::number(mean.value()?)));
        PhaseReport {
            seconds: milliseconds(self.last_at - self.began_at.unwrap_or(self.last_at)),
            asked: phase.selected() as u64,
            answered: phase.responded() as u64,
            failed: partial.failed,
            metrics: self.means.iter().filter_map(mean).collect(),
            clients: self.clients.clone(),
        }
    }

    pub fn has_more(&self) -> bool {
        self.has_more
    }
}

fn milliseconds(seconds: f64) -> f64 {
    (seconds.max(0.0) * 1e3).round() / 1e3
}

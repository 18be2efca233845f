//! Reports of a round: as lines of the log, and as data for the SuperLink.

use std::collections::BTreeMap;

use trellis_core::id::NodeId;
use trellis_wire::report::{ClientReport, FailedNode, PhaseReport};

use crate::conduct::Conducted;
use crate::exchange::Act;
use crate::progress::{Measurement, described, reported};
use crate::round::FailureKind;
use crate::run_log::RunLog;

/// Failures per phase that the log lists; the report contains all.
const MAX_LOGGED_FAILURES: usize = 20;

/// Logs the result of a phase.
pub fn log_phase(log: &RunLog, act: Act, conducted: &Conducted, measurement: Option<&Measurement>) {
    let phase = &conducted.phase;
    let metrics = measurement.map(|measurement| described(&measurement.mean)).filter(|text| !text.is_empty());
    let metrics = metrics.map(|text| format!(": {text}")).unwrap_or_default();
    let name = act.name();
    let (good, asked, seconds) = (phase.good(), phase.asked(), conducted.seconds);
    log.info(format!("{name}: {good} of {asked} nodes answered in {seconds:.2} s{metrics}"));
    let failures: Vec<_> = phase.failures().filter(|(_, failure)| failure.kind != FailureKind::NotNeeded).collect();
    for (node, failure) in failures.iter().take(MAX_LOGGED_FAILURES) {
        log.warn(format!("{name}: node {node} {failure}"));
    }
    if failures.len() > MAX_LOGGED_FAILURES {
        log.warn(format!("{name}: and {} more nodes failed", failures.len() - MAX_LOGGED_FAILURES));
    }
}

/// A phase in the report of its round.
pub fn phase_report(
    conducted: &Conducted,
    measurement: Option<&Measurement>,
    norms: &BTreeMap<NodeId, f64>,
    chosen: Option<&[NodeId]>,
) -> PhaseReport {
    let failed = conducted.phase.failures().map(|(node, failure)| FailedNode {
        node: node.to_string(),
        kind: failure.kind.name().to_owned(),
        reason: failure.reason.clone(),
    });
    let replies = measurement.map_or(&conducted.replies, |measurement| &measurement.replies);
    let clients = replies.iter().map(|reply| ClientReport {
        node: reply.node.to_string(),
        weight: reply.weight,
        seconds: reply.seconds,
        update_norm: norms.get(&reply.node).copied().filter(|norm| norm.is_finite()),
        chosen: chosen.map(|chosen| chosen.contains(&reply.node)),
        metrics: reported(&reply.metrics),
    });
    PhaseReport {
        seconds: conducted.seconds,
        asked: conducted.phase.asked() as u64,
        answered: conducted.phase.good() as u64,
        failed: failed.collect(),
        metrics: measurement.map(|measurement| reported(&measurement.mean)).unwrap_or_default(),
        clients: clients.collect(),
    }
}

//! What is told of a round: to those who read the log, and, as data, to the SuperLink.

use std::collections::BTreeMap;

use trellis_core::id::NodeId;
use trellis_wire::report::{ClientReport, FailedNode, PhaseReport};

use crate::conduct::Conducted;
use crate::exchange::Act;
use crate::logbook::Logbook;
use crate::progress::{Measurement, described, reported};
use crate::round::FailureKind;

/// Failures of one phase that the log lists; the report has them all.
const MAX_TOLD_FAILURES: usize = 20;

/// Writes how a phase went.
pub fn log_phase(book: &Logbook, act: Act, conducted: &Conducted, measurement: Option<&Measurement>) {
    let phase = &conducted.phase;
    let metrics = measurement.map(|measurement| described(&measurement.mean)).filter(|text| !text.is_empty());
    let metrics = metrics.map(|text| format!(": {text}")).unwrap_or_default();
    let name = act.name();
    let (good, asked, seconds) = (phase.good(), phase.asked(), conducted.seconds);
    book.info(format!("{name}: {good} of {asked} nodes answered in {seconds:.2} s{metrics}"));
    let failures: Vec<_> = phase.failures().filter(|(_, failure)| failure.kind != FailureKind::NotNeeded).collect();
    for (node, failure) in failures.iter().take(MAX_TOLD_FAILURES) {
        book.warn(format!("{name}: node {node} {failure}"));
    }
    if failures.len() > MAX_TOLD_FAILURES {
        book.warn(format!("{name}: and {} more nodes failed", failures.len() - MAX_TOLD_FAILURES));
    }
}

/// A phase as the report of its round has it.
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
    let told = measurement.map_or(&conducted.told, |measurement| &measurement.told);
    let clients = told.iter().map(|told| ClientReport {
        node: told.node.to_string(),
        weight: told.weight,
        seconds: told.seconds,
        update_norm: norms.get(&told.node).copied().filter(|norm| norm.is_finite()),
        chosen: chosen.map(|chosen| chosen.contains(&told.node)),
        metrics: reported(&told.metrics),
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

//! Observation of a part, from its record, its processes and its probe.

use std::collections::BTreeMap;

use trellis_clock::now_ms;
use trellis_plan::{Addresses, Facts, Millis, Part as Role, Phase, Presence, ResourceId, Spec};

use crate::part::{Part, State};
use crate::probe::{Depth, Report};
use crate::recipe::Probe;
use crate::reconciler::note_node_id;
use crate::record::{DesiredState, Record};
use crate::shared::Shared;

/// `None` if the part was removed.
pub async fn observe(shared: &Shared, part: &Part) -> Option<Presence> {
    let (record, phase, since_ms, probe, version) = {
        let state = part.lock().await;
        if state.removed {
            return None;
        }
        let (phase, since_ms) = phase(&state);
        let probe = state.recipe.as_ref().map(|recipe| recipe.probe.clone()).filter(|_| phase == Phase::Ready);
        let version = state.recipe.as_ref().and_then(|recipe| recipe.version.clone());
        (state.record.clone(), phase, since_ms, probe, version)
    };
    let generation = record.generation();
    let facts = match probe {
        None => facts(&record, phase, since_ms, Report { version, ..Report::default() }),
        Some(probe) => {
            let report = probe.run(Depth::All).await;
            if let Some(node_id) = &report.node_id {
                note_node_id(shared, part, node_id).await;
            }
            let (phase, since_ms) = phase_after_probe(part, &record, &report, since_ms).await;
            let addresses = addresses(&record, &probe);
            let report = Report { version: report.version.clone().or(version), ..report };
            Facts { addresses, ..facts(&record, phase, since_ms, report) }
        }
    };
    Some(Presence::Present { generation, facts })
}

/// A node that does not report whether it is busy is idle if its SuperLink has no active run.
pub fn infer_idle(resources: &mut BTreeMap<ResourceId, Presence>) {
    let is_idle = |(id, presence): (&ResourceId, &Presence)| {
        id.part == Role::Coordinator && presence.facts().is_some_and(|facts| facts.runs == Some(0))
    };
    if !resources.iter().any(is_idle) {
        return;
    }
    for (_, presence) in resources.iter_mut().filter(|(id, _)| id.node_key().is_some()) {
        if let Presence::Present { facts, .. } = presence {
            facts.busy = facts.busy.or(Some(false));
        }
    }
}

/// The phase without a probe. A running part is `Ready` only if its probe succeeds, too.
fn phase(state: &State) -> (Phase, Millis) {
    let record = &state.record;
    match &state.failure {
        _ if record.desired_state == DesiredState::Deleted => (Phase::Stopping, record.since_ms),
        Some(failure) => (Phase::Failed { why: failure.why.clone() }, failure.since_ms),
        None if state.is_starting() => (Phase::Starting, record.since_ms),
        None => (Phase::Ready, state.ready_ms.unwrap_or(record.since_ms)),
    }
}

/// The phase with the result of a probe, which counts only if the instance has not changed since.
async fn phase_after_probe(part: &Part, record: &Record, report: &Report, since_ms: Millis) -> (Phase, Millis) {
    let mut state = part.lock().await;
    let same = state.record.instance == record.instance;
    if !same || state.failure.is_some() || state.record.desired_state == DesiredState::Deleted {
        return phase(&state);
    }
    match report.is_ready {
        true => {
            let ready_ms = *state.ready_ms.get_or_insert_with(now_ms);
            (Phase::Ready, report.since_ms.unwrap_or(ready_ms))
        }
        false => (Phase::Starting, report.since_ms.unwrap_or(since_ms)),
    }
}

fn facts(record: &Record, phase: Phase, since_ms: Millis, report: Report) -> Facts {
    let spec = record.desired.as_ref().map(|desired| &desired.spec);
    let program = spec.and_then(|spec| match spec {
        Spec::Coordinator(spec) => spec.program.clone(),
        Spec::Node(spec) => spec.program.clone(),
    });
    // A failed part has no work.
    let idle = matches!(phase, Phase::Failed { .. }).then_some(false);
    Facts {
        phase,
        busy: report.busy.or(idle),
        draining: report.draining,
        version: report.version.or(program),
        addresses: Addresses::default(),
        runs: report.runs,
        round_ms: None,
        required_nodes: None,
        shard: spec.and_then(Spec::shard),
        shards: spec.and_then(Spec::shards),
        node_id: report.node_id.or_else(|| record.node_id.clone()),
        since_ms,
        instance: record.instance,
        waiting_for: None,
    }
}

fn addresses(record: &Record, probe: &Probe) -> Addresses {
    let is_coordinator = matches!(record.desired.as_ref().map(|desired| &desired.spec), Some(Spec::Coordinator(_)));
    let host = match probe {
        Probe::FlowerSuperLink { addresses, .. } => return addresses.clone(),
        Probe::SuperLink { address, .. } => address.ip().to_string(),
        Probe::SuperNode { .. } | Probe::FlowerSuperNode { .. } => "127.0.0.1".to_owned(),
    };
    let address = |port: u16| (is_coordinator && port != 0).then(|| format!("{host}:{port}"));
    let ports = &record.ports;
    Addresses {
        fleet: address(ports.fleet),
        control: address(ports.control),
        app: address(ports.app),
        http: address(ports.http),
    }
}

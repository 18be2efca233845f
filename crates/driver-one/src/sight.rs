//! What is told of a part: its record, the state of its VM, and what the agent in it says of itself. Pure.

use trellis_one::keys;
use trellis_plan::{Addresses, Facts, Phase, Sighting, Spec};

use crate::memory::{Limits, Memory};
use crate::record::{Record, Wish};
use crate::view::{Life, View, VmSeen};

/// What sightings follow from, beside the record.
#[derive(Clone, Copy)]
pub struct Looked<'a> {
    pub view: &'a View,
    pub memory: &'a Memory,
    pub limits: &'a Limits,
    /// What stands in the way of everything that has no VM yet, and does not go by itself.
    pub trouble: Option<&'a str>,
    pub now_ms: u64,
}

pub fn sight(record: &Record, looked: &Looked<'_>) -> Sighting {
    let generation = record.generation();
    let vm = record.vm.and_then(|id| looked.view.vm(id));
    let phase = match (record.wish, record.vm, vm) {
        (Wish::Gone, _, _) => Ok(Phase::Stopping),
        (Wish::Running, Some(id), None) => Ok(Phase::Failed { why: format!("its VM {id} is gone") }),
        (Wish::Running, None, _) => Ok(match looked.trouble {
            Some(why) => Phase::Failed { why: why.to_owned() },
            None => Phase::Starting,
        }),
        (Wish::Running, Some(_), Some(vm)) => of_vm(record, vm, looked),
    };
    match phase {
        Err(why) => Sighting::Unknown { why },
        Ok(phase) => Sighting::Present { generation, facts: facts(record, vm, phase) },
    }
}

/// `Err`: nobody can say.
fn of_vm(record: &Record, vm: &VmSeen, looked: &Looked<'_>) -> Result<Phase, String> {
    let failed = |why: String| Ok(Phase::Failed { why });
    let machine = record.restart.as_ref().is_some_and(|restart| restart.machine);
    match vm.life {
        Life::Starts => Ok(Phase::Starting),
        Life::Stops => failed(format!("its VM {} was ended by others", vm.id)),
        Life::Unknown => Err(format!("VM {} is {}: its host does not answer", vm.id, vm.state)),
        Life::Off if machine => Ok(Phase::Starting),
        Life::Off => failed(format!("its VM {} is {}", vm.id, vm.state)),
        Life::Failed if looked.memory.is_hopeless(vm.id, looked.limits) => {
            let error = vm.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            failed(format!("its VM {} is {}{error}", vm.id, vm.state))
        }
        Life::Failed => Ok(Phase::Starting),
        Life::Runs => of_agent(record, vm, looked),
    }
}

/// What the agent says counts only while it is heard, and of what it was told last.
fn of_agent(record: &Record, vm: &VmSeen, looked: &Looked<'_>) -> Result<Phase, String> {
    if vm.attribute(keys::TRELLIS_SEEN).is_none() {
        return Ok(Phase::Starting);
    }
    if looked.memory.is_silent(vm.id, looked.limits, looked.now_ms) {
        let seconds = looked.limits.silent_ms / 1000;
        return Err(format!("the agent in VM {} has said nothing for {seconds} s", vm.id));
    }
    let generation = record.generation().map(|generation| generation.to_string());
    if vm.attribute(keys::TRELLIS_GENERATION) != generation.as_deref() {
        // It may be unable to take what it was told.
        return Ok(told_error(vm).filter(|_| !is_ready(vm)).unwrap_or(Phase::Starting));
    }
    let ended = record.restart.as_ref().and_then(|restart| restart.instance.as_deref());
    if ended.is_some() && vm.attribute(keys::TRELLIS_INSTANCE) == ended {
        return Ok(Phase::Starting);
    }
    Ok(match is_ready(vm) {
        true => Phase::Ready,
        false => told_error(vm).unwrap_or(Phase::Starting),
    })
}

fn is_ready(vm: &VmSeen) -> bool {
    vm.says(keys::READY, "YES")
}

fn told_error(vm: &VmSeen) -> Option<Phase> {
    vm.attribute(keys::FL_ERROR).map(|why| Phase::Failed { why: why.to_owned() })
}

fn facts(record: &Record, vm: Option<&VmSeen>, phase: Phase) -> Facts {
    let spec = record.desired.as_ref().map(|desired| &desired.spec);
    let said = |name: &str| vm.filter(|_| phase == Phase::Ready).and_then(|vm| vm.attribute(name));
    let is = |name: &str| match said(name) {
        Some("YES") => Some(true),
        Some("NO") => Some(false),
        _ => None,
    };
    // What does not run works on nothing.
    let idle = matches!(phase, Phase::Failed { .. }).then_some(false);
    let runs = said(keys::TRELLIS_RUNS).and_then(|runs| runs.parse().ok());
    Facts {
        busy: is(keys::TRELLIS_BUSY).or(runs.map(|runs: u32| runs > 0)).or(idle),
        draining: is(keys::TRELLIS_DRAINING) == Some(true),
        version: said(keys::FL_VERSION).map(str::to_owned).or_else(|| spec.and_then(program)),
        addresses: Addresses {
            fleet: said(keys::FL_ENDPOINT).map(str::to_owned),
            control: said(keys::TRELLIS_CONTROL).map(str::to_owned),
            app: None,
            http: said(keys::TRELLIS_HTTP).map(str::to_owned),
        },
        runs,
        round_ms: None,
        waits_for: None,
        shard: spec.and_then(Spec::shard),
        node_id: said(keys::FL_NODE_ID).map(str::to_owned),
        since_ms: record.since_ms,
        instance: record.instance,
        phase: phase.clone(),
    }
}

fn program(spec: &Spec) -> Option<String> {
    match spec {
        Spec::Coordinator(spec) => spec.program.clone(),
        Spec::Node(spec) => spec.program.clone(),
    }
}

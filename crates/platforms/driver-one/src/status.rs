//! Status of a part from its record, the state of its VM, and the report of its agent. Pure.

use trellis_one::keys;
use trellis_plan::{Addresses, Facts, Phase, Presence, Spec};

use crate::history::{History, Limits};
use crate::next::lacks_token;
use crate::record::{Record, Target};
use crate::view::{Life, View, VmView};

/// Inputs of a status beside the record.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub view: &'a View,
    pub history: &'a History,
    pub limits: &'a Limits,
    /// Why parts without a VM have failed.
    pub stuck: Option<&'a str>,
    /// Why parts without a VM or join token wait.
    pub waiting_for: Option<&'a str>,
    pub now_ms: u64,
}

pub fn status(record: &Record, inputs: &Inputs<'_>) -> Presence {
    let generation = record.generation();
    let vm = record.vm.and_then(|id| inputs.view.vm(id));
    let phase = match (record.target, record.vm, vm) {
        (Target::Gone, _, _) => Ok(Phase::Stopping),
        (Target::Running, Some(id), None) => Ok(Phase::Failed { why: format!("its VM {id} is gone") }),
        (Target::Running, None, _) => Ok(match inputs.stuck {
            Some(why) => Phase::Failed { why: why.to_owned() },
            None => Phase::Starting,
        }),
        (Target::Running, Some(_), Some(vm)) => of_vm(record, vm, inputs),
    };
    match phase {
        Err(why) => Presence::Unknown { why },
        Ok(phase) => Presence::Present { generation, facts: facts(record, vm, phase, inputs) },
    }
}

/// `Err` if the status is unknown.
fn of_vm(record: &Record, vm: &VmView, inputs: &Inputs<'_>) -> Result<Phase, String> {
    let failed = |why: String| Ok(Phase::Failed { why });
    let machine = record.restart.as_ref().is_some_and(|restart| restart.machine);
    match vm.life {
        Life::Starting => Ok(Phase::Starting),
        Life::Stopping => failed(format!("its VM {} was terminated outside of Trellis", vm.id)),
        Life::Unknown => Err(format!("VM {} is {}: its host does not respond", vm.id, vm.state)),
        Life::Off if machine => Ok(Phase::Starting),
        Life::Off => failed(format!("its VM {} is {}", vm.id, vm.state)),
        // The owner cannot retry a failed VM: the controller restarts the part, which creates a new VM.
        Life::Failed => {
            let error = vm.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            failed(format!("its VM {} is {}{error}", vm.id, vm.state))
        }
        Life::Running => of_agent(record, vm, inputs),
    }
}

/// A report of the agent counts only if it is recent and belongs to the current generation.
fn of_agent(record: &Record, vm: &VmView, inputs: &Inputs<'_>) -> Result<Phase, String> {
    if vm.attribute(keys::TRELLIS_SEEN).is_none() {
        return Ok(Phase::Starting);
    }
    if inputs.history.is_silent(vm.id, inputs.limits, inputs.now_ms) {
        let seconds = inputs.limits.silent_ms / 1000;
        return Err(format!("the agent in VM {} sent no heartbeat for {seconds} s", vm.id));
    }
    let generation = record.generation().map(|generation| generation.to_string());
    if vm.attribute(keys::TRELLIS_GENERATION) != generation.as_deref() {
        // The agent may have rejected the assignment.
        return Ok(reported_error(vm).filter(|_| !is_ready(vm)).unwrap_or(Phase::Starting));
    }
    let ended = record.restart.as_ref().and_then(|restart| restart.instance.as_deref());
    if ended.is_some() && vm.attribute(keys::TRELLIS_INSTANCE) == ended {
        return Ok(Phase::Starting);
    }
    Ok(match is_ready(vm) {
        true => Phase::Ready,
        false => reported_error(vm).unwrap_or(Phase::Starting),
    })
}

fn is_ready(vm: &VmView) -> bool {
    vm.says(keys::READY, "YES")
}

fn reported_error(vm: &VmView) -> Option<Phase> {
    let waits = |why: &&str| keys::FL_WAITS.contains(&why.split(':').next().unwrap_or(why));
    let why = vm.attribute(keys::FL_ERROR).filter(|why| !waits(why))?;
    Some(Phase::Failed { why: why.to_owned() })
}

/// Why a starting part waits, as reported by the agent or the cloud.
fn waiting_for(record: &Record, vm: Option<&VmView>, inputs: &Inputs<'_>) -> Option<String> {
    let site = || inputs.waiting_for.map(str::to_owned);
    let Some(vm) = vm else { return site() };
    let token = || if lacks_token(record) { site() } else { None };
    let agent = || vm.attribute(keys::FL_ERROR).map(str::to_owned);
    let waits = || {
        let error = vm.error.as_ref().filter(|_| vm.life == Life::Starting)?;
        Some(format!("VM {} is {}: {error}", vm.id, vm.state))
    };
    let refused = || inputs.history.error(vm.id).map(|why| format!("VM {} is {}: {why}", vm.id, vm.state));
    token().or_else(agent).or_else(waits).or_else(refused)
}

fn facts(record: &Record, vm: Option<&VmView>, phase: Phase, inputs: &Inputs<'_>) -> Facts {
    let spec = record.desired.as_ref().map(|desired| &desired.spec);
    let said = |name: &str| vm.filter(|_| phase == Phase::Ready).and_then(|vm| vm.attribute(name));
    let is = |name: &str| match said(name) {
        Some("YES") => Some(true),
        Some("NO") => Some(false),
        _ => None,
    };
    // A failed program is not busy.
    let idle = matches!(phase, Phase::Failed { .. }).then_some(false);
    let runs = said(keys::TRELLIS_RUNS).and_then(|runs| runs.parse().ok());
    Facts {
        busy: is(keys::TRELLIS_BUSY).or(runs.map(|runs: u32| runs > 0)).or(idle),
        draining: is(keys::TRELLIS_DRAINING) == Some(true),
        // Only the agent's report counts: the document's version may not run yet.
        version: said(keys::FL_VERSION).map(str::to_owned),
        addresses: Addresses {
            fleet: said(keys::FL_ENDPOINT).map(str::to_owned),
            control: said(keys::TRELLIS_CONTROL).map(str::to_owned),
            app: None,
            http: said(keys::TRELLIS_HTTP).map(str::to_owned),
        },
        runs,
        round_ms: None,
        required_nodes: None,
        shard: spec.and_then(Spec::shard),
        shards: spec.and_then(Spec::shards),
        node_id: said(keys::FL_NODE_ID).map(str::to_owned),
        since_ms: record.since_ms,
        instance: record.instance,
        waiting_for: if phase == Phase::Starting { waiting_for(record, vm, inputs) } else { None },
        phase: phase.clone(),
    }
}

#[cfg(test)]
mod tests {
    use trellis_plan::Order;

    use super::*;
    use crate::record::Restart;
    use crate::testing;

    const NOW_MS: u64 = 1_000_000_000;
    const LIMITS: Limits = Limits { silent_ms: 60_000, ..Limits::DEFAULT };

    fn record() -> Record {
        let mut record = Record::new(testing::desired("f/lab/node/cpu-0"), Order::default(), 7);
        record.vm = Some(4);
        record
    }

    fn seen(record: &Record, vm: VmView, since_ms: u64) -> Presence {
        let view = View { vms: vec![vm], ..View::default() };
        let mut history = History::default();
        history.observe(&view, &LIMITS, NOW_MS);
        let now_ms = NOW_MS + since_ms;
        let inputs = Inputs { view: &view, history: &history, limits: &LIMITS, stuck: None, waiting_for: None, now_ms };
        status(record, &inputs)
    }

    #[test]
    fn a_waiting_part_has_a_reason() {
        let view = |life, error: &str| View {
            vms: vec![VmView { life, error: Some(error.to_owned()), state: "X".to_owned(), ..testing::vm(4, &[]) }],
            ..View::default()
        };
        let history = History::default();
        let of = |record: &Record, view: &View, stuck, waiting_for| {
            let inputs = Inputs { view, history: &history, limits: &LIMITS, stuck, waiting_for, now_ms: NOW_MS };
            describe(&status(record, &inputs))
        };
        let waiting = Record { vm: None, ..record() };
        let none = View::default();
        assert_eq!(of(&waiting, &none, None, None), "starting");
        assert_eq!(of(&waiting, &none, None, Some("the quota is used up")), "starting: the quota is used up");
        assert_eq!(of(&waiting, &none, Some("no network x"), None), "failed: no network x");
        let pending = view(Life::Starting, "[HOST] Not enough MEMORY on hosts: 3");
        assert_eq!(of(&record(), &pending, None, None), "starting: VM 4 is X: [HOST] Not enough MEMORY on hosts: 3");
        let failed = view(Life::Failed, "DEPLOY: no");
        assert_eq!(of(&record(), &failed, None, None), "failed: its VM 4 is X: DEPLOY: no");
    }

    fn describe(presence: &Presence) -> String {
        match presence {
            Presence::Absent => "absent".to_owned(),
            Presence::Unknown { why } => format!("unknown: {why}"),
            Presence::Present { facts, .. } => match &facts.phase {
                Phase::Failed { why } => format!("failed: {why}"),
                phase => {
                    let waiting_for = facts.waiting_for.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                    format!("{phase:?}").to_lowercase() + &waiting_for
                }
            },
        }
    }

    #[test]
    fn ready_requires_a_recent_report_of_the_current_generation() {
        let generation = record().generation().expect("a generation").to_string();
        let generation = generation.as_str();
        let seconds = (NOW_MS / 1000).to_string();
        let fresh = (keys::TRELLIS_SEEN, seconds.as_str());
        let old = (keys::TRELLIS_SEEN, "5");
        let agent_state = (keys::TRELLIS_GENERATION, generation);
        let (yes, no) = ((keys::READY, "YES"), (keys::READY, "NO"));
        let error = (keys::FL_ERROR, "port_busy: 9092");
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[], "starting"),
            (&[yes], "starting"),
            (&[yes, fresh], "starting"),
            (&[yes, fresh, (keys::TRELLIS_GENERATION, "0000000000000001")], "starting"),
            (&[yes, fresh, agent_state], "ready"),
            (&[yes, fresh, agent_state, error], "ready"),
            (&[no, fresh, agent_state], "starting"),
            (&[no, fresh, agent_state, error], "failed: port_busy: 9092"),
            (&[no, fresh, error], "failed: port_busy: 9092"),
            (
                &[no, fresh, (keys::FL_ERROR, "discovery_timeout: no SuperLink")],
                "starting: discovery_timeout: no SuperLink",
            ),
            (&[yes, old, agent_state], "unknown: the agent in VM 4 sent no heartbeat for 60 s"),
        ];
        for (attributes, expected) in cases {
            assert_eq!(describe(&seen(&record(), testing::vm(4, attributes), 0)), *expected, "{attributes:?}");
        }
        let silent = seen(&record(), testing::vm(4, &[yes, fresh, agent_state]), 60_000);
        assert!(describe(&silent).starts_with("unknown"), "an old report does not count: {silent:?}");
    }

    #[test]
    fn a_restart_is_complete_when_another_instance_reports() {
        let generation = record().generation().expect("a generation").to_string();
        let seconds = (NOW_MS / 1000).to_string();
        let restart = Some(Restart { instance: Some("11".to_owned()), machine: false });
        let record = Record { restart, ..record() };
        for (instance, expected) in [("11", "starting"), ("12", "ready")] {
            let said = [
                (keys::READY, "YES"),
                (keys::TRELLIS_SEEN, seconds.as_str()),
                (keys::TRELLIS_GENERATION, generation.as_str()),
                (keys::TRELLIS_INSTANCE, instance),
            ];
            assert_eq!(describe(&seen(&record, testing::vm(4, &said), 0)), expected);
        }
    }

    #[test]
    fn the_state_of_the_vm_comes_first() {
        let of = |life: Life| describe(&seen(&record(), VmView { life, ..testing::vm(4, &[(keys::READY, "YES")]) }, 0));
        assert_eq!(of(Life::Starting), "starting");
        assert!(of(Life::Unknown).starts_with("unknown"));
        assert!(of(Life::Off).starts_with("failed"));
        assert!(of(Life::Failed).starts_with("failed"), "its owner cannot retry it");
        let other = seen(&record(), testing::vm(5, &[]), 0);
        assert_eq!(describe(&other), "failed: its VM 4 is gone");
        assert_eq!(describe(&seen(&Record { target: Target::Gone, ..record() }, testing::vm(4, &[]), 0)), "stopping");
    }
}

//! What is told of a part: its record, the state of its VM, and what the agent in it says of itself. Pure.

use trellis_one::keys;
use trellis_plan::{Addresses, Facts, Phase, Sighting, Spec};

use crate::memory::{Limits, Memory};
use crate::next::lacks_token;
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
    /// Why parts without a VM or join token wait.
    pub hindrance: Option<&'a str>,
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
        Ok(phase) => Sighting::Present { generation, facts: facts(record, vm, phase, looked) },
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
        // The owner cannot retry a failed VM: the controller restarts the part, which creates a new VM.
        Life::Failed => {
            let error = vm.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            failed(format!("its VM {} is {}{error}", vm.id, vm.state))
        }
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
    let waits = |why: &&str| keys::FL_WAITS.contains(&why.split(':').next().unwrap_or(why));
    let why = vm.attribute(keys::FL_ERROR).filter(|why| !waits(why))?;
    Some(Phase::Failed { why: why.to_owned() })
}

/// Why a starting part waits, as reported by the agent or the cloud.
fn hindrance(record: &Record, vm: Option<&VmSeen>, looked: &Looked<'_>) -> Option<String> {
    let site = || looked.hindrance.map(str::to_owned);
    let Some(vm) = vm else { return site() };
    let token = || if lacks_token(record) { site() } else { None };
    let agent = || vm.attribute(keys::FL_ERROR).map(str::to_owned);
    let waits = || {
        let error = vm.error.as_ref().filter(|_| vm.life == Life::Starts)?;
        Some(format!("VM {} is {}: {error}", vm.id, vm.state))
    };
    let refused = || looked.memory.refusal(vm.id).map(|why| format!("VM {} is {}: {why}", vm.id, vm.state));
    token().or_else(agent).or_else(waits).or_else(refused)
}

fn facts(record: &Record, vm: Option<&VmSeen>, phase: Phase, looked: &Looked<'_>) -> Facts {
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
        waits_for: None,
        shard: spec.and_then(Spec::shard),
        shards: spec.and_then(Spec::shards),
        node_id: said(keys::FL_NODE_ID).map(str::to_owned),
        since_ms: record.since_ms,
        instance: record.instance,
        hindrance: if phase == Phase::Starting { hindrance(record, vm, looked) } else { None },
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

    fn seen(record: &Record, vm: VmSeen, since_ms: u64) -> Sighting {
        let view = View { vms: vec![vm], ..View::default() };
        let mut memory = Memory::default();
        memory.look(&view, &LIMITS, NOW_MS);
        let now_ms = NOW_MS + since_ms;
        let looked = Looked { view: &view, memory: &memory, limits: &LIMITS, trouble: None, hindrance: None, now_ms };
        sight(record, &looked)
    }

    #[test]
    fn what_waits_says_for_what() {
        let view = |life, error: &str| View {
            vms: vec![VmSeen { life, error: Some(error.to_owned()), state: "X".to_owned(), ..testing::vm(4, &[]) }],
            ..View::default()
        };
        let memory = Memory::default();
        let of = |record: &Record, view: &View, trouble, hindrance| {
            let looked = Looked { view, memory: &memory, limits: &LIMITS, trouble, hindrance, now_ms: NOW_MS };
            word(&sight(record, &looked))
        };
        let waiting = Record { vm: None, ..record() };
        let none = View::default();
        assert_eq!(of(&waiting, &none, None, None), "starting");
        assert_eq!(of(&waiting, &none, None, Some("the quota is used up")), "starting: the quota is used up");
        assert_eq!(of(&waiting, &none, Some("no network x"), None), "failed: no network x");
        let pending = view(Life::Starts, "[HOST] Not enough MEMORY on hosts: 3");
        assert_eq!(of(&record(), &pending, None, None), "starting: VM 4 is X: [HOST] Not enough MEMORY on hosts: 3");
        let failed = view(Life::Failed, "DEPLOY: no");
        assert_eq!(of(&record(), &failed, None, None), "failed: its VM 4 is X: DEPLOY: no");
    }

    fn word(sighting: &Sighting) -> String {
        match sighting {
            Sighting::Absent => "absent".to_owned(),
            Sighting::Unknown { why } => format!("unknown: {why}"),
            Sighting::Present { facts, .. } => match &facts.phase {
                Phase::Failed { why } => format!("failed: {why}"),
                phase => {
                    let hindrance = facts.hindrance.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                    format!("{phase:?}").to_lowercase() + &hindrance
                }
            },
        }
    }

    #[test]
    fn ready_is_only_who_says_so_of_what_it_was_told_last_and_is_heard() {
        let generation = record().generation().expect("it has one").to_string();
        let generation = generation.as_str();
        let seconds = (NOW_MS / 1000).to_string();
        let fresh = (keys::TRELLIS_SEEN, seconds.as_str());
        let old = (keys::TRELLIS_SEEN, "5");
        let told = (keys::TRELLIS_GENERATION, generation);
        let (yes, no) = ((keys::READY, "YES"), (keys::READY, "NO"));
        let error = (keys::FL_ERROR, "port_busy: 9092");
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[], "starting"),
            (&[yes], "starting"),
            (&[yes, fresh], "starting"),
            (&[yes, fresh, (keys::TRELLIS_GENERATION, "0000000000000001")], "starting"),
            (&[yes, fresh, told], "ready"),
            (&[yes, fresh, told, error], "ready"),
            (&[no, fresh, told], "starting"),
            (&[no, fresh, told, error], "failed: port_busy: 9092"),
            (&[no, fresh, error], "failed: port_busy: 9092"),
            (
                &[no, fresh, (keys::FL_ERROR, "discovery_timeout: nobody is there")],
                "starting: discovery_timeout: nobody is there",
            ),
            (&[yes, old, told], "unknown: the agent in VM 4 has said nothing for 60 s"),
        ];
        for (attributes, expected) in cases {
            assert_eq!(word(&seen(&record(), testing::vm(4, attributes), 0)), *expected, "{attributes:?}");
        }
        let silent = seen(&record(), testing::vm(4, &[yes, fresh, told]), 60_000);
        assert!(word(&silent).starts_with("unknown"), "what it said long ago does not count: {silent:?}");
    }

    #[test]
    fn a_restart_is_over_when_another_instance_speaks() {
        let generation = record().generation().expect("it has one").to_string();
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
            assert_eq!(word(&seen(&record, testing::vm(4, &said), 0)), expected);
        }
    }

    #[test]
    fn the_state_of_the_vm_comes_first() {
        let of = |life: Life| word(&seen(&record(), VmSeen { life, ..testing::vm(4, &[(keys::READY, "YES")]) }, 0));
        assert_eq!(of(Life::Starts), "starting");
        assert!(of(Life::Unknown).starts_with("unknown"));
        assert!(of(Life::Off).starts_with("failed"));
        assert!(of(Life::Failed).starts_with("failed"), "its owner cannot retry it");
        let other = seen(&record(), testing::vm(5, &[]), 0);
        assert_eq!(word(&other), "failed: its VM 4 is gone");
        assert_eq!(word(&seen(&Record { wish: Wish::Gone, ..record() }, testing::vm(4, &[]), 0)), "stopping");
    }
}

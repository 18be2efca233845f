//! Simulated agents in VMs: they accept assignments, publish attributes, drain and restart.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::task::JoinHandle;
use trellis_one::keys;

use super::{Gone, Hypervisor, Machine};
use crate::cloud::{Cloud, Id, Vm};
use crate::faults::AgentFaultKind;
use crate::shared::Shared;
use crate::template::Template;

#[derive(Debug, Clone)]
pub struct PretendSettings {
    /// Delay between a start, or a new assignment, and readiness.
    pub ready_after: Duration,
    pub look_every: Duration,
    /// Heartbeat interval (`TRELLIS_SEEN`).
    pub seen_every: Duration,
    /// PEM of a SuperLink's authority.
    pub authority: String,
    pub flower_version: String,
    pub fleet_port: u16,
    pub control_port: u16,
    pub http_port: u16,
}

impl Default for PretendSettings {
    fn default() -> PretendSettings {
        PretendSettings {
            ready_after: Duration::from_millis(30),
            look_every: Duration::from_millis(15),
            seen_every: Duration::from_secs(1),
            authority: "-----BEGIN CERTIFICATE-----\ncHJldGVuZGVk\n-----END CERTIFICATE-----\n".to_owned(),
            flower_version: "1.25.0".to_owned(),
            fleet_port: 9092,
            control_port: 9093,
            http_port: 9091,
        }
    }
}

pub struct Pretend {
    settings: PretendSettings,
    shared: Weak<Shared>,
    gone: Gone,
    agents: Mutex<BTreeMap<Id, JoinHandle<()>>>,
}

impl Pretend {
    pub fn new(settings: PretendSettings, shared: &Arc<Shared>, gone: Gone) -> Pretend {
        Pretend { settings, shared: Arc::downgrade(shared), gone, agents: Mutex::new(BTreeMap::new()) }
    }

    fn begin(&self, id: Id) {
        let agent = Agent::new(id, self.settings.clone());
        let task = tokio::spawn(live(agent, self.shared.clone()));
        self.replace(id, Some(task));
    }

    fn replace(&self, id: Id, task: Option<JoinHandle<()>>) {
        let mut agents = self.agents.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let old = match task {
            Some(task) => agents.insert(id, task),
            None => agents.remove(&id),
        };
        if let Some(old) = old {
            old.abort();
        }
    }
}

impl Hypervisor for Pretend {
    fn start(&self, machine: Machine) {
        self.begin(machine.id);
    }

    fn stop(&self, vm: Id, hard: bool) {
        self.replace(vm, None);
        // An agent reports a shutdown, but not a power-off.
        if let Some(shared) = self.shared.upgrade().filter(|_| !hard) {
            shared.with(|cloud| farewell(cloud, vm));
        }
        (self.gone)(vm);
    }

    fn reboot(&self, machine: Machine) {
        if let Some(shared) = self.shared.upgrade() {
            shared.with(|cloud| farewell(cloud, machine.id));
        }
        self.begin(machine.id);
    }

    fn end(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let agents = std::mem::take(&mut *self.agents.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        agents.into_values().for_each(|agent| agent.abort());
        Box::pin(std::future::ready(()))
    }
}

fn farewell(cloud: &mut Cloud, vm: Id) {
    let Some(known) = cloud.vms.get(&vm) else { return };
    let mut said = Template::default();
    for key in [keys::READY, keys::FL_READY, keys::FL_NODE_READY] {
        if known.user_template.get(key).is_some() {
            said.set(key, "NO");
        }
    }
    // The VM exists; only existing VMs can be updated.
    let _ = cloud.update_user_template(vm, said, false, "pretend");
}

async fn live(mut agent: Agent, shared: Weak<Shared>) {
    loop {
        let Some(shared) = shared.upgrade() else { return };
        shared.with(|cloud| agent.step(cloud));
        drop(shared);
        tokio::time::sleep(agent.settings.look_every).await;
    }
}

struct Agent {
    id: Id,
    settings: PretendSettings,
    /// Instance of the simulated program.
    instance: u64,
    /// The assignment in force, as in the template.
    taken: Option<String>,
    serves_at_ms: Option<u64>,
    seen_at_ms: u64,
}

impl Agent {
    fn new(id: Id, settings: PretendSettings) -> Agent {
        Agent { id, settings, instance: 0, taken: None, serves_at_ms: None, seen_at_ms: 0 }
    }

    fn step(&mut self, cloud: &mut Cloud) {
        let Some(vm) = cloud.vms.get(&self.id).filter(|vm| vm.is_running()).cloned() else { return };
        let faults: Vec<AgentFaultKind> = cloud.faults.agent(&vm.owned.name).cloned().collect();
        if faults.contains(&AgentFaultKind::Silent) || cloud.faults.gate.refuse || cloud.faults.gate.status.is_some() {
            return;
        }
        let asked = vm.user_template.get(keys::TRELLIS_ASSIGNMENT).map(str::to_owned);
        let asked = if faults.contains(&AgentFaultKind::Deaf) { self.taken.clone() } else { asked };
        let again = vm.user_template.get(keys::TRELLIS_RESTART) == Some(&self.instance.to_string());
        if self.instance == 0 || asked != self.taken || again {
            self.taken = asked;
            self.instance = (cloud.random() >> 1) | 1;
            self.serves_at_ms = Some(cloud.now_ms + self.settings.ready_after.as_millis() as u64);
        }
        let beats = cloud.now_ms.saturating_sub(self.seen_at_ms) >= self.settings.seen_every.as_millis() as u64;
        let said = self.said(cloud, &vm, &faults);
        let news = said.0.iter().any(|(name, value)| vm.user_template.0.get(name) != Some(value));
        if !news && !beats {
            return;
        }
        self.seen_at_ms = cloud.now_ms;
        let mut said = said;
        said.set(keys::TRELLIS_SEEN, cloud.now_s());
        let mut whole = vm.user_template.clone();
        whole.merge(said);
        if !faults.iter().any(|fault| matches!(fault, AgentFaultKind::Failed(_))) {
            whole.erase(keys::FL_ERROR);
        }
        // The VM exists; only existing VMs can be updated.
        let _ = cloud.update_user_template(self.id, whole, true, "pretend");
    }

    fn said(&self, cloud: &Cloud, vm: &Vm, faults: &[AgentFaultKind]) -> Template {
        let yes = |truth: bool| if truth { "YES" } else { "NO" };
        let mut said = Template::default();
        let failed = faults.iter().find_map(|fault| match fault {
            AgentFaultKind::Failed(why) => Some(why),
            _ => None,
        });
        let assignment = self.taken.as_deref().and_then(|text| keys::Assignment::from_attribute(text).ok());
        let started = self.serves_at_ms.is_some_and(|at_ms| at_ms <= cloud.now_ms) && failed.is_none();
        let role = vm.role().unwrap_or("supernode");
        let address = vm.address().unwrap_or("127.0.0.1");
        let at = |port: u16| format!("{address}:{port}");
        let serves = if role.starts_with("superlink") {
            said.set(keys::FL_ROLE, "superlink");
            said.set(keys::FL_READY, yes(started));
            said.set(keys::FL_TLS, "YES");
            said.set(keys::FL_ENDPOINT, at(self.settings.fleet_port));
            said.set(keys::TRELLIS_CONTROL, at(self.settings.control_port));
            said.set(keys::TRELLIS_HTTP, at(self.settings.http_port));
            said.set(keys::FL_CA_CERT, STANDARD.encode(&self.settings.authority));
            let runs = faults.iter().find_map(|fault| match fault {
                AgentFaultKind::Runs(runs) => Some(*runs),
                _ => None,
            });
            said.set(keys::TRELLIS_RUNS, runs.unwrap_or(0));
            started
        } else if role.starts_with("gateway") {
            said.set(keys::FL_ROLE, "gateway");
            started
        } else {
            let told = assignment.as_ref().is_some_and(|given| given.settings.contains_key("FL_SUPERLINK_ADDRESS"));
            let connected = started && (told || coordinator_serves(cloud, vm));
            said.set(keys::FL_ROLE, "supernode");
            said.set(keys::FL_NODE_READY, yes(connected));
            said.set(keys::FL_NODE_ID, self.instance);
            connected
        };
        said.set(keys::READY, yes(serves));
        said.set(keys::FL_VERSION, &self.settings.flower_version);
        said.set(keys::TRELLIS_INSTANCE, self.instance);
        said.set(keys::TRELLIS_BUSY, yes(faults.contains(&AgentFaultKind::Busy)));
        said.set(keys::TRELLIS_DRAINING, yes(vm.user_template.get(keys::TRELLIS_DRAIN) == Some("YES")));
        if let Some(given) = assignment.filter(|_| started) {
            said.set(keys::TRELLIS_GENERATION, given.generation);
        }
        if let Some(why) = failed {
            said.set(keys::FL_ERROR, why);
        }
        said
    }
}

fn coordinator_serves(cloud: &Cloud, vm: &Vm) -> bool {
    let mates = cloud.vms.values().filter(|other| other.service().is_some() && other.service() == vm.service());
    mates.filter(|other| other.is_running()).any(|other| other.user_template.get(keys::FL_READY) == Some("YES"))
}

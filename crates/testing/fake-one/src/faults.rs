//! Faults that tests inject. The servers check them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    pub gate: GateFaults,
    /// oned rejects calls.
    pub refusals: Vec<Refusal>,
    /// The call is executed, but the connection is closed before the response.
    pub lost_answers: Vec<LostAnswer>,
    pub boot_failures: Vec<BootFailure>,
    /// Images whose names contain one of these end in ERROR.
    pub images_in_error: Vec<String>,
    /// VMs that the scheduler cannot place.
    pub unplaced: Vec<Unplaced>,
    /// Delayed responses.
    pub slow: Vec<SlowAnswer>,
    /// Faults of simulated agents.
    pub agents: Vec<AgentFault>,
    /// Time does not advance the state.
    pub frozen: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GateFaults {
    /// Status of every response: 401 or 500.
    pub status: Option<u16>,
    /// Delay of every response.
    pub slow_ms: u64,
    /// `/service` returns VMs and states of the time when this was set.
    pub stale: bool,
    /// Connections are closed at once.
    pub refuse: bool,
    /// No other VM belongs to the same service.
    pub foreign: bool,
    /// Offset of OneGate's clock in seconds.
    pub date_offset_s: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// `one.vm.update`, or `*`.
    pub method: String,
    pub code: i32,
    /// Message after `[method] `.
    pub message: String,
    /// Number of times; unlimited if absent.
    #[serde(default)]
    pub times: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LostAnswer {
    pub server: Server,
    /// Substring of the method's name, or of `POST /service/7/scale`.
    pub matching: String,
    #[serde(default)]
    pub times: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Server {
    Oned,
    Flow,
    Gate,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootFailure {
    /// Substring of the VM's name; empty: any.
    pub matching: String,
    #[serde(default)]
    pub times: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unplaced {
    /// Substring of the VM's name; empty: any.
    pub matching: String,
    /// `[HOST] Not enough MEMORY on hosts: 3`
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowAnswer {
    pub server: Server,
    /// Substring of the method's name, or of `GET /service`; empty: any.
    pub matching: String,
    pub delay_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentFault {
    /// Substring of the VM's name; empty: any.
    pub matching: String,
    pub kind: AgentFaultKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentFaultKind {
    /// Stops all updates.
    Silent,
    /// READY stays or becomes NO, with this FL_ERROR.
    Failed(String),
    /// An instruction is running.
    Busy,
    /// The agent ignores the assignment.
    Deaf,
    /// SuperLink: number of active runs.
    Runs(u32),
}

/// Consumes one of the remaining times; `None` is unlimited.
fn spend(times: &mut Option<u32>) -> bool {
    match times {
        None => true,
        Some(0) => false,
        Some(left) => {
            *left -= 1;
            true
        }
    }
}

impl Faults {
    pub fn takes_boot(&mut self, vm: &str) -> bool {
        self.boot_failures.iter_mut().any(|fault| vm.contains(&fault.matching) && spend(&mut fault.times))
    }

    pub fn unplaced(&self, vm: &str) -> Option<String> {
        self.unplaced.iter().find(|fault| vm.contains(&fault.matching)).map(|fault| fault.why.clone())
    }

    pub fn delay(&self, server: Server, request: &str) -> Duration {
        let fits = |fault: &&SlowAnswer| fault.server == server && request.contains(&fault.matching);
        let delay_ms = self.slow.iter().filter(fits).map(|fault| fault.delay_ms).max();
        Duration::from_millis(delay_ms.unwrap_or(0))
    }

    pub fn agent(&self, vm: &str) -> impl Iterator<Item = &AgentFaultKind> {
        self.agents.iter().filter(move |fault| vm.contains(&fault.matching)).map(|fault| &fault.kind)
    }

    pub fn takes_answer(&mut self, server: Server, request: &str) -> bool {
        let fits = |fault: &LostAnswer| fault.server == server && request.contains(&fault.matching);
        self.lost_answers.iter_mut().any(|fault| fits(fault) && spend(&mut fault.times))
    }

    pub fn refusal(&mut self, method: &str) -> Option<(i32, String)> {
        let fits = |fault: &Refusal| fault.method == method || fault.method == "*";
        let found = self.refusals.iter_mut().find(|fault| fits(fault) && fault.times != Some(0))?;
        spend(&mut found.times);
        Some((found.code, found.message.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_run_out() {
        let text = r#"{"boot_failures": [{"matching": "node", "times": 2}],
                       "lost_answers": [{"server": "oned", "matching": "instantiate", "times": 1}],
                       "refusals": [{"method": "one.vm.update", "code": 512, "message": "no"}]}"#;
        let mut faults: Faults = serde_json::from_str(text).expect("it is understood");
        assert_eq!(["x", "node_1", "node_2", "node_3"].map(|vm| faults.takes_boot(vm)), [false, true, true, false]);
        let mut lost = |server| faults.takes_answer(server, "one.template.instantiate");
        assert_eq!([lost(Server::Flow), lost(Server::Oned), lost(Server::Oned)], [false, true, false]);
        assert!(faults.refusal("one.vm.update").is_some() && faults.refusal("one.vm.info").is_none());
        assert!(serde_json::from_str::<Faults>(r#"{"nope": 1}"#).is_err());
    }
}

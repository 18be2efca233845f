//! Durable record of a part, written before the driver acts on it. The mark on a VM is the source for the assignment of VMs
//! to parts; the record only caches it.

use serde::{Deserialize, Serialize};
use trellis_one::keys;
use trellis_plan::{Action, Desired, Generation, Millis, Order, Outcome, ResourceId, Verb};

use crate::render::context::JOIN_TOKEN;
use crate::render::{labels, shape};
use crate::view::VmView;

/// Format version of a record. A part with a record of a later version is unknown.
pub const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    pub id: ResourceId,
    /// `None` if the VM was found without a record.
    pub desired: Option<Desired>,
    /// Generation of a VM that was found.
    pub found: Option<Generation>,
    /// Shape label of the VM that was found without a record.
    #[serde(default)]
    pub found_shape: Option<String>,
    /// The last order that was accepted.
    pub order: Order,
    #[serde(rename = "wish")]
    pub target: Target,
    /// Changes with each requested start.
    pub instance: u64,
    pub since_ms: Millis,
    /// The VM of the part, once its mark was observed.
    pub vm: Option<u32>,
    /// Former VMs of the part, which must be terminated.
    pub abandoned: Vec<u32>,
    /// A requested restart that is not complete.
    pub restart: Option<Restart>,
    pub draining: bool,
    /// Join token of the node, if the federation requires enrolment.
    pub join_token: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// Instance to restart, as reported by the agent.
    pub instance: Option<String>,
    /// The VM is off, and was not resumed yet.
    pub machine: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    Running,
    Gone,
}

/// State of the agent and its VM at a restart order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentState {
    pub instance: Option<String>,
    pub runs: bool,
    /// The VM is gone or failed: its owner can only replace it.
    pub lost: bool,
}

/// Result of an order.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    pub record: Record,
    pub outcome: Outcome,
}

impl Record {
    pub fn new(desired: Desired, order: Order, now_ms: Millis) -> Record {
        Record {
            version: VERSION,
            id: desired.id.clone(),
            desired: Some(desired),
            found: None,
            found_shape: None,
            order,
            target: Target::Running,
            instance: now_ms,
            since_ms: now_ms,
            vm: None,
            abandoned: Vec::new(),
            restart: None,
            draining: false,
            join_token: None,
        }
    }

    /// Record of a VM with our label but without a record. The VM's assignment is the only source.
    pub fn found(id: ResourceId, vm: &VmView, now_ms: Millis) -> Record {
        let agent_state = vm.assignment();
        Record {
            version: VERSION,
            id,
            desired: None,
            found: agent_state
                .as_ref()
                .and_then(|agent_state| Generation::try_from(agent_state.generation.clone()).ok()),
            found_shape: vm.attribute(labels::SHAPE).map(str::to_owned),
            order: Order::default(),
            target: Target::Running,
            instance: now_ms,
            since_ms: now_ms,
            vm: Some(vm.id),
            abandoned: Vec::new(),
            restart: None,
            draining: vm.says(keys::TRELLIS_DRAIN, "YES"),
            join_token: agent_state.and_then(|agent_state| agent_state.settings.get(JOIN_TOKEN).cloned()),
        }
    }

    /// Adopts the desired state of the document if the VM runs the same generation.
    pub fn adopt(&mut self, document: &Desired) {
        if self.desired.is_none() && self.found == Some(document.generation) {
            self.desired = Some(document.clone());
            self.found = None;
        }
    }

    pub fn generation(&self) -> Option<Generation> {
        self.desired.as_ref().map(|desired| desired.generation).or(self.found)
    }

    pub fn is_wanted(&self) -> bool {
        self.target == Target::Running
    }

    /// Applies an order to an existing part. `Err` if the order is refused.
    pub fn apply(&self, action: &Action, agent_state: &AgentState, now_ms: Millis) -> Result<Applied, Outcome> {
        if let Some(refused) = action.order.too_late(&self.order) {
            return Err(refused);
        }
        let gone = self.target == Target::Gone;
        let order = action.order;
        match &action.verb {
            Verb::Delete { .. } => {
                let since_ms = if gone { self.since_ms } else { now_ms };
                Ok(started(Record { target: Target::Gone, order, since_ms, ..self.clone() }))
            }
            _ if gone => Err(refused("the part is still stopping")),
            Verb::Create(desired) if self.generation() != Some(desired.generation) => {
                Err(refused("the part has another generation"))
            }
            Verb::Create(desired) => Ok(self.known(desired, order)),
            Verb::Replace(desired) if self.generation() == Some(desired.generation) => Ok(self.known(desired, order)),
            Verb::Replace(desired) => Ok(started(self.replaced(desired, order, now_ms))),
            Verb::Restart { instance, .. } if self.instance != *instance => Ok(self.nothing(order)),
            Verb::Restart { generation, .. } if self.generation() != Some(*generation) => {
                Err(refused("the part has another generation"))
            }
            Verb::Restart { .. } => Ok(started(self.restarted(agent_state, order, now_ms))),
            Verb::Drain { .. } if self.id.node_key().is_none() => {
                Err(Outcome::Refused { why: "a coordinator cannot be drained".to_owned(), retry: false })
            }
            Verb::Drain { .. } if self.vm.is_none() => Err(refused("the part has not started yet")),
            Verb::Drain { .. } => Ok(started(Record { draining: true, order, ..self.clone() })),
        }
    }

    /// The part has the desired state, or is about to. A record that was found adopts the document's state.
    fn known(&self, desired: &Desired, order: Order) -> Applied {
        let record = Record { desired: Some(desired.clone()), found: None, ..self.clone() };
        record.nothing(order)
    }

    fn nothing(&self, order: Order) -> Applied {
        let outcome = if self.vm.is_some() { Outcome::Done } else { Outcome::Started };
        Applied { record: Record { order, ..self.clone() }, outcome }
    }

    /// Replaces the desired state, in the same VM if its shape fits.
    fn replaced(&self, desired: &Desired, order: Order, now_ms: Millis) -> Record {
        let old_shape = self.desired.as_ref().map(|old| shape(&old.spec)).or_else(|| self.found_shape.clone());
        let same = old_shape == Some(shape(&desired.spec));
        let mut record = self.again(order, now_ms);
        record.desired = Some(desired.clone());
        record.found = None;
        record.draining = false;
        if !same {
            record.leave();
        }
        record
    }

    fn restarted(&self, agent_state: &AgentState, order: Order, now_ms: Millis) -> Record {
        let mut record = self.again(order, now_ms);
        record.draining = false;
        match (self.vm, agent_state) {
            (_, AgentState { lost: true, .. }) => record.leave(),
            (Some(_), agent_state) => {
                record.restart = Some(Restart { instance: agent_state.instance.clone(), machine: !agent_state.runs })
            }
            (None, _) => {}
        }
        record
    }

    fn again(&self, order: Order, now_ms: Millis) -> Record {
        let instance = now_ms.max(self.instance + 1);
        Record { order, instance, since_ms: now_ms, restart: None, ..self.clone() }
    }

    /// Abandons the VM.
    fn leave(&mut self) {
        self.abandoned.extend(self.vm.take());
        // The VM used its token.
        self.join_token = None;
    }
}

fn started(record: Record) -> Applied {
    Applied { record, outcome: Outcome::Started }
}

fn refused(why: &str) -> Outcome {
    Outcome::Refused { why: why.to_owned(), retry: true }
}

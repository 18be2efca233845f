//! What is kept of a part, on disk before anything is done: whoever opens the driver next knows what was begun. Which VM is
//! which part is said by the mark on the VM; the record only remembers that it was seen.

use serde::{Deserialize, Serialize};
use trellis_one::keys;
use trellis_plan::{Action, Desired, Generation, Millis, Order, Outcome, ResourceId, Verb};

use crate::render::context::JOIN_TOKEN;
use crate::render::{labels, shape};
use crate::view::VmSeen;

/// Of the form of a record. A later one is not understood, and its part is unknown.
pub const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    pub id: ResourceId,
    /// `None`: its VM was found, and nobody knows what it was to be.
    pub desired: Option<Desired>,
    /// Of what was found.
    pub found: Option<Generation>,
    /// Shape label of the VM that was found without a record.
    #[serde(default)]
    pub found_shape: Option<String>,
    /// The latest that was carried out.
    pub order: Order,
    pub wish: Wish,
    /// Another number for each time that it was to be started.
    pub instance: u64,
    pub since_ms: Millis,
    /// Its VM, once the mark was seen on it.
    pub vm: Option<u32>,
    /// VMs that were its own, and must go.
    pub abandoned: Vec<u32>,
    /// How often it was to be started again, and what the agent called the instance that shall end, if it said.
    pub restart: Option<Restart>,
    pub draining: bool,
    /// What the node joins with, where only known nodes take part.
    pub join_token: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// What the agent called the instance that shall end.
    pub instance: Option<String>,
    /// The VM itself does not run, and was not resumed or retried yet.
    pub machine: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wish {
    Running,
    Gone,
}

/// What an agent said of itself when somebody asked for a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    pub instance: Option<String>,
    pub runs: bool,
    /// The VM is gone or failed: its owner can only replace it.
    pub lost: bool,
}

/// What an order makes of a record.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
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
            wish: Wish::Running,
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
    pub fn found(id: ResourceId, vm: &VmSeen, now_ms: Millis) -> Record {
        let told = vm.assignment();
        Record {
            version: VERSION,
            id,
            desired: None,
            found: told.as_ref().and_then(|told| Generation::try_from(told.generation.clone()).ok()),
            found_shape: vm.attribute(labels::SHAPE).map(str::to_owned),
            order: Order::default(),
            wish: Wish::Running,
            instance: now_ms,
            since_ms: now_ms,
            vm: Some(vm.id),
            abandoned: Vec::new(),
            restart: None,
            draining: vm.says(keys::TRELLIS_DRAIN, "YES"),
            join_token: told.and_then(|told| told.settings.get(JOIN_TOKEN).cloned()),
        }
    }

    /// Adopts the desired state of the document if the VM runs the same generation.
    pub fn adopt(&mut self, heard: &Desired) {
        if self.desired.is_none() && self.found == Some(heard.generation) {
            self.desired = Some(heard.clone());
            self.found = None;
        }
    }

    pub fn generation(&self) -> Option<Generation> {
        self.desired.as_ref().map(|desired| desired.generation).or(self.found)
    }

    pub fn is_wanted(&self) -> bool {
        self.wish == Wish::Running
    }

    /// Takes an order for a part that is there. `Err`: it is refused, and nothing changes.
    pub fn apply(&self, action: &Action, told: &Told, now_ms: Millis) -> Result<Turn, Outcome> {
        if let Some(refused) = action.order.too_late(&self.order) {
            return Err(refused);
        }
        let gone = self.wish == Wish::Gone;
        let order = action.order;
        match &action.verb {
            Verb::Delete { .. } => {
                let since_ms = if gone { self.since_ms } else { now_ms };
                Ok(started(Record { wish: Wish::Gone, order, since_ms, ..self.clone() }))
            }
            _ if gone => Err(refused("it still stops")),
            Verb::Create(desired) if self.generation() != Some(desired.generation) => {
                Err(refused("another generation is there"))
            }
            Verb::Create(desired) => Ok(self.known(desired, order)),
            Verb::Replace(desired) if self.generation() == Some(desired.generation) => Ok(self.known(desired, order)),
            Verb::Replace(desired) => Ok(started(self.replaced(desired, order, now_ms))),
            Verb::Restart { instance, .. } if self.instance != *instance => Ok(self.nothing(order)),
            Verb::Restart { generation, .. } if self.generation() != Some(*generation) => {
                Err(refused("another generation is there"))
            }
            Verb::Restart { .. } => Ok(started(self.restarted(told, order, now_ms))),
            Verb::Drain { .. } if self.id.node_key().is_none() => {
                Err(Outcome::Refused { why: "a coordinator has no work of its own to finish".to_owned(), retry: false })
            }
            Verb::Drain { .. } if self.vm.is_none() => Err(refused("it has not started yet")),
            Verb::Drain { .. } => Ok(started(Record { draining: true, order, ..self.clone() })),
        }
    }

    /// It is as it was asked to be, or on its way; what was found is known from now on.
    fn known(&self, desired: &Desired, order: Order) -> Turn {
        let record = Record { desired: Some(desired.clone()), found: None, ..self.clone() };
        record.nothing(order)
    }

    fn nothing(&self, order: Order) -> Turn {
        let outcome = if self.vm.is_some() { Outcome::Done } else { Outcome::Started };
        Turn { record: Record { order, ..self.clone() }, outcome }
    }

    /// Another thing to run: in the same VM if that can hold it.
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

    fn restarted(&self, told: &Told, order: Order, now_ms: Millis) -> Record {
        let mut record = self.again(order, now_ms);
        record.draining = false;
        match (self.vm, told) {
            (_, Told { lost: true, .. }) => record.leave(),
            (Some(_), told) => record.restart = Some(Restart { instance: told.instance.clone(), machine: !told.runs }),
            (None, _) => {}
        }
        record
    }

    fn again(&self, order: Order, now_ms: Millis) -> Record {
        let instance = now_ms.max(self.instance + 1);
        Record { order, instance, since_ms: now_ms, restart: None, ..self.clone() }
    }

    /// Its VM is its own no longer.
    fn leave(&mut self) {
        self.abandoned.extend(self.vm.take());
        // It was used.
        self.join_token = None;
    }
}

fn started(record: Record) -> Turn {
    Turn { record, outcome: Outcome::Started }
}

fn refused(why: &str) -> Outcome {
    Outcome::Refused { why: why.to_owned(), retry: true }
}

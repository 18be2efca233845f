//! A role of a service: VMs and JSON form.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Id;
use crate::template::{Template, text_of};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleState {
    Pending = 0,
    Deploying = 1,
    Running = 2,
    Undeploying = 3,
    Warning = 4,
    Done = 5,
    FailedUndeploying = 6,
    FailedDeploying = 7,
    Scaling = 8,
    FailedScaling = 9,
    Cooldown = 10,
    Hold = 11,
}

#[derive(Debug, Clone)]
pub struct Node {
    pub vm: Id,
    /// A VM as OneFlow stored it at its creation.
    pub info: Value,
}

#[derive(Debug, Clone)]
pub struct Role {
    pub name: String,
    /// As the caller gave it, with OneFlow's defaults.
    pub body: Map<String, Value>,
    pub state: RoleState,
    pub cardinality: i64,
    /// `None` until the first evaluation.
    pub nodes: Option<Vec<Node>>,
    pub last_vmname: Option<u64>,
    pub scale_way: Option<ScaleWay>,
    pub cooldown_until_ms: u64,
    /// Cooldown of the policy that caused the last change.
    pub cooldown_asked_s: Option<u64>,
    /// VMs that are being removed.
    pub leaving: Vec<Id>,
    /// VMs that must run before the deployment or scaling of the role is complete; `None` if OneFlow waits for none.
    pub awaited: Option<Vec<Id>>,
    /// The last condition of each VM that the watchdog processed: it acts on changes, not on states.
    pub noticed: BTreeMap<Id, Condition>,
}

/// VM states as the watchdog classifies them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Running,
    /// POWEROFF, UNKNOWN, or a failure.
    Faulty,
    Done,
    /// Ignored.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleWay {
    Up = 0,
    Down = 1,
}

/// Default cooldown in seconds.
pub const COOLDOWN_S: u64 = 300;

impl Role {
    pub fn new(body: Map<String, Value>) -> Role {
        Role {
            name: body.get("name").map(text_of).unwrap_or_default(),
            cardinality: integer(&body, "cardinality").unwrap_or(0),
            body,
            state: RoleState::Pending,
            nodes: None,
            last_vmname: None,
            scale_way: None,
            cooldown_until_ms: 0,
            cooldown_asked_s: None,
            leaving: Vec::new(),
            awaited: None,
            noticed: BTreeMap::new(),
        }
    }

    pub fn to_json(&self) -> Value {
        let mut body = self.body.clone();
        body.insert("cardinality".to_owned(), json!(self.cardinality));
        body.insert("state".to_owned(), json!(self.state as i64));
        if let Some(nodes) = &self.nodes {
            let nodes: Vec<Value> =
                nodes.iter().map(|node| json!({"deploy_id": node.vm, "vm_info": {"VM": node.info}})).collect();
            body.insert("nodes".to_owned(), Value::Array(nodes));
        }
        if let Some(last) = self.last_vmname {
            body.insert("last_vmname".to_owned(), json!(last));
        }
        if let Some(way) = self.scale_way {
            body.insert("scale_way".to_owned(), json!(way as i64));
        }
        Value::Object(body)
    }

    pub fn vms(&self) -> Vec<Id> {
        self.nodes.iter().flatten().map(|node| node.vm).collect()
    }

    pub fn parents(&self) -> Vec<String> {
        match self.body.get("parents") {
            Some(Value::Array(parents)) => parents.iter().map(text_of).collect(),
            _ => Vec::new(),
        }
    }

    pub fn template_id(&self) -> Id {
        integer(&self.body, "template_id").or_else(|| integer(&self.body, "vm_template")).unwrap_or(-1)
    }

    pub fn minimum(&self) -> Option<i64> {
        integer(&self.body, "min_vms")
    }

    pub fn maximum(&self) -> Option<i64> {
        integer(&self.body, "max_vms")
    }

    pub fn cooldown_s(&self) -> u64 {
        integer(&self.body, "cooldown").and_then(|s| s.try_into().ok()).unwrap_or(COOLDOWN_S)
    }

    pub fn on_hold(&self) -> bool {
        self.body.get("on_hold") == Some(&Value::Bool(true))
    }

    pub fn shutdown_action(&self) -> Option<String> {
        self.body.get("shutdown_action").map(text_of)
    }

    /// Additions to the VM template: an object since 7.0, text before.
    pub fn contents(&self) -> Template {
        match (self.body.get("template_contents"), self.body.get("vm_template_contents")) {
            (Some(Value::Object(contents)), _) => Template::from_json(contents),
            (_, Some(Value::String(text))) => Template::parse(text).unwrap_or_default(),
            _ => Template::default(),
        }
    }

    pub fn fill_defaults(&mut self, held: bool) {
        self.nodes.get_or_insert_default();
        self.body.entry("on_hold").or_insert(json!(held));
        self.body.entry("cooldown").or_insert(json!(COOLDOWN_S));
    }

    pub fn is_deploying(&self) -> bool {
        matches!(self.state, RoleState::Deploying | RoleState::FailedDeploying)
    }

    pub fn is_scaling(&self) -> bool {
        matches!(self.state, RoleState::Scaling | RoleState::FailedScaling)
    }

    pub fn forget(&mut self, gone: &[Id]) {
        if let Some(nodes) = &mut self.nodes {
            nodes.retain(|node| !gone.contains(&node.vm));
        }
    }
}

/// A number, or a text with a number.
pub fn integer(object: &Map<String, Value>, key: &str) -> Option<i64> {
    match object.get(key)? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

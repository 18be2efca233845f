//! Service descriptions: the JSON of OneFlow 7, and that of version 6. `lint` validates them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::template::{self, Template};

/// JSON dialect of OneFlow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowVersion {
    V6,
    V7,
}

impl FlowVersion {
    /// Derives the dialect from the result of `system.version`.
    pub fn of(version: &str) -> Result<FlowVersion, String> {
        match version.trim().split('.').next().and_then(|major| major.parse::<u32>().ok()) {
            Some(6) => Ok(FlowVersion::V6),
            Some(major) if major >= 7 => Ok(FlowVersion::V7),
            Some(_) => Err(format!("OpenNebula {version} is too old: 6.0 is the first whose OneFlow can be used")),
            None => Err(format!("{version:?} is not a version of OpenNebula")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deployment {
    /// Deploys all roles at once.
    None,
    /// Deploys a role when its parents run.
    #[default]
    Straight,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownAction {
    Terminate,
    TerminateHard,
}

impl ShutdownAction {
    fn name(self) -> &'static str {
        match self {
            ShutdownAction::Terminate => "terminate",
            ShutdownAction::TerminateHard => "terminate-hard",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceTemplate {
    pub name: String,
    pub description: String,
    pub deployment: Deployment,
    pub shutdown_action: Option<ShutdownAction>,
    /// A role runs when all its VMs report READY.
    pub ready_status_gate: bool,
    pub automatic_deletion: bool,
    /// `M|type|description|options|default` by key.
    pub user_inputs: BTreeMap<String, String>,
    /// `M|network|description||id:0` by name.
    pub networks: BTreeMap<String, String>,
    pub roles: Vec<RoleTemplate>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RoleKind {
    #[default]
    Vm,
    VirtualRouter,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoleTemplate {
    pub name: String,
    pub kind: RoleKind,
    pub cardinality: u32,
    pub template_id: i32,
    /// Name of the VM template, if it is known. It is not sent, but the length of all names is limited.
    pub template_name: Option<String>,
    /// Merged into the VM template.
    pub template_contents: Template,
    pub user_inputs: BTreeMap<String, String>,
    pub parents: Vec<String>,
    pub shutdown_action: Option<ShutdownAction>,
    pub min_vms: Option<u32>,
    pub max_vms: Option<u32>,
    pub cooldown_s: Option<u32>,
    pub elasticity_policies: Vec<ElasticityPolicy>,
    pub scheduled_policies: Vec<ScheduledPolicy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adjustment {
    /// Change by a number of VMs.
    Change(i32),
    /// Change to a number of VMs.
    Cardinality(u32),
    /// Change by a percentage, with a minimum number of VMs.
    Percentage { percent: i32, min_step: Option<u32> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElasticityPolicy {
    pub adjustment: Adjustment,
    /// `FL_CLIENT_STATUS > 1 && CPU > 90`
    pub expression: String,
    /// How often in a row the expression must be true, and the interval in seconds.
    pub period_number: Option<u32>,
    pub period_s: Option<u32>,
    pub cooldown_s: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledPolicy {
    pub adjustment: Adjustment,
    pub when: When,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// Seconds since 1970.
    Once(u64),
    /// Five fields of cron.
    Recurring(String),
}

impl ServiceTemplate {
    /// Encodes the description. Does not validate it.
    pub fn render(&self, version: FlowVersion) -> Value {
        let mut body = Map::new();
        body.insert("name".into(), json!(self.name));
        let deployment = match self.deployment {
            Deployment::None => "none",
            Deployment::Straight => "straight",
        };
        body.insert("deployment".into(), json!(deployment));
        body.insert("description".into(), json!(self.description));
        if let Some(action) = self.shutdown_action {
            body.insert("shutdown_action".into(), json!(action.name()));
        }
        body.insert("ready_status_gate".into(), json!(self.ready_status_gate));
        body.insert("automatic_deletion".into(), json!(self.automatic_deletion));
        insert_inputs(&mut body, &self.user_inputs, version);
        if !self.networks.is_empty() {
            body.insert("networks".into(), json!(self.networks));
        }
        body.insert("roles".into(), self.roles.iter().map(|role| role.render(version)).collect());
        Value::Object(body)
    }
}

impl RoleTemplate {
    pub fn render(&self, version: FlowVersion) -> Value {
        let mut body = Map::new();
        body.insert("name".into(), json!(self.name));
        body.insert("cardinality".into(), json!(self.cardinality));
        match version {
            FlowVersion::V7 => {
                let kind = if self.kind == RoleKind::Vm { "vm" } else { "vr" };
                body.insert("type".into(), json!(kind));
                body.insert("template_id".into(), json!(self.template_id));
                if !self.template_contents.0.is_empty() {
                    body.insert("template_contents".into(), contents(&self.template_contents));
                }
            }
            FlowVersion::V6 => {
                body.insert("vm_template".into(), json!(self.template_id));
                if !self.template_contents.0.is_empty() {
                    body.insert("vm_template_contents".into(), json!(self.template_contents.to_text()));
                }
            }
        }
        insert_inputs(&mut body, &self.user_inputs, version);
        if !self.parents.is_empty() {
            body.insert("parents".into(), json!(self.parents));
        }
        if let Some(action) = self.shutdown_action {
            body.insert("shutdown_action".into(), json!(action.name()));
        }
        for (key, value) in [("min_vms", self.min_vms), ("max_vms", self.max_vms), ("cooldown", self.cooldown_s)] {
            insert_number(&mut body, key, value);
        }
        if self.kind == RoleKind::Vm {
            let elasticity = self.elasticity_policies.iter().map(ElasticityPolicy::render);
            body.insert("elasticity_policies".into(), elasticity.collect());
            let scheduled = self.scheduled_policies.iter().map(ScheduledPolicy::render);
            body.insert("scheduled_policies".into(), scheduled.collect());
        }
        Value::Object(body)
    }
}

impl ElasticityPolicy {
    fn render(&self) -> Value {
        let mut body = adjustment(self.adjustment);
        body.insert("expression".into(), json!(self.expression));
        insert_number(&mut body, "period_number", self.period_number);
        insert_number(&mut body, "period", self.period_s);
        insert_number(&mut body, "cooldown", self.cooldown_s);
        Value::Object(body)
    }
}

impl ScheduledPolicy {
    fn render(&self) -> Value {
        let mut body = adjustment(self.adjustment);
        match &self.when {
            When::Once(seconds) => body.insert("start_time".into(), json!(seconds.to_string())),
            When::Recurring(cron) => body.insert("recurrence".into(), json!(cron)),
        };
        Value::Object(body)
    }
}

fn adjustment(adjustment: Adjustment) -> Map<String, Value> {
    let (kind, adjust, min_step) = match adjustment {
        Adjustment::Change(by) => ("CHANGE", json!(by), None),
        Adjustment::Cardinality(to) => ("CARDINALITY", json!(to), None),
        Adjustment::Percentage { percent, min_step } => ("PERCENTAGE_CHANGE", json!(percent), min_step),
    };
    let mut body = Map::new();
    body.insert("type".into(), json!(kind));
    body.insert("adjust".into(), adjust);
    insert_number(&mut body, "min_adjust_step", min_step);
    body
}

fn insert_number(body: &mut Map<String, Value>, key: &str, value: Option<u32>) {
    if let Some(value) = value {
        body.insert(key.to_owned(), json!(value));
    }
}

fn insert_inputs(body: &mut Map<String, Value>, inputs: &BTreeMap<String, String>, version: FlowVersion) {
    if inputs.is_empty() {
        return;
    }
    let key = match version {
        FlowVersion::V7 => "user_inputs",
        FlowVersion::V6 => "custom_attrs",
    };
    body.insert(key.to_owned(), json!(inputs));
}

/// Encodes a template as an object: repeated keys become a list.
fn contents(template: &Template) -> Value {
    let mut body: Map<String, Value> = Map::new();
    for (key, value) in &template.0 {
        let value = match value {
            template::Value::Text(text) => json!(text),
            template::Value::Vector(pairs) => {
                Value::Object(pairs.iter().map(|(inner, text)| (inner.clone(), json!(text))).collect())
            }
        };
        match body.get_mut(key) {
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
            None => {
                // OneFlow expects a list of interfaces, even for a single one.
                let value = if key == "NIC" && value.is_object() { json!([value]) } else { value };
                body.insert(key.clone(), value);
            }
        }
    }
    Value::Object(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, expected) in
            [("7.5.80", Some(FlowVersion::V7)), ("6.10.5", Some(FlowVersion::V6)), ("8.0", Some(FlowVersion::V7))]
        {
            assert_eq!(FlowVersion::of(text).ok(), expected, "{text}");
        }
        assert!(FlowVersion::of("5.12.0").unwrap_err().contains("too old"));
        assert!(FlowVersion::of("").is_err());
    }

    #[test]
    fn contents_keep_what_is_repeated() {
        let template = Template::new()
            .with("MEMORY", "64")
            .with("NIC", [("NETWORK_ID", "$Private")])
            .with("PCI", [("CLASS", "0302")])
            .with("PCI", [("CLASS", "0300")])
            .with("CONTEXT", [("A", "say \"hi\"\n")]);
        let expected = json!({
            "MEMORY": "64",
            "NIC": [{"NETWORK_ID": "$Private"}],
            "PCI": [{"CLASS": "0302"}, {"CLASS": "0300"}],
            "CONTEXT": {"A": "say \"hi\"\n"},
        });
        assert_eq!(contents(&template), expected);
    }
}

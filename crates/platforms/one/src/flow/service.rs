//! Services and service templates, parsed from OneFlow's JSON. Ids may be text or numbers.

use serde_json::Value;

use super::state::{RoleState, ServiceState};
use crate::Owner;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub id: i32,
    pub name: String,
    pub owner: Owner,
    pub description: String,
    pub state: ServiceState,
    /// Seconds since 1970.
    pub start_time: u64,
    pub roles: Vec<Role>,
    /// The last entries, the oldest first.
    pub log: Vec<LogEntry>,
}

impl Service {
    pub fn role(&self, name: &str) -> Option<&Role> {
        self.roles.iter().find(|role| role.name == name)
    }

    /// The last error in the log.
    pub fn last_error(&self) -> Option<&str> {
        self.log.iter().rev().find(|entry| entry.severity == "E").map(|entry| entry.message.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    pub name: String,
    pub state: RoleState,
    pub cardinality: u32,
    pub min_vms: Option<u32>,
    pub max_vms: Option<u32>,
    pub parents: Vec<String>,
    pub template_id: Option<i32>,
    /// The oldest first: OneFlow removes it first when the role shrinks.
    pub nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub vm_id: i32,
    pub vm_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    pub timestamp: u64,
    /// `I` or `E`.
    pub severity: String,
    pub message: String,
}

/// A stored service template; its body contains defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredTemplate {
    pub id: i32,
    pub name: String,
    pub owner: Owner,
    pub body: Value,
}

pub(super) fn parse_service(text: &[u8]) -> Result<Service, String> {
    service(document(&json(text)?)?)
}

pub(super) fn parse_services(text: &[u8]) -> Result<Vec<Service>, String> {
    pool(&json(text)?)?.into_iter().map(service).collect()
}

pub(super) fn parse_template(text: &[u8]) -> Result<StoredTemplate, String> {
    kept(document(&json(text)?)?)
}

pub(super) fn parse_templates(text: &[u8]) -> Result<Vec<StoredTemplate>, String> {
    pool(&json(text)?)?.into_iter().map(kept).collect()
}

fn json(text: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(text).map_err(|error| format!("it is not JSON: {error}"))
}

fn document(root: &Value) -> Result<&Value, String> {
    root.get("DOCUMENT").ok_or_else(|| "it has no DOCUMENT".to_owned())
}

/// An empty pool has no list.
fn pool(root: &Value) -> Result<Vec<&Value>, String> {
    let pool = root.get("DOCUMENT_POOL").ok_or("it has no DOCUMENT_POOL")?;
    Ok(match pool.get("DOCUMENT") {
        Some(Value::Array(documents)) => documents.iter().collect(),
        Some(one @ Value::Object(_)) => vec![one],
        _ => Vec::new(),
    })
}

fn body(document: &Value) -> Result<&Value, String> {
    let body = document.get("TEMPLATE").and_then(|template| template.get("BODY"));
    body.filter(|body| body.is_object()).ok_or_else(|| "a document has no BODY".to_owned())
}

fn service(document: &Value) -> Result<Service, String> {
    let body = body(document)?;
    Ok(Service {
        id: number(document, "ID")?,
        name: text(document, "NAME"),
        owner: owner(document)?,
        description: text(body, "description"),
        state: ServiceState::from_number(number(body, "state")?),
        start_time: maybe(body, "start_time")?.unwrap_or_default(),
        roles: list(body, "roles").map(role).collect::<Result<_, _>>()?,
        log: list(body, "log").map(log_entry).collect::<Result<_, _>>()?,
    })
}

fn role(role: &Value) -> Result<Role, String> {
    let template_id = maybe(role, "template_id")?;
    Ok(Role {
        name: text(role, "name"),
        state: RoleState::from_number(maybe(role, "state")?.unwrap_or_default()),
        // OneFlow allows negative cardinalities.
        cardinality: u32::try_from(maybe::<i64>(role, "cardinality")?.unwrap_or_default()).unwrap_or(0),
        min_vms: maybe(role, "min_vms")?,
        max_vms: maybe(role, "max_vms")?,
        parents: list(role, "parents").filter_map(Value::as_str).map(str::to_owned).collect(),
        template_id: match template_id {
            Some(id) => Some(id),
            None => maybe(role, "vm_template")?,
        },
        nodes: list(role, "nodes").map(node).collect::<Result<_, _>>()?,
    })
}

fn node(node: &Value) -> Result<Node, String> {
    let vm = node.get("vm_info").and_then(|info| info.get("VM"));
    Ok(Node { vm_id: number(node, "deploy_id")?, vm_name: vm.map(|vm| text(vm, "NAME")).unwrap_or_default() })
}

fn log_entry(entry: &Value) -> Result<LogEntry, String> {
    Ok(LogEntry {
        timestamp: maybe(entry, "timestamp")?.unwrap_or_default(),
        severity: text(entry, "severity"),
        message: text(entry, "message"),
    })
}

fn kept(document: &Value) -> Result<StoredTemplate, String> {
    Ok(StoredTemplate {
        id: number(document, "ID")?,
        name: text(document, "NAME"),
        owner: owner(document)?,
        body: body(document)?.clone(),
    })
}

fn owner(document: &Value) -> Result<Owner, String> {
    Ok(Owner {
        uid: maybe(document, "UID")?.unwrap_or_default(),
        gid: maybe(document, "GID")?.unwrap_or_default(),
        uname: text(document, "UNAME"),
        gname: text(document, "GNAME"),
    })
}

fn text(object: &Value, key: &str) -> String {
    object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn list<'a>(object: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    object.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn number<N: TryFrom<i64>>(object: &Value, key: &str) -> Result<N, String> {
    maybe(object, key)?.ok_or_else(|| format!("there is no {key}"))
}

fn maybe<N: TryFrom<i64>>(object: &Value, key: &str) -> Result<Option<N>, String> {
    let value = match object.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) if text.is_empty() => return Ok(None),
        Some(value) => value,
    };
    let number = match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64(),
    };
    let number = number.and_then(|number| N::try_from(number).ok());
    number.map(Some).ok_or_else(|| format!("{key} is {value} instead of a number"))
}

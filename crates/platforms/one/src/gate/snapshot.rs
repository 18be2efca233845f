//! Responses of OneGate. Ids and states are text in some routes and numbers in others.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::GateError;

/// A VM at the time of the request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VmSnapshot {
    pub id: u32,
    pub name: String,
    /// `None` if the route omits it.
    pub state: Option<u32>,
    pub lcm_state: Option<u32>,
    /// Attributes of its USER_TEMPLATE. Values other than text are JSON; the last of repeated ones counts.
    pub attributes: BTreeMap<String, String>,
    /// In the order of the VM's interfaces; aliases come last.
    pub nics: Vec<Nic>,
}

impl VmSnapshot {
    /// Empty values count as absent.
    pub fn attribute(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// ACTIVE and RUNNING.
    pub fn runs(&self) -> bool {
        (self.state, self.lcm_state) == (Some(3), Some(3))
    }
}

/// A network interface. Empty values count as absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Nic {
    pub name: Option<String>,
    pub ip: Option<String>,
    pub ip6_global: Option<String>,
    pub ip6_ula: Option<String>,
    pub ip6_link: Option<String>,
    pub network: Option<String>,
    pub mac: Option<String>,
    /// For an alias: the name of its interface.
    pub parent: Option<String>,
    pub external: bool,
    pub external_ip: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSnapshot {
    pub id: u32,
    pub name: String,
    /// State number of OneFlow.
    pub state: u32,
    pub roles: Vec<RoleSnapshot>,
}

impl ServiceSnapshot {
    pub fn role(&self, name: &str) -> Option<&RoleSnapshot> {
        self.roles.iter().find(|role| role.name == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleSnapshot {
    pub name: String,
    pub cardinality: u32,
    pub state: u32,
    pub nodes: Vec<NodeSnapshot>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSnapshot {
    /// Id of the VM.
    pub deploy_id: u32,
    /// Only versions before 5.12 report it.
    pub running: Option<bool>,
    pub vm: Option<VmSnapshot>,
}

/// Parses the body of `GET /vm` and `GET /vms/ID`.
pub fn parse_vm(body: &[u8]) -> Result<VmSnapshot, GateError> {
    let root: Value = json(body)?;
    vm(root.get("VM").ok_or_else(|| missing("VM"))?)
}

/// Parses the body of `GET /service`, extended or not.
pub fn parse_service(body: &[u8]) -> Result<ServiceSnapshot, GateError> {
    let root: Value = json(body)?;
    let service = root.get("SERVICE").ok_or_else(|| missing("SERVICE"))?;
    let roles = list(service.get("roles"));
    Ok(ServiceSnapshot {
        id: number(service, "id")?,
        name: text(service, "name")?,
        state: number(service, "state")?,
        roles: roles.into_iter().map(role).collect::<Result<_, _>>()?,
    })
}

fn role(role: &Value) -> Result<RoleSnapshot, GateError> {
    Ok(RoleSnapshot {
        name: text(role, "name")?,
        // OneFlow allows negative cardinalities.
        cardinality: number(role, "cardinality").unwrap_or(0),
        state: number(role, "state").unwrap_or(0),
        nodes: list(role.get("nodes")).into_iter().map(node).collect::<Result<_, _>>()?,
    })
}

fn node(node: &Value) -> Result<NodeSnapshot, GateError> {
    Ok(NodeSnapshot {
        deploy_id: number(node, "deploy_id")?,
        running: node.get("running").and_then(Value::as_bool),
        vm: node.get("vm_info").and_then(|info| info.get("VM")).map(vm).transpose()?,
    })
}

fn vm(vm: &Value) -> Result<VmSnapshot, GateError> {
    let template = vm.get("TEMPLATE");
    let interfaces = |key| template.and_then(|template| template.get(key)).map(|found| list(Some(found)));
    let nics = interfaces("NIC").unwrap_or_default().into_iter().chain(interfaces("NIC_ALIAS").unwrap_or_default());
    Ok(VmSnapshot {
        id: number(vm, "ID")?,
        name: text(vm, "NAME")?,
        state: number(vm, "STATE").ok(),
        lcm_state: number(vm, "LCM_STATE").ok(),
        attributes: vm.get("USER_TEMPLATE").and_then(Value::as_object).map(attributes).unwrap_or_default(),
        nics: nics.map(nic).collect(),
    })
}

fn attributes(template: &Map<String, Value>) -> BTreeMap<String, String> {
    template.iter().map(|(key, value)| (key.clone(), as_text(value))).collect()
}

fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        // The JSON of an empty attribute is an empty object.
        Value::Object(object) if object.is_empty() => String::new(),
        Value::Array(values) if values.iter().all(|value| !value.is_object()) => {
            values.last().map(as_text).unwrap_or_default()
        }
        other => other.to_string(),
    }
}

fn nic(nic: &Value) -> Nic {
    let said = |key: &str| nic.get(key).map(as_text).filter(|text| !text.is_empty());
    Nic {
        name: said("NAME"),
        ip: said("IP"),
        ip6_global: said("IP6_GLOBAL"),
        ip6_ula: said("IP6_SITE").or_else(|| said("IP6_ULA")),
        ip6_link: said("IP6_LINK"),
        network: said("NETWORK"),
        mac: said("MAC"),
        parent: said("PARENT"),
        external: said("EXTERNAL").is_some_and(|text| text.eq_ignore_ascii_case("yes")),
        external_ip: said("EXTERNAL_IP"),
    }
}

fn json(body: &[u8]) -> Result<Value, GateError> {
    serde_json::from_slice(body).map_err(|error| GateError::InvalidResponse(format!("it is not JSON: {error}")))
}

fn missing(key: &str) -> GateError {
    GateError::InvalidResponse(format!("it has no {key}"))
}

/// A list of one element may be the element itself.
fn list(value: Option<&Value>) -> Vec<&Value> {
    match value {
        Some(Value::Array(values)) => values.iter().collect(),
        Some(Value::Object(object)) if object.is_empty() => Vec::new(),
        Some(Value::Null) | None => Vec::new(),
        Some(one) => vec![one],
    }
}

fn text(object: &Value, key: &str) -> Result<String, GateError> {
    object.get(key).map(as_text).ok_or_else(|| missing(key))
}

fn number(object: &Value, key: &str) -> Result<u32, GateError> {
    let value = object.get(key).ok_or_else(|| missing(key))?;
    let number = match value {
        Value::Number(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| GateError::InvalidResponse(format!("{key} is {value} instead of a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_are_not_text_do_no_harm() {
        let body = br#"{"VM":{"NAME":"a","ID":7,"USER_TEMPLATE":
            {"A":"x","B":5,"C":{},"D":{"K":"v"},"E":["1","2"],"F":null,"G":[{"K":"v"}]}}}"#;
        let vm = parse_vm(body).unwrap();
        let expected =
            [("A", "x"), ("B", "5"), ("C", ""), ("D", r#"{"K":"v"}"#), ("E", "2"), ("F", ""), ("G", r#"[{"K":"v"}]"#)];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(vm.attributes, BTreeMap::from(expected));
        assert_eq!((vm.id, vm.state, vm.attribute("C"), vm.runs()), (7, None, None, false));
    }

    #[test]
    fn an_invalid_response_is_rejected_with_a_reason() {
        for (body, expected) in [
            ("Not authorized", "it is not JSON"),
            ("{}", "it has no VM"),
            (r#"{"VM":{"NAME":"a"}}"#, "it has no ID"),
            (r#"{"VM":{"NAME":"a","ID":"x"}}"#, "ID is \"x\" instead of a number"),
        ] {
            let said = parse_vm(body.as_bytes()).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
        assert!(parse_service(br#"{"SERVICE":{"id":"6","name":"s","state":2,"roles":[{"nodes":[]}]}}"#).is_err());
    }
}

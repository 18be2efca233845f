//! Control port: the functions of a [`Handle`] over HTTP in JSON, for tests in other languages.

use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cloud::{Id, LcmState, ServiceState, Vm, VmState, state_name};
use crate::element::Element;
use crate::faults::Faults;
use crate::handle::{Handle, PlainRole};
use crate::http::{Answer, Asked};

const KIND: &str = "application/json";

pub async fn handle(handle: Handle, asked: Asked) -> Option<Answer> {
    let parts: Vec<&str> = asked.path.split('/').filter(|part| !part.is_empty()).collect();
    let body = || -> Result<Value, String> { serde_json::from_str(&asked.body).map_err(|error| error.to_string()) };
    let done: Result<Value, String> = match (&asked.method, parts.as_slice()) {
        (&Method::GET, ["vms"]) => Ok(handle.with(|cloud| cloud.vms.values().map(shown).collect())),
        (&Method::GET, ["services"]) => {
            Ok(handle.with(|cloud| cloud.services.values().map(|service| cloud.service_json(service)).collect()))
        }
        (&Method::GET, ["updates"]) => {
            let since = asked.query("since").and_then(|since| since.parse().ok()).unwrap_or(0);
            Ok(json!(handle.updates(since)))
        }
        (&Method::GET, ["faults"]) => Ok(json!(handle.faults(|faults| faults.clone()))),
        (&Method::PUT, ["faults"]) => body().and_then(|body| set_faults(&handle, body)),
        (&Method::POST, ["vms"]) => body().and_then(|body| new_vm(&handle, body)),
        (&Method::POST, ["services"]) => body().and_then(|body| new_service(&handle, body)),
        (&Method::POST, ["vms", id, "state"]) => body().and_then(|body| set_state(&handle, id, &body)),
        (&Method::POST, ["services", id, "stuck"]) => body().and_then(|body| stick(&handle, id, &body)),
        _ => return Some(Answer::new(404, KIND, json!({"error": "there is no such path"}).to_string())),
    };
    Some(match done {
        Ok(value) => Answer::new(200, KIND, value.to_string()),
        Err(error) => Answer::new(400, KIND, json!({"error": error}).to_string()),
    })
}

fn shown(vm: &Vm) -> Value {
    json!({
        "id": vm.owned.id,
        "name": vm.owned.name,
        "state": state_name(vm.state, vm.lcm),
        "service": vm.service(),
        "role": vm.role(),
        "ip": vm.address(),
        "boots": vm.boots,
        "attributes": Element::of("A", vm.user_template.elements()).to_json(),
        "context": vm.context(),
    })
}

fn set_faults(handle: &Handle, body: Value) -> Result<Value, String> {
    let new: Faults = serde_json::from_value(body).map_err(|error| error.to_string())?;
    handle.faults(|faults| *faults = new);
    Ok(json!({}))
}

/// `context` and `attributes` are pairs of name and value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewVm {
    name: String,
    #[serde(default)]
    context: Vec<(String, String)>,
    #[serde(default)]
    attributes: Vec<(String, String)>,
}

fn new_vm(handle: &Handle, body: Value) -> Result<Value, String> {
    let new: NewVm = serde_json::from_value(body).map_err(|error| error.to_string())?;
    let id = handle.create_vm(&new.name, &borrowed(&new.context), &borrowed(&new.attributes));
    let id = id.map_err(|refused| refused.message)?;
    Ok(json!({"id": id}))
}

fn borrowed(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewService {
    name: String,
    #[serde(default)]
    ready_status_gate: bool,
    roles: Vec<PlainRole>,
}

fn new_service(handle: &Handle, body: Value) -> Result<Value, String> {
    let new: NewService = serde_json::from_value(body).map_err(|error| error.to_string())?;
    let id = handle.create_service(&new.name, new.ready_status_gate, &new.roles).map_err(|error| error.text)?;
    Ok(json!({"id": id}))
}

fn id_of(text: &str) -> Result<Id, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

/// `{"state": 3, "lcm_state": 16}`
fn set_state(handle: &Handle, id: &str, body: &Value) -> Result<Value, String> {
    let number = |key: &str| body[key].as_i64().ok_or_else(|| format!("{key} must be a number"));
    let state = VmState::from_number(number("state")?).ok_or("there is no such state")?;
    let lcm = LcmState::from_number(number("lcm_state")?).ok_or("there is no such lcm_state")?;
    handle.set_vm_state(id_of(id)?, state, lcm);
    Ok(json!({}))
}

/// `{"state": 8}`
fn stick(handle: &Handle, id: &str, body: &Value) -> Result<Value, String> {
    let number = body["state"].as_i64().ok_or("state must be a number")?;
    handle.stick(id_of(id)?, ServiceState::from_number(number).ok_or("there is no such state")?);
    Ok(json!({}))
}

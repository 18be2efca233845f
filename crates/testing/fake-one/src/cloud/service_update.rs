//! Updates of a running service, with OneFlow's errors.

use serde_json::{Map, Value};

use super::service::merge_bodies;
use super::{Cloud, FlowError, Id, Right, ServiceState, schema};

const FIXED: [&str; 10] = [
    "custom_attrs",
    "custom_attrs_values",
    "deployment",
    "name",
    "networks",
    "networks_values",
    "ready_status_gate",
    "start_time",
    "user_inputs",
    "user_inputs_values",
];
const FIXED_OF_ROLE: [&str; 6] = ["cardinality", "last_vmname", "nodes", "parents", "state", "template_id"];
/// Fields of a role that an update keeps.
const FREE_OF_ROLE: [&str; 7] = [
    "cooldown",
    "elasticity_policies",
    "max_vms",
    "min_vms",
    "scheduled_policies",
    "shutdown_action",
    "template_contents",
];

impl Cloud {
    /// Replaces the whole body, or merges it with `append`.
    pub fn update_service(&mut self, uid: Id, id: Id, said: &Value, append: bool) -> Result<(), FlowError> {
        let service = self.service(uid, id, Right::Manage)?;
        if !matches!(service.state, ServiceState::Running | ServiceState::Warning) {
            let text = format!("Service cannot be updated in state: {}", service.state.name());
            return Err(FlowError::new(500, text));
        }
        let old = Value::Object(service.body_json());
        let mut new = said.clone();
        if append {
            new = old.clone();
            merge_bodies(&mut new, said);
        }
        fixed(&old, &new, &FIXED, "service")?;
        let checked = schema::checked(new, self.modern()).map_err(|error| FlowError::new(400, error.0))?;
        let roles = checked.get("roles").and_then(Value::as_array).cloned().unwrap_or_default();
        let named = |role: &Value| role.get("name").cloned();
        let olds = old["roles"].as_array().cloned().unwrap_or_default();
        if roles.iter().map(named).ne(olds.iter().map(named)) {
            return Err(immutable("service/roles"));
        }
        for (old, new) in olds.iter().zip(&roles) {
            fixed(old, new, &FIXED_OF_ROLE, "role")?;
        }
        let service = self.services.get_mut(&id).expect("it was there");
        for (role, new) in service.roles.iter_mut().zip(roles.iter().filter_map(Value::as_object)) {
            take(&mut role.body, new, &FREE_OF_ROLE);
        }
        take(&mut service.body, &checked, &["description", "shutdown_action", "automatic_deletion"]);
        Ok(())
    }
}

fn take(body: &mut Map<String, Value>, new: &Map<String, Value>, keys: &[&str]) {
    for key in keys {
        if let Some(value) = new.get(*key) {
            body.insert((*key).to_owned(), value.clone());
        }
    }
}

fn fixed(old: &Value, new: &Value, keys: &[&str], of: &str) -> Result<(), FlowError> {
    let changed = keys.iter().find(|key| new.get(**key).is_some_and(|value| old.get(**key) != Some(value)));
    changed.map_or(Ok(()), |key| Err(immutable(&format!("{of}/{key}"))))
}

fn immutable(what: &str) -> FlowError {
    FlowError::new(500, format!("Immutable value: `{what}` can not be changed"))
}

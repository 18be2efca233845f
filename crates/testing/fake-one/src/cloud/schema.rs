//! Validation of service templates with OneFlow's messages.

use serde_json::{Map, Value, json};

use super::role::integer;
use super::{expression, schedule};
use crate::template::{Template, text_of};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(pub String);

type Object = Map<String, Value>;

fn wrong<T>(text: impl Into<String>) -> Result<T, SchemaError> {
    Err(SchemaError(text.into()))
}

/// Fills in the defaults. `modern`: since 7.0 templates are objects, and roles have a type.
pub fn checked(body: Value, modern: bool) -> Result<Object, SchemaError> {
    let Value::Object(mut body) = body else { return wrong("KEY: '' must be a Hash;") };
    if modern {
        converted(&mut body);
    }
    mandatory(&body, "name", "string")?;
    body.entry("deployment").or_insert(json!("none"));
    body.entry("description").or_insert(json!(""));
    mandatory(&body, "roles", "array")?;
    text(&body, "name")?;
    one_of(&body, "deployment", &["none", "straight"])?;
    one_of(&body, "shutdown_action", &["terminate", "terminate-hard", "shutdown", "shutdown-hard"])?;
    for key in ["ready_status_gate", "automatic_deletion", "on_hold"] {
        truth(&body, key)?;
    }
    let Some(Value::Array(roles)) = body.remove("roles") else { return wrong("KEY: 'roles' must be an Array;") };
    let mut names: Vec<String> = Vec::new();
    let mut done = Vec::new();
    for role in roles {
        let role = role_checked(role, modern)?;
        let name = role.get("name").map(text_of).unwrap_or_default();
        if names.contains(&name) {
            return wrong(format!("Role name '{name}' is repeated"));
        }
        names.push(name);
        done.push(Value::Object(role));
    }
    body.insert("roles".to_owned(), Value::Array(done));
    Ok(body)
}

pub fn checked_role(role: Value) -> Result<Object, SchemaError> {
    let role = match role {
        Value::String(text) => {
            serde_json::from_str(&text).map_err(|_| SchemaError(format!("unexpected token at '{text}'")))?
        }
        role => role,
    };
    role_checked(role, true)
}

fn role_checked(role: Value, modern: bool) -> Result<Object, SchemaError> {
    let Value::Object(mut role) = role else { return wrong("KEY: 'roles' must be a Hash;") };
    mandatory(&role, "name", "string")?;
    if modern {
        mandatory(&role, "type", "string")?;
        one_of(&role, "type", &["vm", "vr"])?;
        mandatory(&role, "template_id", "integer")?;
    } else {
        mandatory(&role, "vm_template", "integer")?;
    }
    let name = text(&role, "name")?;
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return wrong("KEY: 'name' must match regexp (?-mix:^\\w+$);");
    }
    role.entry("cardinality").or_insert(json!(0));
    for key in ["cardinality", "template_id", "vm_template", "min_vms", "max_vms", "cooldown"] {
        number(&mut role, key)?;
    }
    if let Some(contents) = role.get("template_contents")
        && !contents.is_object()
    {
        return wrong("KEY: 'template_contents' must be a Hash;");
    }
    limits(&name, &role)?;
    policies(&name, &role)?;
    Ok(role)
}

fn limits(name: &str, role: &Object) -> Result<(), SchemaError> {
    let cardinality = integer(role, "cardinality").unwrap_or(0);
    if integer(role, "min_vms").is_some_and(|least| cardinality < least) {
        return wrong(format!("Role '{name}' 'cardinality' must be greater than or equal to 'min_vms'"));
    }
    if integer(role, "max_vms").is_some_and(|most| cardinality > most) {
        return wrong(format!("Role '{name}' 'cardinality' must be lower than or equal to 'max_vms'"));
    }
    Ok(())
}

fn policies(name: &str, role: &Object) -> Result<(), SchemaError> {
    let list = |key: &str| role.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let (elastic, scheduled) = (list("elasticity_policies"), list("scheduled_policies"));
    let bounded = role.contains_key("min_vms") && role.contains_key("max_vms");
    let ruled = !elastic.is_empty() || !scheduled.is_empty();
    if ruled && !bounded {
        return wrong(format!(
            "Role '{name}' with  'elasticity_policies' or 'scheduled_policies'must define both 'min_vms' and 'max_vms'"
        ));
    }
    for (at, policy) in elastic.iter().enumerate() {
        let policy = policy.as_object().cloned().unwrap_or_default();
        common(&policy)?;
        mandatory(&policy, "expression", "string")?;
        if let Err(why) = expression::parse(&text(&policy, "expression")?) {
            return wrong(format!("Role '{name}', elasticity policy #{at} 'expression' parse error: {why}"));
        }
    }
    for (at, policy) in scheduled.iter().enumerate() {
        let policy = policy.as_object().cloned().unwrap_or_default();
        common(&policy)?;
        let timed = ["start_time", "recurrence"].iter().filter(|key| policy.contains_key(**key)).count();
        if timed != 1 {
            let what = "must define either 'recurrence' or 'start_time'";
            return wrong(format!("Role '{name}', scheduled policy #{at} {what}"));
        }
        if let Some(recurrence) = policy.get("recurrence").map(text_of)
            && schedule::Cron::parse(&recurrence).is_err()
        {
            return wrong(format!("Role '{name}', scheduled policy #{at} invalid 'recurrence'"));
        }
    }
    Ok(())
}

fn common(policy: &Object) -> Result<(), SchemaError> {
    mandatory(policy, "type", "string")?;
    one_of(policy, "type", &["CHANGE", "CARDINALITY", "PERCENTAGE_CHANGE"])?;
    mandatory(policy, "adjust", "integer")?;
    number(&mut policy.clone(), "adjust")
}

fn mandatory(object: &Object, key: &str, kind: &str) -> Result<(), SchemaError> {
    match object.contains_key(key) {
        true => Ok(()),
        false => {
            let shown = Value::Object(object.clone());
            wrong(format!("Mandatory document key '{key} ({kind})' is missing from {shown}"))
        }
    }
}

fn text(object: &Object, key: &str) -> Result<String, SchemaError> {
    match object.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        _ => wrong(format!("KEY: '{key}' must be a String;")),
    }
}

fn one_of(object: &Object, key: &str, known: &[&str]) -> Result<(), SchemaError> {
    match object.get(key) {
        None => Ok(()),
        Some(Value::String(text)) if known.contains(&text.as_str()) => Ok(()),
        Some(_) => wrong(format!("KEY: '{key}' must be one of {};", known.join(", "))),
    }
}

fn truth(object: &Object, key: &str) -> Result<(), SchemaError> {
    match object.get(key) {
        None | Some(Value::Bool(_)) => Ok(()),
        Some(_) => wrong(format!("KEY: '{key}' must be one of the following: true, false;")),
    }
}

/// Converts texts with numbers to numbers.
fn number(object: &mut Object, key: &str) -> Result<(), SchemaError> {
    if !object.contains_key(key) {
        return Ok(());
    }
    match integer(object, key) {
        Some(value) => {
            object.insert(key.to_owned(), json!(value));
            Ok(())
        }
        None => wrong(format!("KEY: '{key}' must be an Integer;")),
    }
}

/// Field names before 7.0, if all roles use them.
fn converted(body: &mut Object) {
    for (old, new) in [("custom_attrs", "user_inputs"), ("custom_attrs_values", "user_inputs_values")] {
        if let Some(value) = body.remove(old) {
            body.entry(new).or_insert(value);
        }
    }
    let Some(Value::Array(roles)) = body.get_mut("roles") else { return };
    if roles.is_empty() || !roles.iter().all(|role| role.get("vm_template").is_some()) {
        return;
    }
    for role in roles.iter_mut().filter_map(Value::as_object_mut) {
        let template = role.remove("vm_template").unwrap_or_default();
        role.insert("template_id".to_owned(), template);
        role.entry("type").or_insert(json!("vm"));
        if let Some(Value::String(text)) = role.remove("vm_template_contents") {
            let element = crate::element::Element::of("T", Template::parse(&text).unwrap_or_default().elements());
            let mut contents = element.to_json();
            if let Some(nic) = contents.get_mut("NIC").filter(|nic| nic.is_object()) {
                *nic = Value::Array(vec![nic.take()]);
            }
            role.insert("template_contents".to_owned(), contents);
        }
    }
}

/// Every declared input needs a value, which may be empty.
pub fn inputs_given(body: &Object) -> Result<(), SchemaError> {
    let empty = Object::new();
    let of = |object: &Object, key: &str| object.get(key).and_then(Value::as_object).cloned();
    let mut all = vec![body.clone()];
    let roles = body.get("roles").and_then(Value::as_array).into_iter().flatten();
    all.extend(roles.filter_map(Value::as_object).cloned());
    for object in all {
        let declared = of(&object, "user_inputs").or(of(&object, "custom_attrs")).unwrap_or_default();
        let given = of(&object, "user_inputs_values").or(of(&object, "custom_attrs_values"));
        if !declared.is_empty() && given.is_none() {
            return wrong("The Service template specifies User Inputs but no values have been found");
        }
        let given = given.unwrap_or_else(|| empty.clone());
        let missing: Vec<&str> = declared.keys().filter(|key| !given.contains_key(*key)).map(String::as_str).collect();
        if !missing.is_empty() {
            return wrong(format!("Verify every User Input have an associated value: {}", missing.join(", ")));
        }
    }
    let networks = of(body, "networks").unwrap_or_default();
    if body.contains_key("networks_values") {
        return Ok(());
    }
    match networks.values().all(|said| default_network(&text_of(said)).is_some()) {
        true => Ok(()),
        false => wrong("Wrong networks format"),
    }
}

/// `M|network|description||id:0`
fn default_network(said: &str) -> Option<(String, String)> {
    let (how, id) = said.split('|').nth(4)?.split_once(':')?;
    (!id.is_empty()).then(|| (how.to_owned(), id.to_owned()))
}

/// The given values, and the defaults of the other inputs.
pub fn network_values(body: &Object) -> Vec<Value> {
    if let Some(Value::Array(values)) = body.get("networks_values") {
        return values.clone();
    }
    let declared = body.get("networks").and_then(Value::as_object).into_iter().flatten();
    let values = declared.filter_map(|(name, said)| {
        let (how, id) = default_network(&text_of(said))?;
        Some(json!({name: {how: id}}))
    });
    values.collect()
}

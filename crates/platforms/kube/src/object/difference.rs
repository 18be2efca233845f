//! Finds where a live object differs from the desired one. Fields that only the live object has (defaults, fields of
//! others) are no difference.

use serde_json::Value;

use super::quantity;

/// Lists with named items, to which others may have added items.
const KEYS: [&str; 8] = ["name", "mountPath", "devicePath", "containerPort", "port", "topologyKey", "uid", "ip"];
/// Fields that the API server omits if they have their default value.
const LEFT_OUT: [&str; 9] = [
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "readOnly",
    "stdin",
    "tty",
    "publishNotReadyAddresses",
    "minReadySeconds",
    "initialDelaySeconds",
];
/// Fields in which an empty object has a meaning.
const EMPTY_IS_MEANT: [&str; 2] = ["emptyDir", "podSelector"];
/// Maps of quantities.
const AMOUNTS: [&str; 3] = ["limits", "requests", "capacity"];
const AMOUNT: [&str; 2] = ["sizeLimit", "divisor"];

/// The first field of `desired` that `live` lacks.
pub fn difference(desired: &Value, live: &Value) -> Option<String> {
    let mut path = Vec::new();
    differ_at(desired, live, "", "", &mut path).then(|| {
        path.reverse();
        path.join(".")
    })
}

/// Whether the values differ; `path` is filled from the inside.
fn differ_at(desired: &Value, live: &Value, parent: &str, key: &str, path: &mut Vec<String>) -> bool {
    if live.is_null() {
        return !means_absent(desired, key);
    }
    match (desired, live) {
        (Value::Null, _) => false,
        (Value::Object(desired), Value::Object(live)) => desired.iter().any(|(field, value)| {
            let found = differ_at(value, live.get(field).unwrap_or(&Value::Null), key, field, path);
            if found {
                path.push(field.clone());
            }
            found
        }),
        (Value::Array(desired), Value::Array(live)) => differ_in_list(desired, live, key, path),
        _ if desired == live => false,
        _ if AMOUNTS.contains(&parent) || AMOUNT.contains(&key) => {
            let (desired, live) = (quantity::read(desired), quantity::read(live));
            desired.is_none() || desired != live
        }
        _ => true,
    }
}

fn means_absent(desired: &Value, key: &str) -> bool {
    match desired {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty() && !EMPTY_IS_MEANT.contains(&key),
        Value::Array(items) => items.is_empty(),
        Value::Bool(false) => LEFT_OUT.contains(&key),
        Value::Number(number) => number.as_i64() == Some(0) && LEFT_OUT.contains(&key),
        _ => false,
    }
}

fn differ_in_list(desired: &[Value], live: &[Value], key: &str, path: &mut Vec<String>) -> bool {
    let same = desired.len() == live.len();
    let mut quiet = Vec::new();
    if same && !desired.iter().zip(live).any(|(desired, live)| differ_at(desired, live, key, "", &mut quiet)) {
        return false;
    }
    let name = KEYS.into_iter().find(|name| !desired.is_empty() && desired.iter().all(|item| !item[*name].is_null()));
    let Some(name) = name else { return true };
    desired.iter().enumerate().any(|(index, desired)| {
        let fits = |live: &&Value| live[name] == desired[name];
        // Two items of one name (a port for TCP and UDP): either may match.
        let found = !live.iter().filter(fits).any(|live| !differ_at(desired, live, key, "", &mut Vec::new()));
        if found {
            if let Some(live) = live.iter().find(fits) {
                differ_at(desired, live, key, "", path);
            }
            path.push(index.to_string());
        }
        found
    })
}

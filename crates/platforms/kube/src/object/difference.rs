//! Where a live object is not as it is wanted. What is only in the live one (defaults, what others added) is no difference.

use serde_json::Value;

use super::quantity;

/// Lists in which items are known by a name of theirs; others can have added some.
const KEYS: [&str; 8] = ["name", "mountPath", "devicePath", "containerPort", "port", "topologyKey", "uid", "ip"];
/// Fields that the API server leaves out where they have the value that absence means.
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
/// Here an empty object says something.
const EMPTY_IS_MEANT: [&str; 2] = ["emptyDir", "podSelector"];
/// Values below these are amounts.
const AMOUNTS: [&str; 3] = ["limits", "requests", "capacity"];
const AMOUNT: [&str; 2] = ["sizeLimit", "divisor"];

/// The first place where `live` lacks something of `wanted`.
pub fn difference(wanted: &Value, live: &Value) -> Option<String> {
    let mut path = Vec::new();
    differ_at(wanted, live, "", "", &mut path).then(|| {
        path.reverse();
        path.join(".")
    })
}

/// Whether they differ; `path` is filled from the inside.
fn differ_at(wanted: &Value, live: &Value, parent: &str, key: &str, path: &mut Vec<String>) -> bool {
    if live.is_null() {
        return !means_absent(wanted, key);
    }
    match (wanted, live) {
        (Value::Null, _) => false,
        (Value::Object(wanted), Value::Object(live)) => wanted.iter().any(|(field, value)| {
            let found = differ_at(value, live.get(field).unwrap_or(&Value::Null), key, field, path);
            if found {
                path.push(field.clone());
            }
            found
        }),
        (Value::Array(wanted), Value::Array(live)) => differ_in_list(wanted, live, key, path),
        _ if wanted == live => false,
        _ if AMOUNTS.contains(&parent) || AMOUNT.contains(&key) => {
            let (wanted, live) = (quantity::read(wanted), quantity::read(live));
            wanted.is_none() || wanted != live
        }
        _ => true,
    }
}

fn means_absent(wanted: &Value, key: &str) -> bool {
    match wanted {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty() && !EMPTY_IS_MEANT.contains(&key),
        Value::Array(items) => items.is_empty(),
        Value::Bool(false) => LEFT_OUT.contains(&key),
        Value::Number(number) => number.as_i64() == Some(0) && LEFT_OUT.contains(&key),
        _ => false,
    }
}

fn differ_in_list(wanted: &[Value], live: &[Value], key: &str, path: &mut Vec<String>) -> bool {
    let same = wanted.len() == live.len();
    let mut quiet = Vec::new();
    if same && !wanted.iter().zip(live).any(|(wanted, live)| differ_at(wanted, live, key, "", &mut quiet)) {
        return false;
    }
    let name = KEYS.into_iter().find(|name| !wanted.is_empty() && wanted.iter().all(|item| !item[*name].is_null()));
    let Some(name) = name else { return true };
    wanted.iter().enumerate().any(|(index, wanted)| {
        let fits = |live: &&Value| live[name] == wanted[name];
        // Two of one name (a port for TCP and UDP): any of them will do.
        let found = !live.iter().filter(fits).any(|live| !differ_at(wanted, live, key, "", &mut Vec::new()));
        if found {
            if let Some(live) = live.iter().find(fits) {
                differ_at(wanted, live, key, "", path);
            }
            path.push(index.to_string());
        }
        found
    })
}

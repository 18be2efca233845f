//! Lists whose entries have a name: environment, volumes, mounts. Merged in the order they are written, each name once.

use serde_json::{Value, json};

/// What tells two entries apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Name,
    MountPath,
}

impl Key {
    fn field(self) -> &'static str {
        match self {
            Key::Name => "name",
            Key::MountPath => "mountPath",
        }
    }
}

/// An entry of `over` takes the place of the one with its name, or comes last.
pub(super) fn merged(base: &[Value], over: &[Value], key: Key) -> Vec<Value> {
    let mut list = Vec::with_capacity(base.len() + over.len());
    for entry in base.iter().chain(over) {
        put(&mut list, entry.clone(), key);
    }
    list
}

/// In the place of the one with its name, or last.
pub(super) fn put(list: &mut Vec<Value>, entry: Value, key: Key) {
    match list.iter_mut().find(|other| same(other, &entry, key)) {
        Some(other) => *other = entry,
        None => list.push(entry),
    }
}

/// Last, unless there is one of its name.
pub(super) fn add(list: &mut Vec<Value>, entry: Value, key: Key) {
    if !list.iter().any(|other| same(other, &entry, key)) {
        list.push(entry);
    }
}

fn same(a: &Value, b: &Value, key: Key) -> bool {
    !a[key.field()].is_null() && a[key.field()] == b[key.field()]
}

pub(super) fn variable(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

/// A variable with what the pod's own object says.
pub(super) fn field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}})
}

//! Lists with named entries: environment, volumes, mounts. Merging keeps the order, and each name once.

use serde_json::{Value, json};

/// The field that identifies an entry.
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

/// Entries of `over` replace entries of the same name, or are appended.
pub(super) fn merged(base: &[Value], over: &[Value], key: Key) -> Vec<Value> {
    let mut list = Vec::with_capacity(base.len() + over.len());
    for entry in base.iter().chain(over) {
        put(&mut list, entry.clone(), key);
    }
    list
}

/// Replaces the entry of the same name, or appends.
pub(super) fn put(list: &mut Vec<Value>, entry: Value, key: Key) {
    match list.iter_mut().find(|other| same(other, &entry, key)) {
        Some(other) => *other = entry,
        None => list.push(entry),
    }
}

/// Appends, unless there is an entry of the same name.
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

/// Text in which Kubernetes replaces no variables.
pub fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

/// A variable from a field of the pod.
pub(super) fn field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}})
}

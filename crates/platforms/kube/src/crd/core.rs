//! Core types of Kubernetes, as they stand in the schemas of our resources.
//!
//! `core-types.json` is what an API server says of them in `/openapi/v3`, without descriptions; a test of the operator makes it
//! anew (`UPDATE_GOLDENS=1 cargo test -p trellis-operator --test admission`). A definition may hold no references, so they are
//! filled in here.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::schema::Schema;

static TYPES: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("core-types.json")).expect("checked in, and read by every test")
});

/// The schema of a core type, by its name: `PodTemplateSpec`.
pub fn of(name: &str) -> Schema {
    Schema::made(named(name))
}

/// A list of core types. As in the other operator nothing tells its items apart: they are the users' to order and repeat.
pub fn list_of(name: &str, description: &str) -> Schema {
    Schema::list(description, of(name))
}

fn named(name: &str) -> Value {
    match name {
        // In a list by key, the API server must know how to compare these; elsewhere it takes what pods take.
        "Quantity" => Schema::quantity().into_value(),
        "IntOrString" => Schema::number_or_text().into_value(),
        "ObjectMeta" => metadata().into_value(),
        _ => filled(&TYPES[name]),
    }
}

/// What a template may say of the objects that are made from it. Everything else there is the API server's.
fn metadata() -> Schema {
    let words = || Schema::made(serde_json::json!({ "type": "object", "additionalProperties": { "type": "string" } }));
    Schema::made(serde_json::json!({ "type": "object" })).field("labels", words()).field("annotations", words())
}

fn filled(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    if let Some(name) = fields.get("$ref").and_then(Value::as_str) {
        return named(name);
    }
    let filled = fields.iter().filter(|(name, value)| !is_default(name, value)).map(|(name, value)| {
        let value = match name.as_str() {
            "items" | "additionalProperties" => filled(value),
            "properties" => Value::Object(all_filled(value)),
            _ => value.clone(),
        };
        (name.clone(), value)
    });
    Value::Object(filled.collect())
}

fn all_filled(fields: &Value) -> Map<String, Value> {
    let fields = fields.as_object().into_iter().flatten();
    fields.map(|(name, schema)| (name.clone(), filled(schema))).collect()
}

/// Lists are atomic where nothing is said: leaving it out saves a tenth of the definition.
fn is_default(name: &str, value: &Value) -> bool {
    name == "x-kubernetes-list-type" && value == "atomic"
}

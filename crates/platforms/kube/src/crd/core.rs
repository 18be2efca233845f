//! Schemas of core types of Kubernetes for our resources.
//!
//! `core-types.json` comes from `/openapi/v3` of an API server, without descriptions. A test of the operator generates
//! it (`UPDATE_GOLDENS=1 cargo test -p trellis-operator --test admission`). A definition must not contain references,
//! so they are resolved here.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::schema::Schema;

static TYPES: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("core-types.json")).expect("checked in, and read by every test")
});

/// The schema of a core type by its name: `PodTemplateSpec`.
pub fn of(name: &str) -> Schema {
    Schema::made(named(name))
}

/// A list of core types without merge keys, as in the other operator: users may order and repeat items.
pub fn list_of(name: &str, description: &str) -> Schema {
    Schema::list(description, of(name))
}

fn named(name: &str) -> Value {
    match name {
        // Keys of list items must have types that the API server can compare.
        "Quantity" => Schema::quantity().into_value(),
        "IntOrString" => Schema::number_or_text().into_value(),
        "ObjectMeta" => metadata().into_value(),
        _ => filled(&TYPES[name]),
    }
}

/// Fields of a template for objects. All other metadata belong to the API server.
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

/// Lists are atomic by default: omitting it saves a tenth of the definition.
fn is_default(name: &str, value: &Value) -> bool {
    name == "x-kubernetes-list-type" && value == "atomic"
}

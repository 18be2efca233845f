//! The JSON Schema of the document, from the code that reads it.

use serde_json::{Map, Value as Json, json};

use crate::document;
use crate::object::{Property, Shape, describe};

const TITLE: &str = "Federation (trellis.dev/v1)";

/// JSON Schema, draft 2020-12, of single fields. Checks across fields are not part of it.
pub fn schema() -> Json {
    let mut schema = object(&describe(document::federation));
    let head = schema.as_object_mut().expect("an object is described by one");
    head.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    head.insert("$id".to_owned(), json!("https://trellis.dev/v1/federation.json"));
    head.insert("title".to_owned(), json!(TITLE));
    schema
}

fn object(properties: &[Property]) -> Json {
    let fields: Map<String, Json> = properties.iter().map(|field| (field.name.to_owned(), property(field))).collect();
    let required: Vec<&str> = properties.iter().filter(|field| field.required).map(|field| field.name).collect();
    let mut schema = json!({ "type": "object", "additionalProperties": false, "properties": fields });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn property(field: &Property) -> Json {
    let mut schema = match &field.shape {
        Shape::Value { schema, .. } => schema.clone(),
        Shape::Object(fields) => object(fields),
        Shape::Objects(fields) => json!({ "type": "array", "items": object(fields) }),
    };
    schema["description"] = json!(field.help);
    if let Some(default) = field.default {
        // Numbers and flags have their JSON type; other defaults are text.
        schema["default"] = serde_json::from_str(default).unwrap_or_else(|_| json!(default));
    }
    schema
}

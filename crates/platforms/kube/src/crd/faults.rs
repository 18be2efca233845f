//! What is wrong with a resource that the API server let pass by another definition than ours: types, words, numbers and what is
//! missing, with the place of each. Not the rules: who can read a resource asks them of its fields.

use serde_json::Value;

/// Everything, in the order of the schema.
pub fn faults(definition: &Value, resource: &Value) -> Vec<String> {
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut faults = Vec::new();
    for part in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        look(&schema["properties"][part], &resource[part], part, &mut faults);
    }
    faults
}

fn look(schema: &Value, value: &Value, place: &str, faults: &mut Vec<String>) {
    if let Some(fault) = fault(schema, value) {
        faults.push(format!("{place}: {fault}"));
        return;
    }
    let required = |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        match value.get(name) {
            Some(value) => look(field, value, &format!("{place}.{name}"), faults),
            None if required(name) => faults.push(format!("{place}.{name} is missing")),
            None => {}
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        look(&schema["items"], item, &format!("{place}[{index}]"), faults);
    }
    if schema["additionalProperties"].is_object() {
        for (key, item) in value.as_object().into_iter().flatten() {
            look(&schema["additionalProperties"], item, &format!("{place}.{key}"), faults);
        }
    }
}

/// Of the value itself, not of what is in it.
fn fault(schema: &Value, value: &Value) -> Option<String> {
    let wanted = match schema["type"].as_str()? {
        "string" if !value.is_string() => "text",
        "boolean" if !value.is_boolean() => "true or false",
        "integer" if !value.is_i64() && !value.is_u64() => "a whole number",
        "number" if !value.is_number() => "a number",
        "array" if !value.is_array() => "a list",
        "object" if !value.is_object() => "a mapping",
        _ => return out_of_bounds(schema, value),
    };
    Some(if value.is_null() { "is missing".to_owned() } else { format!("{value} is not {wanted}") })
}

fn out_of_bounds(schema: &Value, value: &Value) -> Option<String> {
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        let words: Vec<String> = words.iter().map(Value::to_string).collect();
        return Some(format!("{value} is none of {}", words.join(", ")));
    }
    // Beyond 32 bits there is nothing to read it into; what is only unwise is told elsewhere.
    let number = value.as_i64()?;
    (schema["format"] == "int32" && i32::try_from(number).is_err()).then(|| format!("{value} is too large"))
}

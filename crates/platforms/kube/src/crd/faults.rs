//! Violations of our schema in a resource that another definition admitted: types, enums, ranges and missing fields,
//! with their paths. Validation rules are not included.

use serde_json::Value;

/// All violations, in the order of the schema.
pub fn faults(definition: &Value, resource: &Value) -> Vec<String> {
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut faults = Vec::new();
    for part in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        check(&schema["properties"][part], &resource[part], part, &mut faults);
    }
    faults
}

fn check(schema: &Value, value: &Value, place: &str, faults: &mut Vec<String>) {
    if let Some(fault) = fault(schema, value) {
        faults.push(format!("{place}: {fault}"));
        return;
    }
    let required = |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        match value.get(name) {
            Some(value) => check(field, value, &format!("{place}.{name}"), faults),
            None if required(name) => faults.push(format!("{place}.{name} is missing")),
            None => {}
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(&schema["items"], item, &format!("{place}[{index}]"), faults);
    }
    if schema["additionalProperties"].is_object() {
        for (key, item) in value.as_object().into_iter().flatten() {
            check(&schema["additionalProperties"], item, &format!("{place}.{key}"), faults);
        }
    }
}

/// Violations of the value itself, without its fields.
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
    // Values beyond 32 bits cannot be parsed; other limits are reported elsewhere.
    let number = value.as_i64()?;
    (schema["format"] == "int32" && i32::try_from(number).is_err()).then(|| format!("{value} is too large"))
}

//! The fields in which two specs of a part differ.

use serde_json::Value;
use trellis_plan::Spec;

/// Maximum number of listed fields.
const MAX_FIELDS: usize = 8;

/// Names of the fields that differ, as the spec calls them: `image`, `env.LEVEL`.
pub fn differences(one: &Spec, other: &Spec) -> Vec<String> {
    let plain = |spec: &Spec| {
        let value = match spec {
            Spec::Coordinator(coordinator) => serde_json::to_value(coordinator),
            Spec::Node(node) => serde_json::to_value(node),
        };
        value.unwrap_or_default()
    };
    let mut found = Vec::new();
    compare("", &plain(one), &plain(other), &mut found);
    if found.len() > MAX_FIELDS {
        let more = found.len() - MAX_FIELDS;
        found.truncate(MAX_FIELDS);
        found.push(format!("{more} more"));
    }
    found
}

fn compare(path: &str, one: &Value, other: &Value, found: &mut Vec<String>) {
    match (one, other) {
        (one, other) if one == other => {}
        (Value::Object(one), Value::Object(another)) => {
            let mut keys: Vec<&String> = one.keys().chain(another.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                compare(&path, &of(one), &of(another), found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_that_differ_are_named() {
        let one = json!({"image": null, "env": {"A": "1", "B": "2"}, "tls": "Auto", "same": [1]});
        let other = json!({"image": "x", "env": {"A": "1", "C": "3"}, "tls": {"Files": {}}, "same": [1]});
        let mut found = Vec::new();
        compare("", &one, &other, &mut found);
        assert_eq!(found, ["env.B", "env.C", "image", "tls"]);
    }
}

//! Shape of a response: the set of element paths.

use std::collections::BTreeSet;

use serde_json::Value;
use trellis_fake_one::element::Element;

pub fn of_xml(root: &Element) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    walk_xml(root, "", &mut found);
    found
}

fn walk_xml(element: &Element, above: &str, found: &mut BTreeSet<String>) {
    let path = format!("{above}/{}", element.name);
    element.children().iter().for_each(|child| walk_xml(child, &path, found));
    found.insert(path);
}

pub fn of_json(root: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    walk_json(root, "", &mut found);
    found
}

fn walk_json(value: &Value, above: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            object.iter().for_each(|(name, value)| walk_json(value, &format!("{above}/{name}"), found))
        }
        Value::Array(values) => values.iter().for_each(|value| walk_json(value, &format!("{above}[]"), found)),
        _ => {}
    }
    found.insert(above.to_owned());
}

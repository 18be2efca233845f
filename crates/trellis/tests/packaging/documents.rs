//! YAML as other programs write it, read into JSON.

use std::collections::BTreeMap;

use serde_json::Value;

/// The documents of a stream, without empty ones.
pub fn read(text: &str) -> Vec<Value> {
    trellis_spec::yaml::read(text, "documents").unwrap_or_else(|why| panic!("{why}\n{text}"))
}

/// Objects by kind, namespace and name, which must be unique.
pub fn by_identity(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for object in objects {
        let meta = &object["metadata"];
        let place = meta["namespace"].as_str().unwrap_or("-");
        let name = meta["name"].as_str().expect("a name");
        let identity = format!("{} {place}/{name}", object["kind"].as_str().expect("a kind"));
        assert!(found.insert(identity.clone(), object).is_none(), "{identity} is there twice");
    }
    found
}

//! YAML as other programs write it, read into JSON.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use yaml_rust2::{Yaml, YamlLoader};

/// The documents of a stream, without empty ones.
pub fn read(text: &str) -> Vec<Value> {
    let documents = YamlLoader::load_from_str(text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    documents.iter().map(value).filter(|document| !document.is_null()).collect()
}

fn value(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Real(text) => json!(text.parse::<f64>().expect("a number")),
        Yaml::Integer(number) => json!(number),
        Yaml::String(text) => json!(text),
        Yaml::Boolean(truth) => json!(truth),
        Yaml::Array(items) => items.iter().map(value).collect(),
        Yaml::Hash(map) => {
            let field = |(key, item): (&Yaml, &Yaml)| (value(key).as_str().expect("a key").to_owned(), value(item));
            Value::Object(map.iter().map(field).collect::<Map<_, _>>())
        }
        Yaml::Null | Yaml::BadValue | Yaml::Alias(_) => Value::Null,
    }
}

/// Objects by kind, namespace and name; none may be there twice.
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

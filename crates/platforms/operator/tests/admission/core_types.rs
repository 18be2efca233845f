//! The core types in our definitions equal those of a real API server.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};
use trellis_testing::kube::{Parts, shared};

/// The release of the file. Other releases have other fields, and tests must not depend on the release of this machine.
const RELEASE: (&str, &str) = ("1", "35");
const PLACES: [&str; 2] = ["/openapi/v3/api/v1", "/openapi/v3/apis/networking.k8s.io/v1"];
const WANTED: [&str; 7] = [
    "io.k8s.api.core.v1.EnvVar",
    "io.k8s.api.core.v1.PersistentVolumeClaimSpec",
    "io.k8s.api.core.v1.PodTemplateSpec",
    "io.k8s.api.core.v1.ResourceRequirements",
    "io.k8s.api.core.v1.Volume",
    "io.k8s.api.core.v1.VolumeMount",
    "io.k8s.api.networking.v1.NetworkPolicyPeer",
];
/// Types that definitions describe differently.
const OWN: [&str; 3] = ["IntOrString", "ObjectMeta", "Quantity"];
/// Supported keywords with an effect; no enumerations, which grow with releases.
const KEPT: [&str; 5] =
    ["type", "format", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"];
/// Keys of lists with defaults.
const DEFAULTS: [(&str, &str); 2] = [("ContainerPort", "protocol"), ("LocalObjectReference", "name")];
/// Our programs are the containers; a template does not require others.
const NOT_REQUIRED: (&str, &str) = ("PodSpec", "containers");
/// Not permitted in templates.
const LEFT_OUT: (&str, &str) = ("PodSpec", "ephemeralContainers");

#[test]
fn core_types_are_those_of_the_api_server() {
    let Some(plane) = shared(Parts::ApiServer) else { return };
    let version: Value = serde_json::from_str(&plane.get("/version")).expect("JSON");
    if (version["major"].as_str(), version["minor"].as_str()) != (Some(RELEASE.0), Some(RELEASE.1)) {
        eprintln!(
            "SKIP: the API server is {}, and core-types.json is of {}.{}",
            version["gitVersion"], RELEASE.0, RELEASE.1
        );
        return;
    }
    let mut schemas = BTreeMap::new();
    for place in PLACES {
        let told: Value = serde_json::from_str(&plane.get(place)).expect("JSON");
        let Value::Object(told) = told["components"]["schemas"].clone() else { panic!("{place} has no schemas") };
        schemas.extend(told);
    }
    let text = written(&distilled(&schemas));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kube/src/crd/core-types.json");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&file, text).expect("written");
        return;
    }
    let there = std::fs::read_to_string(&file).expect("checked in");
    assert!(
        there == text,
        "core-types.json is of other types: UPDATE_GOLDENS=1 cargo test -p trellis-operator --test admission"
    );
}

/// The selected types and the types that they refer to, by short name.
fn distilled(schemas: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let mut types = BTreeMap::new();
    let mut left: Vec<String> = WANTED.map(str::to_owned).to_vec();
    while let Some(name) = left.pop() {
        let owner = short(&name).to_owned();
        if !OWN.contains(&owner.as_str()) && !types.contains_key(&owner) {
            let schema = kept(&schemas[&name], &owner, None, &mut left);
            types.insert(owner, schema);
        }
    }
    types
}

/// A schema without descriptions and other unsupported keywords. Adds the types that it refers to to `left`.
fn kept(schema: &Value, owner: &str, field: Option<&str>, left: &mut Vec<String>) -> Value {
    if let Some(to) = schema["$ref"].as_str().or(schema["allOf"][0]["$ref"].as_str()) {
        let name = to.rsplit('/').next().expect("a reference ends with a name");
        left.push(name.to_owned());
        return serde_json::json!({ "$ref": short(name) });
    }
    let mut result = Map::new();
    for (name, value) in schema.as_object().expect("a schema") {
        let value = match name.as_str() {
            "items" | "additionalProperties" => kept(value, owner, None, left),
            "properties" => {
                let fields = value.as_object().expect("fields").iter();
                let fields = fields.filter(|(field, _)| (owner, field.as_str()) != LEFT_OUT);
                fields
                    .map(|(field, schema)| (field.clone(), kept(schema, owner, Some(field), left)))
                    .collect::<Map<_, _>>()
                    .into()
            }
            "required" => {
                let all = value.as_array().expect("a list").iter();
                let all: Vec<Value> =
                    all.filter(|one| (owner, one.as_str().expect("text")) != NOT_REQUIRED).cloned().collect();
                if all.is_empty() {
                    continue;
                }
                all.into()
            }
            "default" if field.is_some_and(|field| DEFAULTS.contains(&(owner, field))) => value.clone(),
            other if KEPT.contains(&other) => value.clone(),
            _ => continue,
        };
        result.insert(name.clone(), value);
    }
    result.into()
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().expect("never empty")
}

/// One type per line, for readable differences.
fn written(types: &BTreeMap<String, Value>) -> String {
    let lines: Vec<String> = types.iter().map(|(name, schema)| format!("\"{name}\":{schema}")).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

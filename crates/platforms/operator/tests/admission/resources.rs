//! Base resources, and changes of them.

use serde_json::{Value, json};

/// The minimal resource with mode StatefulSet.
pub fn stateful() -> Value {
    federation(json!({
        "mode": "StatefulSet",
        "isolationMode": "subprocess",
        "superlink": { "image": "flwr/superlink:1.25.0" },
        "supernodes": { "image": "flwr/supernode:1.25.0", "pools": [{ "name": "default", "replicas": 2 }] },
    }))
}

/// The minimal resource with mode DaemonSet.
pub fn daemon() -> Value {
    with(stateful(), &json!({ "spec": { "mode": "DaemonSet", "supernodes": { "pools": [{ "name": "default" }] } } }))
}

/// The minimal resource with isolation mode process.
pub fn process() -> Value {
    let pool = json!({ "name": "default", "replicas": 2, "images": { "superexecClientApp": "flwr/superexec:1.25.0" } });
    let superlink = json!({ "superexecImage": "flwr/superexec:1.25.0" });
    let spec = json!({ "isolationMode": "process", "superlink": superlink, "supernodes": { "pools": [pool] } });
    with(stateful(), &json!({ "spec": spec }))
}

fn federation(spec: Value) -> Value {
    json!({ "apiVersion": "flwr.exalsius.ai/v1", "kind": "Federation", "metadata": { "name": "ward" }, "spec": spec })
}

pub fn run() -> Value {
    json!({
        "apiVersion": "flwr.exalsius.ai/v1",
        "kind": "FederationRun",
        "metadata": { "name": "first" },
        "spec": { "federation": "ward", "app": { "native": "mlp" } },
    })
}

/// A merge patch: mappings are merged, `null` removes, other values replace.
pub fn with(mut resource: Value, change: &Value) -> Value {
    merge(&mut resource, change);
    resource
}

fn merge(target: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *target = change.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in change {
        if value.is_null() {
            target.as_object_mut().expect("made one, above").remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}

/// With one pool that has these fields and a name.
pub fn with_pool(resource: Value, fields: &Value) -> Value {
    let mut pool = resource["spec"]["supernodes"]["pools"][0].clone();
    merge(&mut pool, fields);
    with(resource, &json!({ "spec": { "supernodes": { "pools": [pool] } } }))
}

pub fn with_spec(resource: Value, fields: &Value) -> Value {
    with(resource, &json!({ "spec": fields }))
}

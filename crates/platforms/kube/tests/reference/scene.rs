//! A federation and its objects.

use serde_json::{Value, json};
use trellis_kube::federation::Federation;
use trellis_kube::render::{Ground, Rendered, render};

pub const UID: &str = "0a1b2c";

/// A resource of one pool, with fields of ours on top: `superlink`, `pool`, `supernodes` and everything else of `spec`.
pub fn federation(mode: &str, isolation: &str, fields: &Value) -> Federation {
    let process = isolation == "process";
    let mut superlink = json!({"image": "flwr/superlink:1.25.0"});
    let mut pool = json!({"name": "a"});
    if process {
        superlink["superexecImage"] = "flwr/superexec:1.25.0".into();
        pool["images"] = json!({"superexecClientApp": "flwr/superexec:1.25.0"});
    }
    if mode == "StatefulSet" {
        pool["replicas"] = 2.into();
    }
    overlay(&mut superlink, &fields["superlink"]);
    overlay(&mut pool, &fields["pool"]);
    let mut spec = json!({
        "mode": mode, "isolationMode": isolation, "superlink": superlink,
        "supernodes": {"image": "flwr/supernode:1.25.0", "pools": [pool]},
    });
    overlay(&mut spec["supernodes"], &fields["supernodes"]);
    for (field, value) in fields.as_object().into_iter().flatten() {
        if !["superlink", "pool", "supernodes"].contains(&field.as_str()) {
            spec[field] = value.clone();
        }
    }
    let metadata = json!({"name": "fed", "namespace": "lab", "uid": UID, "generation": 1});
    Federation::read(&json!({"metadata": metadata, "spec": spec})).expect("a resource")
}

pub fn overlay(ours: &mut Value, theirs: &Value) {
    for (field, value) in theirs.as_object().into_iter().flatten() {
        ours[field] = value.clone();
    }
}

pub fn rendered(mode: &str, isolation: &str, fields: &Value) -> Rendered {
    let rendered = render(&federation(mode, isolation, fields), &Ground::default());
    assert!(rendered.problems.is_empty(), "{:?}", rendered.problems);
    rendered
}

pub fn object<'r>(rendered: &'r Rendered, kind: &str, name: &str) -> &'r Value {
    let found = rendered.objects.iter().find(|object| object.0["kind"] == kind && object.0["metadata"]["name"] == name);
    &found.unwrap_or_else(|| panic!("there is no {kind} {name}")).0
}

pub fn superlink(rendered: &Rendered) -> &Value {
    object(rendered, "StatefulSet", "fed-superlink")
}

pub fn service(rendered: &Rendered) -> &Value {
    object(rendered, "Service", "fed-superlink")
}

pub fn pool<'r>(rendered: &'r Rendered, kind: &str) -> &'r Value {
    object(rendered, kind, "fed-supernode-a")
}

pub fn pod(workload: &Value) -> &Value {
    &workload["spec"]["template"]["spec"]
}

pub fn containers(workload: &Value) -> Vec<&str> {
    let list = pod(workload)["containers"].as_array().expect("containers");
    list.iter().map(|container| container["name"].as_str().expect("a name")).collect()
}

pub fn container<'w>(workload: &'w Value, name: &str) -> &'w Value {
    let list = pod(workload)["containers"].as_array().expect("containers");
    list.iter().find(|container| container["name"] == name).unwrap_or_else(|| panic!("there is no container {name}"))
}

pub fn args<'w>(workload: &'w Value, name: &str) -> Vec<&'w str> {
    let args = container(workload, name)["args"].as_array().expect("arguments");
    args.iter().map(|argument| argument.as_str().expect("text")).collect()
}

pub fn ports(service: &Value) -> Vec<(String, i64, i64)> {
    let list = service["spec"]["ports"].as_array().expect("ports");
    let number = |value: &Value| value.as_i64().expect("a number");
    list.iter()
        .map(|port| (port["name"].as_str().unwrap().to_owned(), number(&port["port"]), number(&port["targetPort"])))
        .collect()
}

pub fn names<'v>(list: &'v Value, key: &str) -> Vec<&'v str> {
    list.as_array().into_iter().flatten().map(|entry| entry[key].as_str().expect("text")).collect()
}

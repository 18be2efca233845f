use serde_json::json;

use super::*;

fn resource() -> Value {
    json!({
        "apiVersion": "flwr.exalsius.ai/v1",
        "kind": "Federation",
        "metadata": { "name": "ward", "namespace": "clinic", "uid": "u1", "generation": 3, "annotations": { "a": "b" } },
        "spec": {
            "mode": "StatefulSet",
            "isolationMode": "subprocess",
            "superlink": { "image": "flwr/superlink:1.25.0" },
            "supernodes": { "image": "flwr/supernode:1.25.0", "pools": [{ "name": "default", "replicas": 2 }] },
        },
    })
}

/// A path from the root, and its new value.
fn with(path: &str, value: Value) -> Value {
    let mut resource = resource();
    *resource.pointer_mut(path).expect("a place in the resource") = value;
    resource
}

#[test]
fn the_smallest_resource_is_read() {
    let federation = Federation::read(&resource()).expect("readable");
    assert_eq!((federation.name.as_str(), federation.namespace.as_str()), ("ward", "clinic"));
    assert_eq!((federation.uid.as_str(), federation.generation, federation.deleted), ("u1", 3, false));
    assert_eq!(federation.annotations["a"], "b");
    assert_eq!(federation.spec.insecure, None);
    let pool = &federation.spec.supernodes.pools[0];
    assert_eq!((pool.replicas, &pool.images), (Some(2), &Images::default()));
}

#[test]
fn what_only_other_definitions_let_pass_is_read_too() {
    let mut resource = resource();
    let spec = &mut resource["spec"];
    spec["superlink"]["resources"] = json!({ "limits": { "cpu": 2, "memory": "1Gi" } });
    spec["superlink"]["newer"] = json!({ "than": "ours" });
    spec["persistence"] = json!({ "size": 1_073_741_824 });
    let federation = Federation::read(&resource).expect("readable");
    assert_eq!(federation.spec.superlink.resources.as_ref().expect("given")["limits"]["cpu"], 2);
    assert_eq!(federation.spec.persistence.size.as_deref(), Some("1073741824"));
    let kept = serde_json::to_value(&federation.spec).expect("a spec is JSON");
    assert!(kept["superlink"].get("newer").is_none(), "{kept}");
}

#[test]
fn everything_that_cannot_be_read_is_told_with_its_place() {
    for (resource, expected) in [
        (with("/spec", Value::Null), "spec: is missing"),
        (
            with("/spec/mode", json!("Deployment")),
            "spec.mode: \"Deployment\" is none of \"DaemonSet\", \"StatefulSet\"",
        ),
        (with("/spec/superlink", json!({})), "spec.superlink.image is missing"),
        (with("/spec/supernodes/pools/0", json!({ "replicas": 1 })), "spec.supernodes.pools[0].name is missing"),
        (
            with("/spec/supernodes/pools/0/replicas", json!("2")),
            "spec.supernodes.pools[0].replicas: \"2\" is not a whole number",
        ),
        (
            with("/spec/supernodes/pools/0/replicas", json!(5_000_000_000_i64)),
            "spec.supernodes.pools[0].replicas: 5000000000 is too large",
        ),
        (
            with(
                "/spec/supernodes/pools/0",
                json!({ "name": 7, "nodeConfig": { "a": 1 }, "gpu": { "vendor": "intel" }, "extraArgs": [true] }),
            ),
            "spec.supernodes.pools[0].extraArgs[0]: true is not text; \
             spec.supernodes.pools[0].gpu.vendor: \"intel\" is none of \"nvidia\", \"amd\"; \
             spec.supernodes.pools[0].name: 7 is not text; \
             spec.supernodes.pools[0].nodeConfig.a: 1 is not text",
        ),
    ] {
        assert_eq!(Federation::read(&resource).expect_err("unreadable").to_string(), expected);
    }
}

#[test]
fn scaling_is_about_the_pool_it_names_or_the_only_one() {
    let scaled = |pools: Value, scaling: Value| {
        let mut resource = resource();
        resource["spec"]["supernodes"]["pools"] = pools;
        resource["spec"]["scaling"] = scaling;
        let federation = Federation::read(&resource).expect("readable");
        federation.spec.scaled_pool().map(|pool| pool.name.clone())
    };
    let two = json!([{ "name": "a", "replicas": 1 }, { "name": "b", "replicas": 1 }]);
    assert_eq!(scaled(json!([{ "name": "a", "replicas": 1 }]), json!({ "replicas": 3 })).as_deref(), Some("a"));
    assert_eq!(scaled(two.clone(), json!({ "pool": "b" })).as_deref(), Some("b"));
    assert_eq!(scaled(two.clone(), json!({ "replicas": 3 })), None);
    assert_eq!(scaled(two, json!({ "pool": "c" })), None);
}

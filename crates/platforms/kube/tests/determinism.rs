//! The objects do not depend on the order of fields in the resource.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use trellis_kube::federation::Federation;
use trellis_kube::render::{Ground, render};

/// Reverses the fields of all maps, as text: maps in memory may have an order of their own.
fn shuffled(value: &Value, seed: u64) -> String {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            let length = fields.len().max(1);
            fields.rotate_left(usize::try_from(seed).unwrap_or_default() % length);
            if seed % 2 == 1 {
                fields.reverse();
            }
            let field = |(name, value): (&String, &Value)| {
                format!("{}:{}", Value::from(name.as_str()), shuffled(value, seed / 2 + 1))
            };
            format!("{{{}}}", fields.into_iter().map(field).collect::<Vec<_>>().join(","))
        }
        Value::Array(list) => {
            format!("[{}]", list.iter().map(|value| shuffled(value, seed)).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

fn bytes(text: &str) -> String {
    let resource: Value = serde_json::from_str(text).unwrap();
    let rendered = render(&Federation::read(&resource).unwrap(), &Ground::default());
    assert!(!rendered.objects.is_empty(), "{:?}", rendered.problems);
    rendered.objects.iter().map(|object| object.0.to_string()).collect()
}

fn resource(variables: &[String], config: &[(String, String)], labels: &[String], stateful: bool) -> Value {
    let variable = |name: &String| json!({"name": name, "value": "1"});
    let map = |names: &[String]| names.iter().map(|name| (name.clone(), name.as_str().into())).collect::<Map<_, _>>();
    let mut pool = json!({
        "name": "a",
        "env": variables.iter().rev().map(variable).collect::<Vec<_>>(),
        "nodeConfig": config.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect::<Map<_, _>>(),
        "podTemplate": {"metadata": {"labels": map(labels)}, "spec": {"nodeSelector": map(labels)}},
        "gpu": {"vendor": "amd", "mountAll": true},
        "volumeMounts": [{"name": "z", "mountPath": "/z"}, {"name": "b", "mountPath": "/b"}],
    });
    if stateful {
        pool["replicas"] = 3.into();
    }
    json!({
        "metadata": {"name": "fed", "namespace": "lab", "uid": "1"},
        "spec": {
            "mode": if stateful { "StatefulSet" } else { "DaemonSet" },
            "isolationMode": "subprocess",
            "superlink": {"image": "flwr/superlink:1.25.0", "service": {"labels": map(labels), "annotations": map(labels)}},
            "supernodes": {
                "image": "flwr/supernode:1.25.0",
                "env": variables.iter().map(variable).collect::<Vec<_>>(),
                "pools": [pool],
            },
        },
    })
}

proptest! {
    #[test]
    fn the_order_of_maps_changes_nothing(
        variables in prop::collection::vec("[A-Z]{1,6}", 0..12),
        config in prop::collection::vec(("[a-z]{1,6}", "[a-z0-9$\"{}]{0,6}"), 0..8),
        labels in prop::collection::vec("[a-z]{1,6}", 0..8),
        stateful in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let resource = resource(&variables, &config, &labels, stateful);
        prop_assert_eq!(bytes(&resource.to_string()), bytes(&shuffled(&resource, seed)));
    }
}

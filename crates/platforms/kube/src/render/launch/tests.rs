use std::collections::BTreeMap;

use serde_json::{Value, json};
use trellis_flower::launch::Keepalive;
use trellis_testing::launch::{User, undeclared};

use super::super::{Ground, LaunchSettings, Trust as Secrets};
use super::*;
use crate::federation::Federation;
use crate::flower::Programs;

fn federation(path: &str, value: Value) -> Federation {
    let mut spec = json!({
        "mode": "StatefulSet", "isolationMode": "subprocess", "insecure": true,
        "superlink": {"image": "trellis-superlink:1"},
        "supernodes": {"image": "trellis-supernode:1", "pools": [{"name": "a", "replicas": 1}]},
    });
    if !path.is_empty() {
        // Missing fields are created on the path.
        let place = path.split('/').fold(&mut spec, |place, part| match part.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[part],
        });
        *place = value;
    }
    Federation::read(&json!({"metadata": {"name": "f", "namespace": "n"}, "spec": spec})).expect("a resource")
}

/// Descriptions that differ from the usual one in what a resource or its secrets can change.
fn described() -> Vec<(SuperLink, SuperNode)> {
    let keys = BTreeMap::from([("a".to_owned(), "keys".to_owned())]);
    let trust = Secrets { node_keys: keys, admin_secret: Some("admin".to_owned()), ..Secrets::default() };
    let secured = Ground { trust: Some(trust), ..Ground::default() };
    let given = Ground { durability: Durability::Given, ..Ground::default() };
    let launch = LaunchSettings {
        keepalive: Some(Keepalive { interval_s: 1, timeout_s: 2 }),
        endpoints: vec!["fl.example.org".to_owned()],
        superlink: Some("fl.example.org:1".to_owned()),
        node_name: Some("a-0".to_owned()),
        client_app: Some("app".to_owned()),
        gpu_memory_fraction: Some(0.5),
        node_config: BTreeMap::new(),
    };
    let planned = Ground { launch, ..Ground::default() };
    let usual = Ground::default();
    let all = [
        ("", Value::Null, &usual),
        ("", Value::Null, &secured),
        ("", Value::Null, &given),
        ("", Value::Null, &planned),
        ("superlink/image", "flwr/superlink:1.30.0".into(), &usual),
        ("supernodes/image", "flwr/supernode:1.30.0".into(), &usual),
        ("isolationMode", "process".into(), &usual),
        ("monitoring", json!({"metrics": true}), &usual),
        ("monitoring", json!({"jsonLogs": true}), &usual),
        ("security", json!({"nodeAuth": true}), &usual),
        ("superlink/extraArgs", json!(["--x"]), &usual),
        ("superlink/service", json!({"ports": {"grpc": 1}}), &usual),
        ("supernodes/pools/0/extraArgs", json!(["--x"]), &usual),
        ("supernodes/pools/0/nodeConfig", json!({"a": "1"}), &usual),
    ];
    let mut found: Vec<_> =
        all.iter().map(|(path, value, ground)| describe(&federation(path, value.clone()), ground)).collect();
    // One that serves apps with a certificate.
    let mut own = federation("superlink/image", "flwr/superlink:1.30.0".into());
    own.spec.isolation_mode = Isolation::Process;
    found.push(describe(&own, &secured));
    found
}

fn describe(federation: &Federation, ground: &Ground) -> (SuperLink, SuperNode) {
    let programs = Programs::of(federation);
    let scene = Scene { federation, ground, programs: &programs };
    let (pool, of_pool) = scene.pools().next().expect("a pool");
    (scene.superlink(), scene.supernode(pool, of_pool))
}

#[test]
fn every_field_of_a_launch_can_be_changed_or_is_declared() {
    let all = described();
    let (link, node) = &all[0];
    let common = all.iter().flat_map(|(other, _)| other.common.differences(&link.common)).collect();
    let links = all.iter().flat_map(|(other, _)| other.differences(link)).collect();
    let nodes = all.iter().flat_map(|(_, other)| other.differences(node)).collect();
    for (name, fields, changed) in [
        ("Common", Common::FIELDS, common),
        ("SuperLink", SuperLink::FIELDS, links),
        ("SuperNode", SuperNode::FIELDS, nodes),
    ] {
        assert_eq!(undeclared(User::Kubernetes, name, fields, &changed), Vec::<String>::new());
    }
}

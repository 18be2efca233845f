//! Services and network policies.

use serde_json::{Value, json};
use trellis_kube::render::{Ground, endpoints, render};

use crate::scene::{args, federation, object, pool, ports, rendered, service};

/// R26 to R30
#[test]
fn the_service_is_as_the_resource_says() {
    let service_fields = json!({
        "type": "LoadBalancer",
        "labels": {"team": "x", "app.kubernetes.io/name": "theirs"},
        "annotations": {"lb": "internal"},
    });
    let rendered = rendered("DaemonSet", "subprocess", &json!({"superlink": {"service": service_fields}}));
    let service = service(&rendered);
    assert_eq!(service["spec"]["type"], "LoadBalancer");
    assert_eq!(service["metadata"]["labels"]["team"], "x");
    assert_eq!(service["metadata"]["labels"]["app.kubernetes.io/name"], "superlink");
    assert_eq!(service["metadata"]["annotations"], json!({"lb": "internal"}));
}

/// R31, O2: nodes and users connect to the ports of the Service.
#[test]
fn ports_of_the_service_are_the_ones_that_are_called() {
    let given = json!({"grpc": 9192, "extra": 9193, "serverAppIO": 9191, "http": 81});
    let fields = |image: &str, node: &str| {
        let superlink = json!({"image": image, "superexecImage": "x/e", "service": {"ports": given}});
        json!({"superlink": superlink, "supernodes": {"image": node}})
    };
    for (superlink_image, node_image, expected, dialled) in [
        (
            "flwr/superlink:1.25.0",
            "flwr/supernode:1.25.0",
            vec![("fleet", 9192, 9092), ("control", 9193, 9093), ("serverappio", 9191, 9091), ("http", 81, 8000)],
            9192,
        ),
        (
            "flwr/superlink:1.39.0",
            "flwr/supernode:1.39.0",
            vec![("fleet", 9192, 9092), ("control", 9193, 8000), ("http", 81, 8000)],
            9192,
        ),
        (
            "flwr/superlink:1.42.0",
            "flwr/supernode:1.42.0",
            vec![("fleet", 9192, 8000), ("control", 9193, 8000), ("http", 81, 8000)],
            81,
        ),
        (
            "trellis-superlink:1",
            "flwr/supernode:1.42.0",
            vec![("fleet", 9192, 9092), ("control", 9193, 9093), ("http", 81, 8000)],
            81,
        ),
        (
            "trellis-superlink:1",
            "flwr/supernode:1.39.0",
            vec![("fleet", 9192, 9092), ("control", 9193, 9093), ("http", 81, 8000)],
            9192,
        ),
    ] {
        let fields = fields(superlink_image, node_image);
        let mut federation = federation("DaemonSet", "process", &fields);
        federation.spec.supernodes.pools[0].images.superexec_client_app = Some("x/e".to_owned());
        let rendered = render(&federation, &Ground::default());
        let expected: Vec<_> =
            expected.into_iter().map(|(name, port, target)| (name.to_owned(), port, target)).collect();
        assert_eq!(ports(service(&rendered)), expected, "{superlink_image}");
        let nodes = pool(&rendered, "DaemonSet");
        assert_eq!(args(nodes, "supernode")[0], format!("--superlink=fed-superlink:{dialled}"), "{superlink_image}");
        assert_eq!(endpoints(&federation).control, "fed-superlink.lab.svc:9193");
        assert_eq!(endpoints(&federation).http.as_deref(), Some("fed-superlink.lab.svc:81"));
    }
}

#[test]
fn ports_that_collide_are_told() {
    let problems = |ports: Value, image: &str| {
        let superlink = json!({"image": image, "service": {"ports": ports}});
        let fields = json!({"superlink": superlink, "version": "1.42.0", "supernodes": {"image": "x/n"}});
        render(&federation("DaemonSet", "subprocess", &fields), &Ground::default()).problems
    };
    assert_eq!(problems(json!({"grpc": 9000, "extra": 9000}), "x/l").len(), 1);
    assert_eq!(problems(json!({"grpc": 70000}), "x/l").len(), 1);
    // The default HTTP port, assigned to the Control API of a release that has one port for all.
    assert_eq!(problems(json!({"extra": 8000}), "x/l"), []);
    assert_eq!(problems(json!({"extra": 0, "grpc": 0}), "x/l"), []);
}

#[test]
fn only_who_should_reaches_the_superlink() {
    let client = json!({"podSelector": {"matchLabels": {"team": "x"}}});
    let fields = json!({"security": {"networkPolicy": {"enabled": true, "clients": [client]}}});
    let ground = Ground { operator_namespace: Some("ops".to_owned()), ..Ground::default() };
    let rendered = render(&federation("DaemonSet", "subprocess", &fields), &ground);
    let spec = &object(&rendered, "NetworkPolicy", "fed-superlink")["spec"];
    assert_eq!(spec["policyTypes"], json!(["Ingress"]));
    let nodes = json!({
        "app.kubernetes.io/instance": "fed", "app.kubernetes.io/managed-by": "flower-operator",
        "app.kubernetes.io/name": "supernode",
    });
    let operator = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ops"}}});
    let expected = json!([
        {"from": [{"podSelector": {"matchLabels": nodes}}], "ports": [{"protocol": "TCP", "port": 9092}]},
        {"from": [operator, client], "ports": [{"protocol": "TCP", "port": 9093}]},
    ]);
    assert_eq!(spec["ingress"], expected);
    assert_eq!(object(&rendered, "NetworkPolicy", "fed-supernode")["spec"]["ingress"], json!([]));
    // Without permitted clients there is no rule: an empty list of peers would admit everyone.
    let fields = json!({"security": {"networkPolicy": {"enabled": true}}});
    let alone = rendered_policy(&fields);
    assert_eq!(alone.as_array().map(Vec::len), Some(1));
}

#[test]
fn nodes_of_sites_come_from_where_the_sites_are() {
    let policy = |sites: Value| {
        let ingress = rendered_policy(&json!({"security": {"networkPolicy": {"enabled": true}}, "sites": sites}));
        ingress[0]["from"].clone()
    };
    let lab = json!({"name": "lab", "nodes": 1, "cidrs": ["203.0.113.0/24", "2001:db8::/32"]});
    let ward = json!({"name": "ward", "nodes": 2, "cidrs": ["198.51.100.7/32", "203.0.113.0/24"]});
    let from = policy(json!([lab, ward]));
    assert!(from[0]["podSelector"].is_object());
    let outside: Vec<&Value> =
        from.as_array().into_iter().flatten().skip(1).map(|peer| &peer["ipBlock"]["cidr"]).collect();
    assert_eq!(outside, ["198.51.100.7/32", "2001:db8::/32", "203.0.113.0/24"]);
    // A client without restrictions opens the port to all.
    assert_eq!(policy(json!([lab, {"name": "anywhere", "nodes": 1}])), Value::Null);
}

fn rendered_policy(fields: &Value) -> Value {
    let rendered = rendered("DaemonSet", "subprocess", fields);
    object(&rendered, "NetworkPolicy", "fed-superlink")["spec"]["ingress"].clone()
}

/// Nodes reach only the port that they dial, if users have a separate one.
#[test]
fn nodes_do_not_reach_the_port_of_users() {
    for (superlink, supernode, expected) in [
        ("trellis-superlink:1", "trellis-supernode:1", vec![9092]),
        ("trellis-superlink:1", "flwr/supernode:1.25.0", vec![9092]),
        ("trellis-superlink:1", "flwr/supernode:1.42.0", vec![8000, 9092]),
        ("flwr/superlink:1.25.0", "flwr/supernode:1.25.0", vec![9092]),
        ("flwr/superlink:1.42.0", "flwr/supernode:1.42.0", vec![8000]),
    ] {
        let fields = json!({
            "superlink": {"image": superlink}, "supernodes": {"image": supernode},
            "security": {"networkPolicy": {"enabled": true}},
        });
        let ports = rendered_policy(&fields)[0]["ports"].clone();
        let ports: Vec<i64> = ports.as_array().unwrap().iter().map(|port| port["port"].as_i64().unwrap()).collect();
        assert_eq!(ports, expected, "{superlink} {supernode}");
    }
}

/// After `kubectl scale`, another field sets the size of the pool; the status reports it.
#[test]
fn a_size_without_effect_is_told() {
    let notes = |scaling: i32| {
        let fields = json!({"pool": {"replicas": 2}, "scaling": {"pool": "a", "replicas": scaling}});
        let notes = rendered("StatefulSet", "subprocess", &fields).notes;
        notes.into_iter().map(|note| note.what).filter(|what| what.contains("scaling")).collect::<Vec<_>>()
    };
    assert_eq!(notes(5), ["it is 2 and has no effect, because spec.scaling.replicas is 5"]);
    assert_eq!(notes(2), Vec::<String>::new());
}

//! Arguments of programs, and node configs.

use serde_json::{Value, json};
use trellis_kube::render::{Ground, Trust, render};

use crate::scene::{args, container, containers, federation, names, pod, pool, rendered, superlink};

/// R32, R33, R34
#[test]
fn arguments_of_the_user_come_last() {
    let fields = json!({
        "superlink": {"extraArgs": ["--ssl-certfile=/c", "--database", "/d/state.db"]},
        "pool": {"extraArgs": ["--max-retries", "5"], "nodeConfig": {"a": "1"}},
    });
    let rendered = rendered("DaemonSet", "subprocess", &fields);
    let expected = [
        "--isolation=subprocess",
        "--insecure",
        "--serverappio-api-address=127.0.0.1:9091",
        "--health-server-address=0.0.0.0:9098",
        "--ssl-certfile=/c",
        "--database",
        "/d/state.db",
    ];
    assert_eq!(args(superlink(&rendered), "superlink"), expected);
    let expected = [
        "--superlink=fed-superlink:9092",
        "--isolation=subprocess",
        "--insecure",
        "--clientappio-api-address=127.0.0.1:9094",
        "--health-server-address=0.0.0.0:9098",
        "--max-retries",
        "5",
        "--node-config=a=1",
    ];
    assert_eq!(args(pool(&rendered, "DaemonSet"), "supernode"), expected);
}

/// R35, R36, R37
#[test]
fn insecure_is_so_unless_it_is_false() {
    for (insecure, there) in [(json!(null), true), (json!(true), true), (json!(false), false)] {
        let rendered = rendered("DaemonSet", "subprocess", &json!({"insecure": insecure}));
        assert_eq!(args(superlink(&rendered), "superlink").contains(&"--insecure"), there);
        assert_eq!(args(pool(&rendered, "DaemonSet"), "supernode").contains(&"--insecure"), there);
    }
}

/// R38, R39, T2, T3: a SuperExec trusts the authority if its API has TLS. `--insecure` is set only for APIs within the pod: that of
/// a node, and that of releases without TLS there, which require the flag.
#[test]
fn a_superexec_is_called_as_its_release_wants_it() {
    let certificates = ["--ssl-certfile=/c/crt", "--ssl-keyfile=/c/key", "--ssl-ca-certfile=/c/ca"];
    for (minor, expected) in [
        (25, vec!["--plugin-type=serverapp", "--appio-api-address=localhost:9091", "--insecure"]),
        (29, vec!["--plugin-type=serverapp", "--appio-api-address=localhost:9091", "--insecure"]),
        (37, vec!["--plugin-type=serverapp", "--runtime-api-address=localhost:8000", "--root-certificates=/c/ca"]),
        (42, vec!["--runtime-api-address=localhost:8000", "--root-certificates=/c/ca"]),
    ] {
        let image = |program: &str| format!("flwr/{program}:1.{minor}.0");
        let fields = json!({
            "insecure": false,
            "superlink": {"image": image("superlink"), "superexecImage": image("superexec"), "extraArgs": certificates},
            "supernodes": {"image": image("supernode")},
            "pool": {"images": {"superexecClientApp": image("superexec")}, "extraArgs": ["--root-certificates=/c/ca"]},
        });
        let rendered = rendered("DaemonSet", "process", &fields);
        let (superlink, nodes) = (superlink(&rendered), pool(&rendered, "DaemonSet"));
        assert!(!args(superlink, "superlink").contains(&"--insecure"));
        assert!(!args(nodes, "supernode").contains(&"--insecure"));
        assert_eq!(args(superlink, "superexec-serverapp")[..expected.len()], expected, "1.{minor}");
        assert!(args(nodes, "superexec-clientapp").contains(&"--insecure"), "1.{minor}");
    }
    // Settings of the user for a sidecar take precedence.
    let fields = json!({"superlink": {"superexecExtraArgs": ["--root-certificates", "/own"]}});
    let rendered = rendered("DaemonSet", "process", &fields);
    assert!(!args(superlink(&rendered), "superexec-serverapp").contains(&"--insecure"));
}

/// N1, O7: the same values, without a shell.
#[test]
fn nodes_of_a_statefulset_know_their_number() {
    let config = json!({"partition-id": "{index}", "num-partitions": "{replicas}", "name": "client-{index}"});
    let rendered = rendered("StatefulSet", "subprocess", &json!({"pool": {"replicas": 4, "nodeConfig": config}}));
    let node = container(pool(&rendered, "StatefulSet"), "supernode");
    assert_eq!(node["command"], Value::Null);
    let expected = "--node-config=name=\"client-$(FLOWER_INDEX)\" num-partitions=4 partition-id=$(FLOWER_INDEX)";
    assert_eq!(args(pool(&rendered, "StatefulSet"), "supernode").last(), Some(&expected));
    let paths: Vec<_> = node["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| {
            (variable["name"].as_str().unwrap(), variable["valueFrom"]["fieldRef"]["fieldPath"].as_str().unwrap())
        })
        .collect();
    let expected = [
        ("FLOWER_INDEX", "metadata.labels['apps.kubernetes.io/pod-index']"),
        ("FLOWER_NODE_NAME", "spec.nodeName"),
        ("POD_NAME", "metadata.name"),
    ];
    assert_eq!(paths, expected);
}

/// N2
#[test]
fn nodes_of_a_daemonset_know_their_machine() {
    let config = json!({"machine": "{node}", "pool": "{pool}", "count": "2"});
    let rendered = rendered("DaemonSet", "subprocess", &json!({"pool": {"nodeConfig": config}}));
    let nodes = pool(&rendered, "DaemonSet");
    let expected = "--node-config=count=2 machine=\"$(FLOWER_NODE_NAME)\" pool=\"a\"";
    assert_eq!(args(nodes, "supernode").last(), Some(&expected));
    assert_eq!(names(&container(nodes, "supernode")["env"], "name"), ["FLOWER_NODE_NAME", "POD_NAME"]);
    assert_eq!(container(nodes, "supernode")["command"], Value::Null);
}

/// N3, O8
#[test]
fn settings_that_are_the_same_everywhere_need_no_variables() {
    for (mode, config, expected) in [
        ("DaemonSet", json!({"n": "5", "s": "mnist", "p": "{pool}"}), "--node-config=n=5 p=\"a\" s=\"mnist\""),
        ("StatefulSet", json!({"of": "{replicas}"}), "--node-config=of=2"),
    ] {
        let rendered = rendered(mode, "subprocess", &json!({"pool": {"nodeConfig": config}}));
        assert_eq!(args(pool(&rendered, mode), "supernode").last(), Some(&expected));
        assert_eq!(container(pool(&rendered, mode), "supernode")["env"], Value::Null);
        assert_eq!(container(pool(&rendered, mode), "supernode")["command"], Value::Null);
    }
}

/// N4, and 2.3 mode validation
#[test]
fn nodes_of_a_daemonset_have_no_number() {
    for value in ["{index}", "x-{replicas}"] {
        let fields = json!({"pool": {"nodeConfig": {"id": value}}});
        let rendered = render(&federation("DaemonSet", "subprocess", &fields), &Ground::default());
        assert!(rendered.objects.is_empty());
        let [problem] = &rendered.problems[..] else { panic!("one problem: {:?}", rendered.problems) };
        let expected =
            "pool \"a\" nodeConfig key \"id\" uses {index} or {replicas} which are not supported in DaemonSet mode";
        assert_eq!(problem.what, expected);
        assert_eq!(problem.advice, "use {node} or {pool} instead");
        assert_eq!(problem.place, "spec.supernodes.pools[0].nodeConfig");
    }
    for (mode, value) in [("StatefulSet", "{index}"), ("StatefulSet", "{replicas}"), ("DaemonSet", "{node}")] {
        rendered(mode, "subprocess", &json!({"pool": {"nodeConfig": {"id": value}}}));
    }
}

/// T1: our certificates are mounted and set; a program that reads them only once is restarted when they change.
#[test]
fn certificates_of_ours_are_mounted_and_said() {
    let trust = Trust {
        server_secret: "server".to_owned(),
        authority_secret: "authority".to_owned(),
        revision: "r1".to_owned(),
        bundle_revision: "b1".to_owned(),
        admin_secret: Some("admin".to_owned()),
        ..Trust::default()
    };
    let ground = Ground { trust: Some(trust), ..Ground::default() };
    let link = |image: &str| {
        let fields = json!({"superlink": {"image": image}, "supernodes": {"image": image.replace("link", "node")}});
        render(&federation("StatefulSet", "subprocess", &fields), &ground)
    };
    for (image, revisions, token) in [
        ("flwr/superlink:1.25.0", [json!("r1"), json!("b1")], false),
        ("flwr/superlink:1.42.0", [json!("r1"), json!("b1")], false),
        ("trellis-superlink:1", [Value::Null, Value::Null], true),
    ] {
        let rendered = link(image);
        let (superlink, nodes) = (superlink(&rendered), pool(&rendered, "StatefulSet"));
        let said = args(superlink, "superlink");
        for argument in [
            "certfile=/etc/trellis/tls/tls.crt",
            "keyfile=/etc/trellis/tls/tls.key",
            "ca-certfile=/etc/trellis/tls/ca.crt",
        ] {
            assert!(said.contains(&format!("--ssl-{argument}").as_str()), "{image}: {said:?}");
        }
        assert!(args(nodes, "supernode").contains(&"--root-certificates=/etc/trellis/tls/ca.crt"));
        for workload in [superlink, nodes] {
            let open = containers(workload).iter().any(|name| args(workload, name).contains(&"--insecure"));
            assert!(!open, "{image}");
        }
        assert_eq!(said.contains(&"--admin-token-file=/etc/trellis/admin/token"), token, "{image}");
        let found = [superlink, nodes]
            .map(|workload| workload["spec"]["template"]["metadata"]["annotations"]["trellis.dev/trust"].clone());
        assert_eq!(found, revisions, "{image}");
        // Nodes have no key of the SuperLink.
        let secret = |workload: &Value| {
            let volumes = pod(workload)["volumes"].as_array().expect("volumes");
            volumes.iter().find(|volume| volume["name"] == "trellis-tls").expect("it is there")["secret"].clone()
        };
        assert_eq!(secret(nodes)["secretName"], "authority");
        assert_eq!(names(&secret(nodes)["items"], "key"), ["ca.crt"]);
        assert_eq!(secret(superlink)["secretName"], "server");
    }
}

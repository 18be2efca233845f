//! What the tests of the operator this one takes the place of hold, in our words: reference R1 to R48 and N1 to N4, as far as they
//! are about objects. Order is part of it (O9).

use serde_json::{Value, json};
use trellis_kube::federation::Federation;
use trellis_kube::render::{Durability, Ground, Rendered, Trust, endpoints, render};

const UID: &str = "0a1b2c";

/// A resource of one pool, with fields of ours on top: `superlink`, `pool`, `supernodes` and everything else of `spec`.
fn federation(mode: &str, isolation: &str, fields: &Value) -> Federation {
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

fn overlay(ours: &mut Value, theirs: &Value) {
    for (field, value) in theirs.as_object().into_iter().flatten() {
        ours[field] = value.clone();
    }
}

fn rendered(mode: &str, isolation: &str, fields: &Value) -> Rendered {
    let rendered = render(&federation(mode, isolation, fields), &Ground::default());
    assert!(rendered.problems.is_empty(), "{:?}", rendered.problems);
    rendered
}

fn object<'r>(rendered: &'r Rendered, kind: &str, name: &str) -> &'r Value {
    let found = rendered.objects.iter().find(|object| object.0["kind"] == kind && object.0["metadata"]["name"] == name);
    &found.unwrap_or_else(|| panic!("there is no {kind} {name}")).0
}

fn superlink(rendered: &Rendered) -> &Value {
    object(rendered, "StatefulSet", "fed-superlink")
}

fn service(rendered: &Rendered) -> &Value {
    object(rendered, "Service", "fed-superlink")
}

fn pool<'r>(rendered: &'r Rendered, kind: &str) -> &'r Value {
    object(rendered, kind, "fed-supernode-a")
}

fn pod(workload: &Value) -> &Value {
    &workload["spec"]["template"]["spec"]
}

fn containers(workload: &Value) -> Vec<&str> {
    let list = pod(workload)["containers"].as_array().expect("containers");
    list.iter().map(|container| container["name"].as_str().expect("a name")).collect()
}

fn container<'w>(workload: &'w Value, name: &str) -> &'w Value {
    let list = pod(workload)["containers"].as_array().expect("containers");
    list.iter().find(|container| container["name"] == name).unwrap_or_else(|| panic!("there is no container {name}"))
}

fn args<'w>(workload: &'w Value, name: &str) -> Vec<&'w str> {
    let args = container(workload, name)["args"].as_array().expect("arguments");
    args.iter().map(|argument| argument.as_str().expect("text")).collect()
}

fn ports(service: &Value) -> Vec<(String, i64, i64)> {
    let list = service["spec"]["ports"].as_array().expect("ports");
    let number = |value: &Value| value.as_i64().expect("a number");
    list.iter()
        .map(|port| (port["name"].as_str().unwrap().to_owned(), number(&port["port"]), number(&port["targetPort"])))
        .collect()
}

fn names<'v>(list: &'v Value, key: &str) -> Vec<&'v str> {
    list.as_array().into_iter().flatten().map(|entry| entry[key].as_str().expect("text")).collect()
}

/// R1
#[test]
fn a_daemonset_with_subprocesses_is_a_superlink_a_service_and_a_daemonset() {
    let rendered = rendered("DaemonSet", "subprocess", &json!({}));
    let superlink = superlink(&rendered);
    assert_eq!(superlink["spec"]["replicas"], 1);
    assert_eq!(containers(superlink), ["superlink"]);
    assert_eq!(container(superlink, "superlink")["image"], "flwr/superlink:1.25.0");
    assert_eq!(args(superlink, "superlink")[..2], ["--isolation=subprocess", "--insecure"]);
    let service = service(&rendered);
    assert_eq!(service["spec"]["type"], "ClusterIP");
    assert_eq!(ports(service), [("fleet".to_owned(), 9092, 9092), ("control".to_owned(), 9093, 9093)]);
    let nodes = pool(&rendered, "DaemonSet");
    assert_eq!(containers(nodes), ["supernode"]);
    assert_eq!(container(nodes, "supernode")["image"], "flwr/supernode:1.25.0");
    let expected = ["--superlink=fed-superlink:9092", "--isolation=subprocess", "--insecure"];
    assert_eq!(args(nodes, "supernode")[..3], expected);
    let labels = &nodes["metadata"]["labels"];
    assert_eq!(labels["app.kubernetes.io/managed-by"], "flower-operator");
    assert_eq!(labels["flower.flwr.ai/pool"], "a");
    let kinds: Vec<_> = rendered.objects.iter().map(|object| object.identity().kind).collect();
    assert_eq!(kinds, ["Service", "StatefulSet", "DaemonSet"]);
}

/// Section 1.5: what selectors hold cannot be changed, so it is what the other operator has.
#[test]
fn selectors_are_those_of_the_other_operator() {
    let rendered = rendered("DaemonSet", "subprocess", &json!({}));
    let common = |name: &str, component: &str| {
        json!({
            "app.kubernetes.io/name": name, "app.kubernetes.io/instance": "fed",
            "app.kubernetes.io/component": component, "app.kubernetes.io/managed-by": "flower-operator",
        })
    };
    assert_eq!(superlink(&rendered)["spec"]["selector"]["matchLabels"], common("superlink", "superlink"));
    assert_eq!(service(&rendered)["spec"]["selector"], common("superlink", "superlink"));
    let mut nodes = common("supernode", "pool-a");
    nodes["flower.flwr.ai/pool"] = "a".into();
    let pool = pool(&rendered, "DaemonSet");
    assert_eq!(pool["spec"]["selector"]["matchLabels"], nodes);
    // A13: labels that users are told of are there.
    for labels in [&pool["metadata"]["labels"], &pool["spec"]["template"]["metadata"]["labels"]] {
        assert_eq!(labels["flower.flwr.ai/component"], "supernode");
        assert_eq!(labels["flower.flwr.ai/federation"], "fed");
    }
}

/// R3
#[test]
fn a_statefulset_has_as_many_nodes_as_it_says() {
    let rendered = rendered("StatefulSet", "subprocess", &json!({"pool": {"replicas": 3}}));
    assert_eq!(pool(&rendered, "StatefulSet")["spec"]["replicas"], 3);
    assert_eq!(containers(pool(&rendered, "StatefulSet")), ["supernode"]);
}

/// R4, R5
#[test]
fn process_isolation_has_a_superexec_in_each_pod() {
    for (mode, replicas) in [("DaemonSet", Value::Null), ("StatefulSet", json!(2))] {
        let rendered = rendered(mode, "process", &json!({}));
        let superlink = superlink(&rendered);
        assert_eq!(containers(superlink), ["superlink", "superexec-serverapp"]);
        assert_eq!(container(superlink, "superexec-serverapp")["image"], "flwr/superexec:1.25.0");
        let expected = ["--plugin-type=serverapp", "--appio-api-address=localhost:9091", "--insecure"];
        assert_eq!(args(superlink, "superexec-serverapp")[..3], expected);
        assert!(args(superlink, "superlink").contains(&"--isolation=process"));
        let nodes = pool(&rendered, mode);
        assert_eq!(nodes["spec"]["replicas"], replicas);
        assert_eq!(containers(nodes), ["supernode", "superexec-clientapp"]);
        let expected = ["--plugin-type=clientapp", "--appio-api-address=localhost:9094", "--insecure"];
        assert_eq!(args(nodes, "superexec-clientapp")[..3], expected);
        let names: Vec<String> = ports(service(&rendered)).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["fleet", "control", "serverappio"]);
    }
}

/// R6
#[test]
fn each_pool_has_a_workload_of_its_own() {
    let pools = json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]);
    let rendered = rendered("DaemonSet", "subprocess", &json!({"supernodes": {"pools": pools}}));
    let found: Vec<_> = rendered.objects.iter().filter(|object| object.0["kind"] == "DaemonSet").collect();
    assert_eq!(found.len(), 3);
    for (object, name) in found.iter().zip(["a", "b", "c"]) {
        assert_eq!(object.0["metadata"]["labels"]["flower.flwr.ai/pool"], name);
        assert_eq!(object.0["metadata"]["name"], format!("fed-supernode-{name}"));
    }
}

/// R10, R11, R12
#[test]
fn gpus_are_asked_for_by_name_and_number() {
    for (gpu, resource, count) in [
        (json!({"enabled": true, "vendor": "nvidia", "count": 2}), "nvidia.com/gpu", "2"),
        (json!({"enabled": true, "vendor": "amd"}), "amd.com/gpu", "1"),
        (json!({"enabled": true, "resourceName": "example.com/gpu", "count": 4}), "example.com/gpu", "4"),
        (json!({"enabled": true}), "nvidia.com/gpu", "1"),
    ] {
        let pool_fields = json!({"gpu": gpu, "supernodeResources": {"limits": {"memory": "1Gi"}}});
        let rendered = rendered("DaemonSet", "subprocess", &json!({"pool": pool_fields}));
        let resources = &container(pool(&rendered, "DaemonSet"), "supernode")["resources"];
        let mut limits = json!({"memory": "1Gi"});
        limits[resource] = count.into();
        let mut requests = json!({});
        requests[resource] = count.into();
        assert_eq!(*resources, json!({"limits": limits, "requests": requests}));
    }
}

/// R13, R14
#[test]
fn with_a_superexec_the_gpus_are_its_own() {
    for (mode, count) in [("StatefulSet", 2), ("DaemonSet", 4)] {
        let gpu = json!({"enabled": true, "vendor": "nvidia", "count": count});
        let rendered = rendered(mode, "process", &json!({"pool": {"gpu": gpu}}));
        let nodes = pool(&rendered, mode);
        assert_eq!(container(nodes, "supernode")["resources"], Value::Null);
        let expected = json!({"nvidia.com/gpu": count.to_string()});
        let resources = &container(nodes, "superexec-clientapp")["resources"];
        assert_eq!(*resources, json!({"limits": expected, "requests": expected}));
    }
}

/// R15
#[test]
fn all_gpus_of_nvidia_come_by_the_runtime_class() {
    let gpu = json!({"vendor": "nvidia", "mountAll": true});
    let rendered = rendered("DaemonSet", "process", &json!({"pool": {"gpu": gpu}}));
    let nodes = pool(&rendered, "DaemonSet");
    assert_eq!(pod(nodes)["runtimeClassName"], "nvidia");
    for name in ["supernode", "superexec-clientapp"] {
        assert_eq!(container(nodes, name)["env"], json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]));
        assert_eq!(container(nodes, name)["resources"], Value::Null);
    }
}

/// R16, O11: devices are mounted; nothing is privileged, and no variable says what ROCm does not know.
#[test]
fn all_gpus_of_amd_are_mounted_without_privileges() {
    let gpu = json!({"vendor": "amd", "mountAll": true});
    let rendered = rendered("DaemonSet", "process", &json!({"pool": {"gpu": gpu}}));
    let nodes = pool(&rendered, "DaemonSet");
    assert_eq!(
        pod(nodes)["volumes"],
        json!([
            {"name": "dev-kfd", "hostPath": {"path": "/dev/kfd", "type": "CharDevice"}},
            {"name": "dev-dri", "hostPath": {"path": "/dev/dri", "type": "Directory"}},
        ])
    );
    for name in ["supernode", "superexec-clientapp"] {
        assert_eq!(names(&container(nodes, name)["volumeMounts"], "mountPath"), ["/dev/kfd", "/dev/dri"]);
        assert_eq!(container(nodes, name)["env"], Value::Null);
        assert_eq!(container(nodes, name)["securityContext"]["privileged"], Value::Null);
        assert_eq!(container(nodes, name)["securityContext"]["allowPrivilegeEscalation"], false);
    }
    assert!(rendered.notes[0].what.contains("not privileged"), "{:?}", rendered.notes);
}

/// Who needs a privileged container for it says so, and gets it.
#[test]
fn privileges_are_given_to_who_asks() {
    let template = json!({"spec": {"containers": [{"name": "supernode", "securityContext": {"privileged": true}}]}});
    let fields = json!({"pool": {"gpu": {"vendor": "amd", "mountAll": true}, "podTemplate": template}});
    let rendered = rendered("DaemonSet", "subprocess", &fields);
    let context = &container(pool(&rendered, "DaemonSet"), "supernode")["securityContext"];
    assert_eq!(*context, json!({"privileged": true, "capabilities": {"drop": ["ALL"]}}));
}

/// A4
#[test]
fn gpus_that_are_switched_off_are_not_mounted() {
    for vendor in ["nvidia", "amd"] {
        let gpu = json!({"enabled": false, "vendor": vendor, "mountAll": true});
        let rendered = rendered("DaemonSet", "subprocess", &json!({"pool": {"gpu": gpu}}));
        let nodes = pool(&rendered, "DaemonSet");
        assert_eq!(pod(nodes)["runtimeClassName"], Value::Null);
        assert_eq!(pod(nodes)["volumes"], Value::Null);
        assert_eq!(container(nodes, "supernode")["env"], Value::Null);
        assert_eq!(rendered.notes[0].place, "spec.supernodes.pools[0].gpu.mountAll");
    }
}

#[test]
fn a_claim_takes_the_place_of_an_extended_resource() {
    let gpu = json!({"enabled": true, "resourceClaimTemplate": "slice"});
    let rendered = rendered("StatefulSet", "process", &json!({"pool": {"gpu": gpu}}));
    let nodes = pool(&rendered, "StatefulSet");
    assert_eq!(pod(nodes)["resourceClaims"], json!([{"name": "gpu", "resourceClaimTemplateName": "slice"}]));
    assert_eq!(container(nodes, "superexec-clientapp")["resources"], json!({"claims": [{"name": "gpu"}]}));
    assert_eq!(container(nodes, "supernode")["resources"], Value::Null);
}

/// R17, R18
#[test]
fn a_pod_template_says_where_nodes_run_and_as_whom() {
    let spec = json!({
        "nodeSelector": {"kind": "gpu"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "serviceAccountName": "reader",
        "priorityClassName": "high",
        "affinity": {"nodeAffinity": {}},
        "volumes": [{"name": "extra", "emptyDir": {}}],
        "securityContext": {"runAsUser": 1000, "fsGroup": 2000},
    });
    let rendered = rendered("DaemonSet", "subprocess", &json!({"pool": {"podTemplate": {"spec": spec}}}));
    let pod = pod(pool(&rendered, "DaemonSet"));
    for field in ["nodeSelector", "tolerations", "serviceAccountName", "priorityClassName", "affinity", "volumes"] {
        assert_eq!(pod[field], spec[field], "{field}");
    }
    assert_eq!(pod["securityContext"]["runAsUser"], 1000);
    assert_eq!(pod["securityContext"]["fsGroup"], 2000);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    // An account that is named is there to be used.
    assert_eq!(pod["automountServiceAccountToken"], Value::Null);
}

/// R19, R20
#[test]
fn a_pod_template_of_the_superlink_counts() {
    let spec = json!({
        "priorityClassName": "high", "runtimeClassName": "gvisor",
        "dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.10"]},
        "hostNetwork": true, "hostPID": true, "hostIPC": true,
        "imagePullSecrets": [{"name": "one"}, {"name": "two"}, {"name": "one"}],
        "volumes": [{"name": "x", "emptyDir": {}}, {"name": "own", "configMap": {"name": "c"}}],
    });
    let fields = json!({"superlink": {"podTemplate": {"spec": spec}, "volumes": [{"name": "own", "emptyDir": {}}]}});
    let rendered = rendered("DaemonSet", "subprocess", &fields);
    let pod = pod(superlink(&rendered));
    for field in
        ["priorityClassName", "runtimeClassName", "dnsPolicy", "dnsConfig", "hostNetwork", "hostPID", "hostIPC"]
    {
        assert_eq!(pod[field], spec[field], "{field}");
    }
    assert_eq!(names(&pod["imagePullSecrets"], "name"), ["one", "two"]);
    // A volume that is there already stays: the reference appends what is new.
    assert_eq!(names(&pod["volumes"], "name"), ["own", "trellis-state", "x"]);
    assert_eq!(pod["volumes"][0], json!({"name": "own", "emptyDir": {}}));
}

/// A12: what the reference takes and does not heed.
#[test]
fn everything_in_a_pod_template_counts() {
    let template = json!({
        "metadata": {"labels": {"team": "x", "app.kubernetes.io/name": "theirs"}, "annotations": {"note": "y"}},
        "spec": {
            "initContainers": [{"name": "prepare", "image": "i"}],
            "containers": [
                {"name": "proxy", "image": "p"},
                {"name": "supernode", "image": "ignored", "env": [{"name": "X", "value": "2"}], "tty": true,
                 "resources": {"limits": {"cpu": "1"}}, "livenessProbe": {"tcpSocket": {"port": 9094}, "periodSeconds": 7}},
            ],
            "topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
            "terminationGracePeriodSeconds": 5,
            "schedulerName": "own",
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["h"]}],
            "readinessGates": [{"conditionType": "g"}],
            "automountServiceAccountToken": true,
            "hostNetwork": true,
        },
    });
    let fields =
        json!({"pool": {"podTemplate": template, "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "1"}]}});
    let rendered = rendered("StatefulSet", "subprocess", &fields);
    let nodes = pool(&rendered, "StatefulSet");
    let marks = &nodes["spec"]["template"]["metadata"];
    assert_eq!(marks["labels"]["team"], "x");
    assert_eq!(marks["labels"]["app.kubernetes.io/name"], "supernode");
    assert_eq!(marks["annotations"]["note"], "y");
    let pod = pod(nodes);
    for field in [
        "initContainers",
        "topologySpreadConstraints",
        "terminationGracePeriodSeconds",
        "schedulerName",
        "hostAliases",
        "readinessGates",
        "automountServiceAccountToken",
    ] {
        assert_eq!(pod[field], template["spec"][field], "{field}");
    }
    assert_eq!(pod["dnsPolicy"], "ClusterFirstWithHostNet", "or it would not find the SuperLink");
    assert_eq!(containers(nodes), ["supernode", "proxy"]);
    let node = container(nodes, "supernode");
    assert_eq!(node["image"], "flwr/supernode:1.25.0");
    assert_eq!(node["tty"], true);
    assert_eq!(node["env"], json!([{"name": "X", "value": "2"}, {"name": "Y", "value": "1"}]));
    assert_eq!(node["resources"]["limits"]["cpu"], "1");
    assert_eq!(node["livenessProbe"]["tcpSocket"]["port"], 9094);
    assert_eq!(node["livenessProbe"]["grpc"], Value::Null);
    assert_eq!(node["livenessProbe"]["periodSeconds"], 7);
}

/// R21, R22
#[test]
fn a_pool_has_its_own_image_or_the_one_of_all() {
    for (images, expected) in
        [(json!({"supernode": "flwr/supernode:1.26.0"}), "flwr/supernode:1.26.0"), (json!({}), "flwr/supernode:1.25.0")]
    {
        let rendered = rendered("DaemonSet", "subprocess", &json!({"pool": {"images": images}}));
        assert_eq!(container(pool(&rendered, "DaemonSet"), "supernode")["image"], expected);
    }
}

/// R25
#[test]
fn the_federation_owns_everything() {
    let fields = json!({
        "security": {"networkPolicy": {"enabled": true}},
        "monitoring": {"metrics": true, "podMonitor": true},
    });
    let rendered = rendered("StatefulSet", "process", &fields);
    assert!(rendered.objects.len() >= 7, "{}", rendered.objects.len());
    for object in &rendered.objects {
        let owner = json!([{
            "apiVersion": "flwr.exalsius.ai/v1", "kind": "Federation", "name": "fed", "uid": UID,
            "controller": true, "blockOwnerDeletion": true,
        }]);
        assert_eq!(object.0["metadata"]["ownerReferences"], owner, "{:?}", object.identity());
        assert_eq!(object.0["metadata"]["namespace"], "lab");
    }
}

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

/// R31, O2: nodes and users are sent to the ports of the Service.
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
    // The usual HTTP port, given to the Control API of a release that has one port for all.
    assert_eq!(problems(json!({"extra": 8000}), "x/l"), []);
    assert_eq!(problems(json!({"extra": 0, "grpc": 0}), "x/l"), []);
}

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

/// R38, R39, T2, T3: a SuperExec trusts the authority where what it calls has TLS. `--insecure` is there only for what stays in
/// the pod: the API of a node, and that of releases that know no TLS there, which would not start without.
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
    // What the user says about a sidecar counts.
    let fields = json!({"superlink": {"superexecExtraArgs": ["--root-certificates", "/own"]}});
    let rendered = rendered("DaemonSet", "process", &fields);
    assert!(!args(superlink(&rendered), "superexec-serverapp").contains(&"--insecure"));
}

/// R43
#[test]
fn resources_are_those_of_their_container() {
    let of = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let fields = json!({
        "superlink": {"resources": of("1"), "superexecResources": of("2")},
        "pool": {"supernodeResources": of("3"), "superexecResources": of("4")},
    });
    let rendered = rendered("DaemonSet", "process", &fields);
    let (superlink, nodes) = (superlink(&rendered), pool(&rendered, "DaemonSet"));
    for (workload, name, cpu) in [
        (superlink, "superlink", "1"),
        (superlink, "superexec-serverapp", "2"),
        (nodes, "supernode", "3"),
        (nodes, "superexec-clientapp", "4"),
    ] {
        assert_eq!(container(workload, name)["resources"], of(cpu), "{name}");
    }
}

/// R45
#[test]
fn variables_of_the_superlink_are_in_both_containers() {
    let env =
        json!([{"name": "B", "value": "1"}, {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]);
    let rendered = rendered("DaemonSet", "process", &json!({"superlink": {"env": env}}));
    for name in ["superlink", "superexec-serverapp"] {
        assert_eq!(container(superlink(&rendered), name)["env"], env);
    }
}

/// R46, R47, R48, O9: in the order they were written, each once.
#[test]
fn variables_of_a_pool_go_over_those_of_all() {
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    let defaults = json!([variable("Z", "all"), variable("M", "all"), variable("A", "all")]);
    for (own, expected) in [
        (json!([]), defaults.clone()),
        (
            json!([variable("OWN", "p"), variable("M", "p")]),
            json!([variable("Z", "all"), variable("M", "p"), variable("A", "all"), variable("OWN", "p")]),
        ),
    ] {
        let fields = json!({"supernodes": {"env": defaults}, "pool": {"env": own}});
        let rendered = rendered("DaemonSet", "process", &fields);
        for name in ["supernode", "superexec-clientapp"] {
            assert_eq!(container(pool(&rendered, "DaemonSet"), name)["env"], expected, "{name}");
        }
    }
    let only = json!([variable("Q", "1"), variable("B", "2")]);
    let rendered = rendered("DaemonSet", "process", &json!({"pool": {"env": only}}));
    assert_eq!(container(pool(&rendered, "DaemonSet"), "supernode")["env"], only);
}

/// O10
#[test]
fn a_variable_is_there_once() {
    let fields = json!({"pool": {
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}, {"name": "POD_NAME", "value": "x"}],
        "gpu": {"vendor": "nvidia", "mountAll": true},
        "nodeConfig": {"id": "{index}"},
    }});
    let rendered = rendered("StatefulSet", "subprocess", &fields);
    let env = &container(pool(&rendered, "StatefulSet"), "supernode")["env"];
    assert_eq!(names(env, "name"), ["NVIDIA_VISIBLE_DEVICES", "POD_NAME", "FLOWER_INDEX", "FLOWER_NODE_NAME"]);
    assert_eq!(env[0]["value"], "0", "the user knows which");
    assert_eq!(env[1]["valueFrom"]["fieldRef"]["fieldPath"], "metadata.name", "arguments mean the pod's name by it");
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
        assert_eq!(problem.to_do, "use {node} or {pool} instead");
        assert_eq!(problem.place, "spec.supernodes.pools[0].nodeConfig");
    }
    for (mode, value) in [("StatefulSet", "{index}"), ("StatefulSet", "{replicas}"), ("DaemonSet", "{node}")] {
        rendered(mode, "subprocess", &json!({"pool": {"nodeConfig": {"id": value}}}));
    }
}

/// O12, L7: state outlives the pod where there is a claim, and the user's own place for it counts.
#[test]
fn the_state_of_a_superlink_is_kept() {
    let made = |fields: &Value, durability: Durability| {
        let ground = Ground { durability, ..Ground::default() };
        render(&federation("DaemonSet", "subprocess", fields), &ground)
    };
    let claimed = made(&json!({"persistence": {"size": "3Gi", "storageClassName": "fast"}}), Durability::Claim);
    let spec = &superlink(&claimed)["spec"];
    assert_eq!(names(&container(superlink(&claimed), "superlink")["volumeMounts"], "name"), ["trellis-state"]);
    let claim = &spec["volumeClaimTemplates"][0];
    assert_eq!(claim["metadata"]["name"], "trellis-state");
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "3Gi");
    assert_eq!(claim["spec"]["storageClassName"], "fast");
    assert_eq!(spec["persistentVolumeClaimRetentionPolicy"], json!({"whenDeleted": "Retain", "whenScaled": "Retain"}));
    assert!(args(superlink(&claimed), "superlink").contains(&"--database=/var/lib/flower/superlink.db"));
    assert_eq!(pod(superlink(&claimed))["volumes"], Value::Null);

    let in_pod = made(&json!({}), Durability::Pod);
    assert_eq!(pod(superlink(&in_pod))["volumes"], json!([{"name": "trellis-state", "emptyDir": {}}]));
    assert_eq!(superlink(&in_pod)["spec"]["volumeClaimTemplates"], Value::Null);

    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    for given in [json!({"extraArgs": ["--database=/d"]}), json!({"volumeClaimTemplates": [claim]})] {
        let theirs = made(&json!({"superlink": given}), Durability::Claim);
        assert_eq!(pod(superlink(&theirs))["volumes"], Value::Null);
        let ours = args(superlink(&theirs), "superlink").iter().any(|argument| argument.contains("/var/lib"));
        assert!(!ours, "{given}");
    }
}

/// O1, O3, O4, L7: what the reference leaves out of a pool.
#[test]
fn a_pool_of_a_statefulset_is_complete() {
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    let fields = json!({"pool": {"volumeClaimTemplates": [claim]}, "upgrade": {"maxUnavailable": "50%"}});
    let rendered = rendered("StatefulSet", "process", &fields);
    let spec = &pool(&rendered, "StatefulSet")["spec"];
    let headless = object(&rendered, "Service", spec["serviceName"].as_str().unwrap());
    assert_eq!(headless["spec"]["clusterIP"], "None");
    assert_eq!(headless["spec"]["selector"], spec["selector"]["matchLabels"]);
    assert_eq!(spec["podManagementPolicy"], "Parallel");
    assert_eq!(spec["persistentVolumeClaimRetentionPolicy"], json!({"whenDeleted": "Delete", "whenScaled": "Delete"}));
    let budget = object(&rendered, "PodDisruptionBudget", "fed-supernode-a");
    assert_eq!(budget["spec"]["maxUnavailable"], "50%");
    let pod = pod(pool(&rendered, "StatefulSet"));
    assert_eq!(pod["terminationGracePeriodSeconds"], 600);
    assert_eq!(pod["topologySpreadConstraints"][0]["whenUnsatisfiable"], "ScheduleAnyway");
}

/// O4: as the profile `restricted` of Pod Security wants it, with probes, in every container of every profile.
#[test]
fn pods_are_restricted_and_tell_how_they_are() {
    for image in ["flwr/x:1.25.0", "flwr/x:1.36.0", "flwr/x:1.42.0", "own/x:3", "trellis-x:1"] {
        for isolation in ["process", "subprocess"] {
            let image = |program: &str| image.replace("/x", &format!("/{program}"));
            let superexec =
                if image("x").starts_with("trellis") { "flwr/superexec:1.42.0".to_owned() } else { image("superexec") };
            let mut fields = json!({
                "superlink": {"image": image("superlink")},
                "supernodes": {"image": image("supernode")},
            });
            if isolation == "process" {
                fields["superlink"]["superexecImage"] = superexec.as_str().into();
                fields["pool"] = json!({"images": {"superexecClientApp": superexec}});
            }
            let rendered = rendered("StatefulSet", isolation, &fields);
            for workload in [superlink(&rendered), pool(&rendered, "StatefulSet")] {
                let context = &pod(workload)["securityContext"];
                assert_eq!(context["runAsNonRoot"], true);
                assert!(context["runAsUser"].as_i64().is_some_and(|user| user > 0));
                assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
                for name in containers(workload) {
                    let container = container(workload, name);
                    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
                    assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
                    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
                        assert!(container[probe].is_object(), "{name} {probe}");
                    }
                }
            }
        }
    }
}

/// A10, A1: with the definition of the other operator nothing else refuses them.
#[test]
fn names_that_do_not_fit_are_told() {
    let problems = |name: &str, mode: &str, pools: &[&str]| {
        let pools: Vec<Value> = pools.iter().map(|pool| json!({"name": pool})).collect();
        let mut federation = federation(mode, "subprocess", &json!({"supernodes": {"pools": pools}}));
        federation.name = name.to_owned();
        render(&federation, &Ground::default()).problems.into_iter().map(|problem| problem.place).collect::<Vec<_>>()
    };
    let long = |count: usize| "n".repeat(count);
    assert!(problems("fed", "StatefulSet", &["a", "b"]).is_empty());
    assert!(problems(&long(42), "DaemonSet", &["a"]).is_empty());
    assert_eq!(problems(&long(43), "DaemonSet", &["a"]), ["metadata.name"]);
    assert_eq!(problems("fed", "StatefulSet", &[&long(39)]), ["spec.supernodes.pools[0].name"]);
    assert!(problems("fed", "StatefulSet", &[&long(38)]).is_empty());
    assert_eq!(problems("fed", "DaemonSet", &["a", "a"]), ["spec.supernodes.pools[1].name"]);
    for name in ["1fed", "fed.one", ""] {
        assert_eq!(problems(name, "DaemonSet", &["a"]), ["metadata.name"], "{name}");
    }
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
    // Without anybody who may, nobody may: an empty list would let everybody in.
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
    // One that may be anywhere opens the port to all.
    assert_eq!(policy(json!([lab, {"name": "anywhere", "nodes": 1}])), Value::Null);
}

fn rendered_policy(fields: &Value) -> Value {
    let rendered = rendered("DaemonSet", "subprocess", fields);
    object(&rendered, "NetworkPolicy", "fed-superlink")["spec"]["ingress"].clone()
}

/// T1: certificates of ours are mounted and said, and a program that reads them once starts anew when they change.
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
        // Nodes have no key of the SuperLink's.
        let secret = |workload: &Value| {
            let volumes = pod(workload)["volumes"].as_array().expect("volumes");
            volumes.iter().find(|volume| volume["name"] == "trellis-tls").expect("it is there")["secret"].clone()
        };
        assert_eq!(secret(nodes)["secretName"], "authority");
        assert_eq!(names(&secret(nodes)["items"], "key"), ["ca.crt"]);
        assert_eq!(secret(superlink)["secretName"], "server");
    }
}

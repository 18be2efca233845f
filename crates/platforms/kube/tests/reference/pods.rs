//! Pods, and the effects of templates, resources and variables on them.

use serde_json::{Value, json};

use crate::scene::{container, containers, names, pod, pool, rendered, superlink};

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
    // The token of a configured account is mounted.
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
    // Existing volumes are kept: the reference appends new ones.
    assert_eq!(names(&pod["volumes"], "name"), ["own", "trellis-state", "x"]);
    assert_eq!(pod["volumes"][0], json!({"name": "own", "emptyDir": {}}));
}

/// A12: fields that the reference accepts and ignores.
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

/// R46, R47, R48, O9: in document order, without duplicates.
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

/// O4: every container of every profile satisfies the Pod Security profile `restricted`, with probes.
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

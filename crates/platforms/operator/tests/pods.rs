//! Pods that do not start, block a correction, or drain in vain; and pods that the operator refuses to create. Uses a
//! real API server with the controllers and the scheduler of Kubernetes, and a fake kubelet.

mod stage;

use serde_json::{Value, json};
use stage::{Stage, condition, federation, kubelet};
use trellis_fake_kubelet::rules::{Behaviour, Pods};
use trellis_testing::kube::Parts;

const ALL: Parts = Parts::WithScheduler;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn until_stalled(stage: &Stage, name: &str, reason: &str) -> Value {
    stage.until(&format!("federation/{name}"), |seen| {
        condition(seen, "Stalled").filter(|stalled| stalled["reason"] == reason && stalled["status"] == "True").cloned()
    })
}

/// A SuperLink with a wrong image recovers when the image is corrected; until then the status has the reason of the
/// pod.
#[test]
fn a_wrong_image_is_reported_and_a_corrected_one_starts() {
    let Some(stage) = Stage::set(ALL, "image") else { return };
    let wrong = "flwr/superlink:1.25.9";
    kubelet().let_pods(
        Pods::of_namespace(&stage.namespace).with_image(wrong),
        Behaviour::Waits("ImagePullBackOff".to_owned()),
    );
    let mut wanted = federation("fl", "StatefulSet", "subprocess", &[("a", 1)]);
    wanted["spec"]["superlink"]["image"] = wrong.into();
    stage.apply(&wanted);
    let stalled = until_stalled(&stage, "fl", "ImagePullBackOff");
    let said = "pod fl-superlink-0, container superlink: image flwr/superlink:1.25.9 cannot be pulled";
    assert!(text(&stalled["message"]).contains(said), "{stalled}");
    let events = stage.kubectl(&["events", "--for", "federation/fl"]).1;
    assert!(events.contains("ImagePullBackOff"), "{events}");
    let broken = stage.get("pod/fl-superlink-0").expect("a pod");
    assert_eq!(
        stage.get("statefulset/fl-superlink").expect("a set")["spec"]["podManagementPolicy"],
        "OrderedReady",
        "without the operator Kubernetes would wait for the broken pod"
    );

    wanted["spec"]["superlink"]["image"] = "flwr/superlink:1.25.0".into();
    stage.apply(&wanted);
    stage.until_condition("fl", "Ready", "True");
    stage.until_condition("fl", "Stalled", "False");
    let pod = stage.get("pod/fl-superlink-0").expect("a pod");
    assert_ne!(pod["metadata"]["uid"], broken["metadata"]["uid"]);
    assert_eq!(pod["spec"]["containers"][0]["image"], "flwr/superlink:1.25.0");
}

/// Pods that fit on no machine, and pods that the API server refuses.
#[test]
fn missing_pods_are_reported_until_the_cause_is_resolved() {
    let Some(mut stage) = Stage::without_operator(ALL, "away") else { return };
    let address = trellis_testing::ports::free_address();
    stage.start_operator_with(|settings| settings.metrics_address = Some(address));
    let plain = |name: &str| federation(name, "StatefulSet", "subprocess", &[("a", 1)]);
    let with = |name: &str, pod: Value| {
        let mut wanted = plain(name);
        wanted["spec"]["supernodes"]["pools"][0]["podTemplate"] = json!({"spec": pod});
        wanted
    };
    let missing_claim = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}]);
    for (name, pod, reason, said) in [
        (
            "place",
            json!({"nodeSelector": {"disk": "gold"}}),
            "Unschedulable",
            "pod place-supernode-a-0 cannot be scheduled",
        ),
        ("claim", json!({"volumes": missing_claim}), "Unschedulable", "persistentvolumeclaim \"nowhere\" not found"),
        ("class", json!({"runtimeClassName": "kata"}), "FailedCreate", "RuntimeClass \"kata\" not found"),
    ] {
        stage.apply(&with(name, pod));
        let stalled = until_stalled(&stage, name, reason);
        assert!(text(&stalled["message"]).contains(said), "{stalled}");
        let events = stage.kubectl(&["events", "--for", &format!("federation/{name}")]).1;
        assert!(events.contains(reason), "{events}");
        // Other pools and the SuperLink still become ready.
        stage.until(&format!("statefulset/{name}-superlink"), |seen| {
            (seen["status"]["readyReplicas"] == 1).then_some(())
        });
    }
    for name in ["place", "claim", "class"] {
        stage.apply(&plain(name));
    }
    for name in ["place", "claim", "class"] {
        stage.until_condition(name, "Ready", "True");
        stage.until_condition(name, "Stalled", "False");
    }
    // The Prometheus operator is not installed; the watch fails once, not every second.
    let metrics = stage::http(address, "/metrics");
    let failures = metrics.lines().find(|line| line.contains("watch_failures") && line.contains("podmonitors"));
    let count: u32 =
        failures.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("{metrics}"));
    assert!((1..=3).contains(&count), "{count} tries");
}

/// A Pod Security level of the namespace refuses the controller's pods.
#[test]
fn a_refusal_of_pod_security_reaches_the_status() {
    let Some(stage) = Stage::set(ALL, "security") else { return };
    let label = "pod-security.kubernetes.io/enforce=restricted";
    let (good, said) = stage.kubectl(&["label", "namespace", &stage.namespace, label]);
    assert!(good, "{said}");
    let mut wanted = federation("fl", "StatefulSet", "subprocess", &[("a", 1)]);
    wanted["spec"]["supernodes"]["pools"][0]["podTemplate"] =
        json!({"spec": {"securityContext": {"runAsUser": 0, "runAsNonRoot": false}}});
    stage.apply(&wanted);
    let stalled = until_stalled(&stage, "fl", "FailedCreate");
    assert!(text(&stalled["message"]).contains("violates PodSecurity"), "{stalled}");
    stage.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 1)]));
    stage.until_condition("fl", "Ready", "True");
    stage.until_condition("fl", "Stalled", "False");
}

/// Nodes of an existing federation use their full grace period; nodes of a deleted one do not.
#[test]
fn nodes_do_not_drain_towards_a_superlink_that_is_deleted() {
    let Some(stage) = Stage::set(ALL, "farewell") else { return };
    stage.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 1)]));
    stage.until_condition("fl", "Ready", "True");
    // A node of the pool with a running preStop hook. It exists only in the API server, without a kubelet.
    let labels = stage.get("pod/fl-supernode-a-0").expect("a node")["metadata"]["labels"].clone();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "draining", "labels": labels},
        "spec": {
            "nodeName": "busy", "terminationGracePeriodSeconds": 600,
            "containers": [{"name": "supernode", "image": "flwr/supernode:1.25.0"}],
        },
    });
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "busy"}});
    stage.apply(&node);
    stage.apply(&pod);
    stage.delete("pod/draining");
    let left = |seen: &Value| seen["metadata"]["deletionGracePeriodSeconds"].as_i64();
    assert_eq!(stage.until("pod/draining", left), 600);
    stage.patch("federation/fl", &json!({"spec": {"supernodes": {"env": [{"name": "A", "value": "1"}]}}}));
    stage.until_told("fl");
    assert_eq!(left(&stage.get("pod/draining").expect("it drains")), Some(600), "the federation is there");

    stage.delete("federation/fl");
    stage.until("pod/draining", |seen| left(seen).filter(|left| *left <= 10));
    let (good, said) = stage.kubectl(&["delete", "pod", "draining", "--grace-period=0", "--force"]);
    assert!(good, "{said}");
    let (good, said) = stage.kubectl(&["delete", "node", "busy"]);
    assert!(good, "{said}");
}

/// Write access to Federations gives no access to the machines: nothing is created, and the status names the field.
#[test]
fn privileged_pods_are_refused_unless_the_operator_allows_them() {
    let Some(mut stage) = Stage::set(ALL, "privileged") else { return };
    let with = |name: &str, pod: Value| {
        let mut wanted = federation(name, "StatefulSet", "subprocess", &[("a", 1)]);
        wanted["spec"]["supernodes"]["pools"][0]["podTemplate"] = json!({"spec": pod});
        wanted["spec"]["insecure"] = false.into();
        wanted
    };
    let attacks = [
        ("net", json!({"hostNetwork": true}), "hostNetwork"),
        ("path", json!({"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}), "hostPath"),
        ("root", json!({"containers": [{"name": "supernode", "securityContext": {"privileged": true}}]}), "privileged"),
        ("account", json!({"serviceAccountName": "cluster-admin"}), "cluster-admin"),
    ];
    for (name, pod, word) in &attacks {
        stage.apply(&with(name, pod.clone()));
        let stalled = until_stalled(&stage, name, "PodForbidden");
        assert!(text(&stalled["message"]).contains(word), "{stalled}");
        assert_eq!(
            condition(&stage.get(&format!("federation/{name}")).expect("there"), "Ready").expect("told")["status"],
            "False"
        );
        let events = stage.kubectl(&["events", "--for", &format!("federation/{name}")]).1;
        assert!(events.contains("PodForbidden"), "{events}");
    }
    let (_, made) = stage.kubectl(&["get", "statefulsets,services,secrets,pods", "-o", "name"]);
    assert_eq!(made.trim(), "", "nothing is created");
    // An allowed Federation in the same namespace becomes ready.
    stage.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 1)]));
    stage.until_condition("fl", "Ready", "True");

    stage.stop_operator();
    stage.start_operator_with(|settings| settings.pod_policy.allow_privileged = true);
    let pool = stage.until_there("statefulset/net-supernode-a");
    assert_eq!(pool["spec"]["template"]["spec"]["hostNetwork"], true);
}

/// Claims of nodes are kept when pools shrink, are renamed or are deleted, unless the federation requests deletion.
#[test]
fn claims_of_nodes_are_kept_unless_deletion_is_requested() {
    let Some(stage) = Stage::set(ALL, "kept") else { return };
    let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    let with = |name: &str, pool: &str, nodes: i32, persistence: Value| {
        let mut wanted = federation(name, "StatefulSet", "subprocess", &[(pool, nodes)]);
        wanted["spec"]["supernodes"]["pools"][0]["volumeClaimTemplates"] = claims.clone();
        wanted["spec"]["persistence"] = persistence;
        wanted
    };
    let policy = |name: &str, pool: &str| {
        stage.until_there(&format!("statefulset/{name}-supernode-{pool}"))["spec"]["persistentVolumeClaimRetentionPolicy"].clone()
    };
    stage.apply(&with("keeps", "a", 2, json!({})));
    assert_eq!(policy("keeps", "a"), json!({"whenDeleted": "Retain", "whenScaled": "Retain"}));
    stage.apply(&with("deletes", "a", 1, json!({"whenDeleted": "Delete", "whenScaled": "Delete"})));
    assert_eq!(policy("deletes", "a"), json!({"whenDeleted": "Delete", "whenScaled": "Delete"}));
    stage.until_condition("keeps", "Ready", "True");
    stage.until_condition("deletes", "Ready", "True");
    let names = || stage.kubectl(&["get", "pvc", "-o", "name"]).1;
    stage.apply(&with("keeps", "a", 1, json!({})));
    stage.until_gone("pod/keeps-supernode-a-1");
    stage.apply(&with("keeps", "b", 1, json!({})));
    stage.until_gone("statefulset/keeps-supernode-a");
    stage.delete("federation/keeps");
    stage.delete("federation/deletes");
    stage.until_gone("statefulset/keeps-supernode-b");
    stage.until_gone("persistentvolumeclaim/data-deletes-supernode-a-0");
    for kept in ["data-keeps-supernode-a-0", "data-keeps-supernode-a-1", "data-keeps-supernode-b-0"] {
        assert!(names().contains(kept), "{kept}: {}", names());
    }
}

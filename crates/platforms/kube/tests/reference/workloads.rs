//! The objects of a federation: SuperLink, pools, their owners, and retained state.

use serde_json::{Value, json};
use trellis_kube::render::{Durability, Ground, render};

use crate::scene::{
    UID, args, container, containers, federation, names, object, pod, pool, ports, rendered, service, superlink,
};

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

/// Section 1.5: selectors are immutable, so they equal those of the other operator.
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
    // A13: the documented labels are set.
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

/// O12, L7: state survives the pod if there is a claim, and a volume of the user takes precedence.
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

/// O1, O3, O4, L7: properties of a pool that the reference does not have.
#[test]
fn a_pool_of_a_statefulset_is_complete() {
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    let fields = json!({"pool": {"volumeClaimTemplates": [claim]}, "upgrade": {"maxUnavailable": "50%"}});
    let complete = rendered("StatefulSet", "process", &fields);
    let spec = &pool(&complete, "StatefulSet")["spec"];
    let headless = object(&complete, "Service", spec["serviceName"].as_str().unwrap());
    assert_eq!(headless["spec"]["clusterIP"], "None");
    assert_eq!(headless["spec"]["selector"], spec["selector"]["matchLabels"]);
    assert_eq!(spec["podManagementPolicy"], "Parallel");
    let kept = |said: Value| {
        let mut fields = fields.clone();
        fields["persistence"] = said;
        let rendered = rendered("StatefulSet", "process", &fields);
        pool(&rendered, "StatefulSet")["spec"]["persistentVolumeClaimRetentionPolicy"].clone()
    };
    assert_eq!(kept(json!({})), json!({"whenDeleted": "Retain", "whenScaled": "Retain"}));
    assert_eq!(kept(json!({"whenDeleted": "Delete"})), json!({"whenDeleted": "Delete", "whenScaled": "Retain"}));
    assert_eq!(kept(json!({"whenScaled": "Delete"})), json!({"whenDeleted": "Retain", "whenScaled": "Delete"}));
    let budget = object(&complete, "PodDisruptionBudget", "fed-supernode-a");
    assert_eq!(budget["spec"]["maxUnavailable"], "50%");
    let pod = pod(pool(&complete, "StatefulSet"));
    assert_eq!(pod["topologySpreadConstraints"][0]["whenUnsatisfiable"], "ScheduleAnyway");
}

/// A node of ours finishes its work; one of Flower ends at once, or never.
#[test]
fn nodes_that_can_finish_have_time_to() {
    for (image, seconds) in [("flwr/supernode:1.25.0", 30), ("trellis-supernode:1", 600)] {
        let fields = json!({"supernodes": {"image": image}});
        let rendered = rendered("StatefulSet", "subprocess", &fields);
        assert_eq!(pod(pool(&rendered, "StatefulSet"))["terminationGracePeriodSeconds"], seconds, "{image}");
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

//! The operator on a real API server with the controllers of Kubernetes and a simulated kubelet. Each test has a
//! namespace and an operator of its own. Ids such as R2 or L3 are those of the requirements.

mod stage;

use serde_json::{Value, json};
use stage::{Stage, condition, federation};
use trellis_testing::kube::Parts;

const ALL: Parts = Parts::WithScheduler;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn args(workload: &Value, container: &str) -> Vec<String> {
    let containers = workload["spec"]["template"]["spec"]["containers"].as_array().expect("containers");
    let found = containers.iter().find(|each| each["name"] == container).expect("the container");
    found["args"].as_array().into_iter().flatten().map(|arg| text(arg).to_owned()).collect()
}

/// R2, R25, S1, S2, E10; idempotence: nothing is written in steady state, nor by a restarted operator.
#[test]
fn a_federation_becomes_ready_and_then_nothing_is_written() {
    let Some(mut stage) = Stage::set(ALL, "ready") else { return };
    stage.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 2), ("b", 1)]));
    let ready = stage.until_condition("fl", "Ready", "True");
    assert_eq!((text(&ready["reason"]), text(&ready["message"])), ("AllReady", "All components are ready"));
    stage.until_condition("fl", "Reconciling", "False");
    let seen = stage.get("federation/fl").expect("it is there");
    let status = &seen["status"];
    assert_eq!(status["observedGeneration"], seen["metadata"]["generation"]);
    assert_eq!(status["supernodes"], "3/3");
    assert_eq!((status["readySupernodes"].as_i64(), status["desiredSupernodes"].as_i64()), (Some(3), Some(3)));
    assert_eq!(status["endpoints"]["superlinkService"], format!("fl-superlink.{}.svc:9093", stage.namespace));
    assert_eq!(status["release"], "Flower 1.25");
    let pools = status["pools"].as_array().expect("pools");
    assert_eq!(pools.iter().map(|pool| text(&pool["name"])).collect::<Vec<_>>(), ["a", "b"]);
    for pool in pools {
        assert_eq!(pool["kind"], "StatefulSet");
        assert_eq!(pool["conditions"][0]["type"], "Ready");
        assert_eq!(pool["conditions"][0]["status"], "True");
    }
    for what in ["statefulset/fl-superlink", "service/fl-superlink", "statefulset/fl-supernode-a"] {
        let owners = stage.get(what).expect(what)["metadata"]["ownerReferences"].clone();
        assert_eq!(owners.as_array().map(Vec::len), Some(1), "{what}");
        assert_eq!((&owners[0]["uid"], &owners[0]["kind"]), (&seen["metadata"]["uid"], &json!("Federation")), "{what}");
    }

    let (versions, writes) = (stage.versions(), stage.writes().len());
    // A change without effect triggers a reconcile, which writes a status only if the generation changed.
    stage.patch("federation/fl", &json!({"metadata": {"annotations": {"note": "look"}}}));
    stage.stop_operator();
    stage.start_operator();
    // The restarted operator has reconciled the federation when it repairs this.
    stage
        .patch("service/fl-superlink", &json!({"spec": {"ports": [{"name": "fleet", "port": 9092, "targetPort": 1}]}}));
    stage.until("service/fl-superlink", |seen| {
        let ports = seen["spec"]["ports"].as_array()?;
        ports.iter().find(|port| port["name"] == "fleet").filter(|port| port["targetPort"] != 1).map(drop)
    });
    stage.stop_operator();
    let new: Vec<_> = stage.writes().split_off(writes);
    assert!(new.iter().all(|write| write.resource == "services"), "{new:#?}");
    assert!(new.len() <= 2, "{new:#?}");
    let after = stage.versions();
    for (name, version) in versions.iter().filter(|(name, _)| !name.starts_with("Service") && name != "Federation/fl") {
        assert_eq!(after.iter().find(|(known, _)| known == name).map(|(_, version)| version), Some(version), "{name}");
    }
}

/// R7, R8, R9, R40, R41, R42: pools are removed, sizes and images change.
#[test]
fn pools_are_added_removed_and_changed() {
    let Some(stage) = Stage::set(ALL, "pools") else { return };
    stage.apply(&federation("sts", "StatefulSet", "subprocess", &[("keep", 2), ("leave", 1)]));
    stage.apply(&federation("ds", "DaemonSet", "process", &[("keep", 0), ("leave", 0)]));
    stage.until_there("statefulset/sts-supernode-leave");
    stage.until_there("daemonset/ds-supernode-leave");
    let kept = stage.until_there("statefulset/sts-supernode-keep");

    let mut smaller = federation("sts", "StatefulSet", "subprocess", &[("keep", 5)]);
    smaller["spec"]["superlink"]["image"] = "flwr/superlink:1.26.0".into();
    smaller["spec"]["supernodes"]["image"] = "flwr/supernode:1.26.0".into();
    stage.apply(&smaller);
    stage.apply(&federation("ds", "DaemonSet", "process", &[("keep", 0)]));
    stage.until_gone("statefulset/sts-supernode-leave");
    stage.until_gone("daemonset/ds-supernode-leave");
    stage.until_gone("service/sts-supernode-leave");
    stage.until("statefulset/sts-supernode-keep", |seen| {
        let image = &seen["spec"]["template"]["spec"]["containers"][0]["image"];
        (seen["spec"]["replicas"] == 5 && image == "flwr/supernode:1.26.0").then_some(())
    });
    stage.until("statefulset/sts-superlink", |seen| {
        (seen["spec"]["template"]["spec"]["containers"][0]["image"] == "flwr/superlink:1.26.0").then_some(())
    });
    assert_eq!(stage.get("statefulset/sts-supernode-keep").expect("kept")["metadata"]["uid"], kept["metadata"]["uid"]);
    assert!(stage.get("daemonset/ds-supernode-keep").is_some());
    let told = stage.until_told("sts");
    assert_eq!(told["status"]["pools"].as_array().map(Vec::len), Some(1));
}

/// L1: the workload of the other kind is deleted when the mode changes; the isolation changes in place, with its ports.
#[test]
fn a_switch_of_mode_or_isolation_leaves_nothing_behind() {
    let Some(stage) = Stage::set(ALL, "switch") else { return };
    stage.apply(&federation("fl", "DaemonSet", "subprocess", &[("a", 0)]));
    stage.until_condition("fl", "Ready", "True");
    stage.apply(&federation("fl", "StatefulSet", "process", &[("a", 2)]));
    stage.until_gone("daemonset/fl-supernode-a");
    let pool = stage.until_there("statefulset/fl-supernode-a");
    assert_eq!(pool["spec"]["template"]["spec"]["containers"].as_array().map(Vec::len), Some(2));
    stage.until_condition("fl", "Ready", "True");
    let ports = |service: &Value| service["spec"]["ports"].as_array().map(Vec::len);
    let with_apps = ports(&stage.get("service/fl-superlink").expect("a service"));

    stage.apply(&federation("fl", "DaemonSet", "subprocess", &[("a", 0)]));
    stage.until_gone("statefulset/fl-supernode-a");
    stage.until("statefulset/fl-superlink", |seen| {
        let containers = seen["spec"]["template"]["spec"]["containers"].as_array()?;
        (containers.len() == 1).then_some(())
    });
    stage.until("service/fl-superlink", |seen| (ports(seen) < with_apps).then_some(()));
    let ready = stage.until_condition("fl", "Ready", "True");
    assert_eq!(text(&ready["reason"]), "AllReady");
}

/// R26-R30, L3, L4: the Service keeps its address when its type changes, and loses fields that are not desired any
/// more.
#[test]
fn a_service_changes_in_place() {
    let Some(stage) = Stage::set(ALL, "service") else { return };
    let mut wanted = federation("fl", "StatefulSet", "subprocess", &[("a", 1)]);
    wanted["spec"]["superlink"]["service"] =
        json!({"labels": {"team": "red", "app.kubernetes.io/name": "mine"}, "annotations": {"a": "1", "b": "2"}});
    stage.apply(&wanted);
    let first = stage.until_there("service/fl-superlink");
    assert_eq!(first["spec"]["type"], "ClusterIP");
    assert_eq!(first["metadata"]["labels"]["team"], "red");
    // Labels of the operator take precedence.
    assert_eq!(first["metadata"]["labels"]["app.kubernetes.io/name"], "superlink");

    wanted["spec"]["superlink"]["service"] = json!({"type": "NodePort", "annotations": {"b": "3", "c": "4"}});
    stage.apply(&wanted);
    let second = stage.until("service/fl-superlink", |seen| (seen["spec"]["type"] == "NodePort").then(|| seen.clone()));
    assert_eq!(second["metadata"]["labels"]["team"], Value::Null);
    let annotations = &second["metadata"]["annotations"];
    assert_eq!((&annotations["a"], &annotations["b"], &annotations["c"]), (&Value::Null, &json!("3"), &json!("4")));
    for kind in ["LoadBalancer", "ClusterIP"] {
        wanted["spec"]["superlink"]["service"] = json!({"type": kind});
        stage.apply(&wanted);
        stage.until("service/fl-superlink", |seen| (seen["spec"]["type"] == kind).then_some(()));
    }
    let last = stage.get("service/fl-superlink").expect("it is there");
    for field in ["uid", "creationTimestamp"] {
        assert_eq!(last["metadata"][field], first["metadata"][field]);
    }
    assert_eq!(last["spec"]["clusterIP"], first["spec"]["clusterIP"]);
}

/// Changed and deleted fields are restored; added fields stay.
#[test]
fn drift_is_repaired() {
    let Some(stage) = Stage::set(ALL, "drift") else { return };
    stage.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 1)]));
    let made = stage.until_there("statefulset/fl-supernode-a");
    stage.until_condition("fl", "Ready", "True");
    let edit = json!([
        {"op": "replace", "path": "/spec/template/spec/containers/0/args/0", "value": "--superlink=elsewhere:1"},
        {"op": "add", "path": "/metadata/annotations/theirs", "value": "stays"},
    ]);
    stage.patch_json("statefulset/fl-supernode-a", &edit);
    let repaired = stage.until("statefulset/fl-supernode-a", |seen| {
        (args(seen, "supernode") == args(&made, "supernode")).then(|| seen.clone())
    });
    assert_eq!(repaired["metadata"]["annotations"]["theirs"], "stays");
    // The watch selects by this label: without it the object is not observed.
    stage.patch("service/fl-superlink", &json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}));
    stage.until("service/fl-superlink", |seen| {
        (seen["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "flower-operator").then_some(())
    });
    stage.delete("statefulset/fl-supernode-a");
    stage
        .until("statefulset/fl-supernode-a", |seen| (seen["metadata"]["uid"] != made["metadata"]["uid"]).then_some(()));
    stage.delete("service/fl-superlink");
    stage.until_there("service/fl-superlink");
}

/// R23, R24, Q5: a deleted federation is not created again, and the garbage collector deletes its objects.
#[test]
fn a_deleted_federation_is_deleted_with_its_objects() {
    let Some(stage) = Stage::set(ALL, "delete") else { return };
    stage.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 1)]));
    stage.until_condition("fl", "Ready", "True");
    let (good, text) = stage.kubectl(&["delete", "federation/fl", "--cascade=foreground", "--wait=false"]);
    assert!(good, "{text}");
    stage.until_gone("federation/fl");
    for what in ["statefulset/fl-superlink", "service/fl-superlink", "statefulset/fl-supernode-a", "pod/fl-superlink-0"]
    {
        stage.until_gone(what);
    }
    // A new federation of the same name waits until the old objects are deleted.
    stage.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 1)]));
    let old = stage.until_there("statefulset/fl-superlink");
    stage.delete("federation/fl");
    stage.until_gone("federation/fl");
    stage.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 1)]));
    stage.until_condition("fl", "Ready", "True");
    let new = stage.get("statefulset/fl-superlink").expect("it is there");
    assert_ne!(new["metadata"]["uid"], old["metadata"]["uid"]);
}

/// R44, S3: Ready is False if a pool is not ready, or if a pool has no node.
#[test]
fn federations_that_are_not_ready_have_a_reason() {
    let Some(stage) = Stage::set(ALL, "unready") else { return };
    let mut lags = federation("lags", "StatefulSet", "subprocess", &[("a", 3)]);
    lags["spec"]["supernodes"]["pools"][0]["podTemplate"] = json!({"spec": {"nodeSelector": {"no": "where"}}});
    let mut nowhere = federation("nowhere", "DaemonSet", "subprocess", &[("a", 0)]);
    nowhere["spec"]["supernodes"]["pools"][0]["podTemplate"] = json!({"spec": {"nodeSelector": {"no": "where"}}});
    stage.apply(&lags);
    stage.apply(&nowhere);
    let ready = stage.until("federation/lags", |seen| {
        let ready = condition(seen, "Ready")?;
        (seen["status"]["pools"][0]["desired"] == 3 && text(&ready["message"]).starts_with("Pool"))
            .then(|| ready.clone())
    });
    assert_eq!(ready["status"], "False");
    assert_eq!((text(&ready["reason"]), text(&ready["message"])), ("NotReady", "Pool a not fully ready (0/3)"));
    stage.until("federation/nowhere", |seen| {
        let pool = &seen["status"]["pools"][0]["conditions"][0];
        let ready = condition(seen, "Ready")?;
        (pool["reason"] == "NoNodes" && ready["status"] == "False").then_some(())
    });
}

/// S4, N4, S6: invalid fields are reported with an event; an object that the API server refuses does not stop others.
#[test]
fn invalid_parts_are_reported_and_others_continue() {
    let Some(stage) = Stage::set(ALL, "wrong") else { return };
    let mut wrong = federation("partly", "StatefulSet", "subprocess", &[("bad", 1), ("good", 1)]);
    wrong["spec"]["supernodes"]["pools"][0]["volumeMounts"] = json!([{"name": "nothing", "mountPath": "/data"}]);
    stage.apply(&wrong);
    let stalled = stage.until_condition("partly", "Stalled", "True");
    assert!(
        text(&stalled["message"]).contains("fl-") || text(&stalled["message"]).contains("partly-supernode-bad"),
        "{stalled}"
    );
    stage.until("federation/partly", |seen| {
        let pools = seen["status"]["pools"].as_array()?;
        (pools[0]["conditions"][0]["reason"] == "Failed" && pools[1]["ready"] == 1).then_some(())
    });
    assert!(stage.get("statefulset/partly-superlink").is_some());
    let events = stage.kubectl(&["events", "--for", "federation/partly"]).1;
    assert!(events.contains("Warning"), "{events}");
    assert!(events.contains("Created"), "{events}");

    // After a correction it continues by itself.
    stage.apply(&federation("partly", "StatefulSet", "subprocess", &[("bad", 1), ("good", 1)]));
    stage.until_condition("partly", "Ready", "True");
    stage.until_condition("partly", "Stalled", "False");
}

/// S5: added claims recreate a StatefulSet around its pods; removed or smaller claims are refused and reported.
#[test]
fn claims_may_be_added_and_not_taken_away() {
    let Some(stage) = Stage::set(ALL, "claims") else { return };
    let claim = |size: &str| json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}}]);
    let mut wanted = federation("fl", "StatefulSet", "subprocess", &[("a", 1)]);
    stage.apply(&wanted);
    stage.until_condition("fl", "Ready", "True");
    let first = stage.get("statefulset/fl-supernode-a").expect("a pool");
    let pod = stage.get("pod/fl-supernode-a-0").expect("a pod");

    wanted["spec"]["supernodes"]["pools"][0]["volumeClaimTemplates"] = claim("2Gi");
    wanted["spec"]["supernodes"]["pools"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    stage.apply(&wanted);
    let second = stage.until("statefulset/fl-supernode-a", |seen| {
        (seen["metadata"]["uid"] != first["metadata"]["uid"]).then(|| seen.clone())
    });
    assert_eq!(second["spec"]["volumeClaimTemplates"][0]["metadata"]["name"], "data");
    stage.until_condition("fl", "Ready", "True");
    drop(pod);

    wanted["spec"]["supernodes"]["pools"][0]["volumeClaimTemplates"] = claim("1Gi");
    stage.apply(&wanted);
    let stalled = stage.until_condition("fl", "Stalled", "True");
    assert_eq!(stalled["reason"], "DataWouldBeLost");
    assert!(text(&stalled["message"]).contains("data"), "{stalled}");
    let kept = stage.get("statefulset/fl-supernode-a").expect("a pool");
    assert_eq!(kept["metadata"]["uid"], second["metadata"]["uid"]);

    wanted["spec"]["supernodes"]["pools"][0]["volumeClaimTemplates"] = claim("2Gi");
    stage.apply(&wanted);
    stage.until_condition("fl", "Stalled", "False");
}

/// A foreign object of the same name is not changed and is reported; ours is created once it is deleted.
#[test]
fn foreign_objects_are_not_changed() {
    let Some(stage) = Stage::set(ALL, "stranger") else { return };
    let stranger = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "fl-superlink"},
        "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]},
    });
    stage.apply(&stranger);
    let before = stage.get("service/fl-superlink").expect("theirs");
    stage.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 1)]));
    let stalled = stage.until_condition("fl", "Stalled", "True");
    assert_eq!(stalled["reason"], "NameTaken");
    stage.until_there("statefulset/fl-supernode-a");
    assert_eq!(stage.get("service/fl-superlink").expect("theirs"), before);
    stage.delete("service/fl-superlink");
    // Foreign objects are not watched: the next reconcile is triggered by a change or by time.
    stage.patch("federation/fl", &json!({"metadata": {"annotations": {"look": "again"}}}));
    stage.until("service/fl-superlink", |seen| {
        seen["metadata"]["labels"]["app.kubernetes.io/managed-by"].is_string().then_some(())
    });
    stage.until_condition("fl", "Stalled", "False");
}

/// L2: objects of early releases of the other operator are deleted. L4 and the migration: objects of later releases are
/// adopted in place without leftover fields.
#[test]
fn objects_of_the_other_operator_are_taken_over() {
    let Some(mut stage) = Stage::without_operator(ALL, "adopt") else { return };
    let mut wanted = federation("fl", "StatefulSet", "subprocess", &[("a", 1)]);
    wanted["spec"]["persistence"] = json!({"enabled": false});
    stage.apply(&wanted);
    let uid = stage.get("federation/fl").expect("it is there")["metadata"]["uid"].clone();
    let owners = json!([{
        "apiVersion": "flwr.exalsius.ai/v1", "kind": "Federation", "name": "fl", "uid": uid, "controller": true, "blockOwnerDeletion": true,
    }]);
    let labels = |name: &str, component: &str| {
        json!({
            "app.kubernetes.io/name": name, "app.kubernetes.io/instance": "fl",
            "app.kubernetes.io/component": component, "app.kubernetes.io/managed-by": "flower-operator",
        })
    };
    let template = |labels: &Value| {
        let superlink = json!({
            "name": "superlink", "image": "flwr/superlink:1.20.0", "args": ["--insecure"],
            "env": [{"name": "OLD", "value": "1"}],
        });
        json!({"metadata": {"labels": labels}, "spec": {"containers": [superlink], "priorityClassName": "", "hostPID": true}})
    };
    let link = labels("superlink", "superlink");
    let objects = [
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "fl-superlink", "labels": link, "ownerReferences": owners},
            "spec": {"replicas": 1, "serviceName": "fl-superlink", "selector": {"matchLabels": link}, "template": template(&link)},
        }),
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "fl-superlink", "labels": link, "annotations": {"old": "1"}, "ownerReferences": owners},
            "spec": {"selector": link, "ports": [{"name": "fleet", "port": 9092}, {"name": "odd", "port": 4444}]},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "fl-superlink", "labels": link, "ownerReferences": owners},
            "spec": {"selector": {"matchLabels": link}, "template": template(&link)},
        }),
    ];
    for object in &objects {
        let (good, text) = stage.kubectl_with(&["create", "--field-manager=manager", "-f", "-"], &object.to_string());
        assert!(good, "{text}");
    }
    let before = ["statefulset/fl-superlink", "service/fl-superlink"].map(|what| stage.get(what).expect(what));
    stage.start_operator();
    stage.until_gone("deployment/fl-superlink");
    let workload = stage.until("statefulset/fl-superlink", |seen| {
        (seen["spec"]["template"]["spec"]["containers"][0]["image"] == "flwr/superlink:1.25.0").then(|| seen.clone())
    });
    let service = stage.until("service/fl-superlink", |seen| {
        seen["metadata"]["annotations"]["trellis.dev/applied"].is_string().then(|| seen.clone())
    });
    assert_eq!(workload["metadata"]["uid"], before[0]["metadata"]["uid"]);
    assert_eq!(service["metadata"]["uid"], before[1]["metadata"]["uid"]);
    let pod = &workload["spec"]["template"]["spec"];
    assert_eq!(pod["hostPID"], Value::Null);
    let env = pod["containers"][0]["env"].as_array().cloned().unwrap_or_default();
    assert!(!env.iter().any(|variable| variable["name"] == "OLD"), "{env:?}");
    assert_eq!(service["metadata"]["annotations"]["old"], Value::Null);
    assert!(!service["spec"]["ports"].as_array().expect("ports").iter().any(|port| port["name"] == "odd"), "{service}");
    stage.until_condition("fl", "Ready", "True");
}

/// An operator for one namespace does not observe others.
#[test]
fn other_namespaces_are_ignored() {
    let Some(here) = Stage::set(ALL, "here") else { return };
    let Some(mut there) = Stage::without_operator(ALL, "there") else { return };
    there.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 1)]));
    here.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 1)]));
    here.until_condition("fl", "Ready", "True");
    assert!(there.get("statefulset/fl-superlink").is_none());
    assert!(here.writes().iter().all(|write| write.namespace == here.namespace), "{:#?}", here.writes());
    there.start_operator();
    there.until_condition("fl", "Ready", "True");
}

/// Another definition in the cluster may admit what ours refuses. S4, N4: invalid and unreadable resources are reported
/// in conditions and an event.
#[test]
fn violations_that_another_definition_admits_are_reported() {
    let Some(plane) = trellis_testing::kube::ControlPlane::start(Parts::ApiServer) else { return };
    let mut lax = trellis_kube::crd::federation();
    lax["spec"]["versions"][0]["schema"] =
        json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    stage::install_definitions(&plane, &[lax, trellis_kube::crd::federation_run()]);
    let plane: &'static trellis_testing::kube::ControlPlane = Box::leak(Box::new(plane));
    let mut stage = Stage::on(plane, "lax");
    stage.start_operator();
    let mut wrong = federation("wrong", "DaemonSet", "subprocess", &[("a", 0)]);
    wrong["spec"]["supernodes"]["pools"][0]["nodeConfig"] = json!({"partition-id": "{index}"});
    stage.apply(&wrong);
    let stalled = stage.until_condition("wrong", "Stalled", "True");
    assert_eq!(stalled["reason"], "InvalidSpec");
    assert!(text(&stalled["message"]).contains("{index}"), "{stalled}");
    assert!(text(&stalled["message"]).contains("not supported in DaemonSet mode"), "{stalled}");
    assert!(stage.get("statefulset/wrong-superlink").is_none());
    let (_, events) = stage.kubectl(&["events", "--for", "federation/wrong"]);
    assert!(events.contains("InvalidSpec"), "{events}");

    let mut odd = federation("odd", "StatefulSet", "subprocess", &[("a", 1)]);
    odd["spec"]["mode"] = "Sometimes".into();
    stage.apply(&odd);
    let stalled = stage.until_condition("odd", "Stalled", "True");
    assert_eq!(stalled["reason"], "Unreadable");
    odd["spec"]["mode"] = "StatefulSet".into();
    stage.apply(&odd);
    stage.until_there("statefulset/odd-superlink");
    stage.until_condition("odd", "Stalled", "False");
}

/// A Certificate that is not desired any more is deleted, and so are Secrets of removed sites.
#[test]
fn objects_for_security_are_deleted_with_their_settings() {
    let Some(plane) = trellis_testing::kube::ControlPlane::start(Parts::ApiServer) else { return };
    stage::install_definitions(&plane, &trellis_kube::crd::all());
    stage::install_definitions(&plane, &[trellis_testing::stand_in("cert-manager.io", "certificates", "Certificate")]);
    let plane: &'static trellis_testing::kube::ControlPlane = Box::leak(Box::new(plane));
    let mut stage = Stage::on(plane, "security");
    stage.start_operator();
    let mut fed = federation("fl", "StatefulSet", "subprocess", &[("a", 1)]);
    fed["spec"]["security"] = json!({
        "tls": {"mode": "certManager", "issuerRef": {"name": "ca"}, "extraNames": ["fl.example.org"]},
    });
    fed["spec"]["sites"] = json!([{"name": "lab", "nodes": 1}]);
    stage.apply(&fed);
    stage.until_there("certificate/fl-superlink");
    stage.until_there("secret/fl-join-lab");

    stage.patch("federation/fl", &json!({"spec": {"security": {"tls": {"mode": "auto", "issuerRef": null}}}}));
    stage.until_gone("certificate/fl-superlink");
    stage.until_there("secret/fl-superlink-tls");
    stage.patch("federation/fl", &json!({"spec": {"sites": null, "security": {"tls": {"mode": "off"}}}}));
    stage.until_gone("secret/fl-join-lab");
    let left = "kubectl delete secret fl-authority fl-superlink-tls fl-trust";
    stage.until("federation/fl", |seen| {
        condition(seen, "Advice").filter(|told| text(&told["message"]).contains(left)).map(drop)
    });
}

/// S8: metrics report the work of the operator and the state of federations; health is served.
#[test]
fn metrics_and_health_are_served() {
    let Some(mut stage) = Stage::without_operator(ALL, "numbers") else { return };
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], trellis_testing::ports::free_port()));
    stage.start_operator_with(|settings| {
        settings.health_address = Some(address);
        settings.metrics_address = Some(address);
    });
    stage.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 1)]));
    stage.until_condition("fl", "Ready", "True");
    stage.until_condition("fl", "Reconciling", "False");
    assert!(stage::http(address, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(stage::http(address, "/readyz").starts_with("HTTP/1.1 200"));
    let numbers = stage::http(address, "/metrics");
    for line in [
        "trellis_operator_federations{state=\"ready\"} 1",
        "trellis_operator_writes_total{verb=\"apply\",kind=\"StatefulSet\",result=\"good\"} 2",
        "trellis_operator_passes_total{result=\"good\"}",
        "trellis_operator_leading 1",
    ] {
        assert!(numbers.contains(line), "{line} is not in {numbers}");
    }
}

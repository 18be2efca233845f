//! Changes to federations in the test of permissions: everything that makes the operator send a request.

use serde_json::{Value, json};
use trellis_testing::kube::ControlPlane;

use crate::operator::wait;
use crate::tools::kubectl;

const NAMESPACE: &str = "default";

/// One of official images, with further fields of its spec.
pub fn federation(namespace: &str, name: &str, further: Value) -> Value {
    let mut spec = json!({
        "mode": "StatefulSet",
        "isolationMode": "subprocess",
        "superlink": {"image": "flwr/superlink:1.25.0"},
        "supernodes": {"image": "flwr/supernode:1.25.0", "pools": [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 1}]},
    });
    for (field, value) in further.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    let metadata = json!({"name": name, "namespace": namespace});
    json!({"apiVersion": "flwr.exalsius.ai/v1", "kind": "Federation", "metadata": metadata, "spec": spec})
}

fn apply(plane: &ControlPlane, object: &Value) {
    kubectl(plane, &["apply", "-f", "-"], &object.to_string());
}

fn names(plane: &ControlPlane, kinds: &str) -> String {
    kubectl(plane, &["get", kinds, "-n", NAMESPACE, "-o", "name"], "")
}

fn patch(plane: &ControlPlane, what: &str, change: &Value) {
    kubectl(plane, &["patch", what, "-n", NAMESPACE, "--type=merge", "-p", &change.to_string()], "");
}

/// Objects of an earlier operator, which wrote them with another field manager, and a Deployment.
pub fn before(plane: &ControlPlane) {
    apply(plane, &federation(NAMESPACE, "old", json!({})));
    let uid = kubectl(plane, &["get", "federation", "old", "-n", NAMESPACE, "-o", "jsonpath={.metadata.uid}"], "");
    let labels = json!({
        "app.kubernetes.io/name": "superlink",
        "app.kubernetes.io/instance": "old",
        "app.kubernetes.io/component": "superlink",
        "app.kubernetes.io/managed-by": "flower-operator",
    });
    let owner = json!({
        "apiVersion": "flwr.exalsius.ai/v1", "kind": "Federation", "name": "old", "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    });
    let metadata =
        json!({"name": "old-superlink", "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]});
    let template = json!({
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "superlink", "image": "flwr/superlink:1.20.0"}]},
    });
    let selector = json!({"matchLabels": labels});
    let workload = json!({"replicas": 1, "selector": selector, "template": template});
    let mut stateful = workload.clone();
    stateful["serviceName"] = json!("old-superlink");
    let ports = json!([{"name": "fleet", "port": 9092}, {"name": "control", "port": 9093}]);
    for (api, kind, spec) in [
        ("apps/v1", "Deployment", workload),
        ("apps/v1", "StatefulSet", stateful),
        ("v1", "Service", json!({"selector": labels, "ports": ports})),
    ] {
        let object = json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec});
        kubectl(plane, &["create", "--field-manager=manager", "-f", "-"], &object.to_string());
    }
}

pub fn play(plane: &ControlPlane) {
    wait("the old Deployment is gone", || !names(plane, "deployments").contains("old-superlink"));
    changes(plane);
    options(plane);
    drift(plane);
    runs(plane);
}

/// The events of the second installation, and the deletion of everything.
pub fn play_after_a_restart(plane: &ControlPlane) {
    drift(plane);
    wait("an event that happened again", || {
        let of_events = ["get", "events.events.k8s.io", "-n", NAMESPACE, "-o", "jsonpath={.items[*].series.count}"];
        !plane.kubectl(&of_events).stdout.is_empty()
    });
    kubectl(plane, &["delete", "federations", "--all", "-n", NAMESPACE], "");
    wait("all is gone", || names(plane, "statefulsets,daemonsets,services").trim() == "service/kubernetes");
}

/// A pool more and less, a size, the other kind of workload and back.
fn changes(plane: &ControlPlane) {
    apply(plane, &federation(NAMESPACE, "plain", json!({})));
    wait("two pools", || names(plane, "statefulsets").matches("plain-supernode").count() == 2);
    let pools = |pools: Value| json!({"spec": {"supernodes": {"pools": pools}}});
    patch(plane, "federation/plain", &pools(json!([{"name": "a", "replicas": 3}])));
    wait("one pool", || names(plane, "statefulsets").matches("plain-supernode").count() == 1);
    let daemons = json!({"spec": {"mode": "DaemonSet", "supernodes": {"pools": [{"name": "a"}]}}});
    patch(plane, "federation/plain", &daemons);
    wait("a DaemonSet", || {
        names(plane, "daemonsets").contains("plain-supernode-a")
            && !names(plane, "statefulsets").contains("plain-supernode-a")
    });
    let back = json!({"spec": {"mode": "StatefulSet", "supernodes": {"pools": [{"name": "a", "replicas": 1}]}}});
    patch(plane, "federation/plain", &back);
    wait("no DaemonSet", || !names(plane, "daemonsets").contains("plain-supernode-a"));
}

/// TLS of ours and of cert-manager, a network policy, monitors: each is added and removed.
fn options(plane: &ControlPlane) {
    apply(
        plane,
        &federation(NAMESPACE, "strict", json!({"insecure": false, "security": {"networkPolicy": {"enabled": true}}})),
    );
    wait("certificates", || names(plane, "secrets").contains("strict-superlink-tls"));
    let certificate = || {
        let field = "jsonpath={.data.tls\\.crt}";
        kubectl(plane, &["get", "secret", "strict-superlink-tls", "-n", NAMESPACE, "-o", field], "")
    };
    let before = certificate();
    let names_more = json!({"spec": {"security": {"tls": {"extraNames": ["link.example.org"]}}}});
    patch(plane, "federation/strict", &names_more);
    wait("a certificate with one more name", || certificate() != before);
    wait("a network policy", || names(plane, "networkpolicies").contains("strict"));
    patch(
        plane,
        "federation/strict",
        &json!({"spec": {"insecure": true, "security": {"networkPolicy": {"enabled": false}}}}),
    );
    wait("no network policy", || !names(plane, "networkpolicies").contains("strict"));
    let issuer = json!({"mode": "certManager", "issuerRef": {"name": "issuer", "kind": "ClusterIssuer"}});
    apply(plane, &federation(NAMESPACE, "issued", json!({"insecure": false, "security": {"tls": issuer}})));
    wait("a request to cert-manager", || names(plane, "certificates").contains("issued"));
    let own = json!({"spec": {"security": {"tls": {"mode": "auto", "issuerRef": null}}}});
    patch(plane, "federation/issued", &own);
    wait("no request to cert-manager", || !names(plane, "certificates").contains("issued"));
    let trellis = json!({
        "superlink": {"image": "trellis-superlink:0.1.0"},
        "supernodes": {"image": "trellis-supernode:0.1.0", "pools": [{"name": "a", "replicas": 2}]},
        "monitoring": {"metrics": true, "podMonitor": true},
    });
    apply(plane, &federation(NAMESPACE, "watched", trellis));
    wait("a monitor", || names(plane, "podmonitors").contains("watched"));
    patch(plane, "federation/watched", &json!({"spec": {"monitoring": {"podMonitor": false}}}));
    wait("no monitor", || !names(plane, "podmonitors").contains("watched"));
}

/// Objects that another client changed or deleted.
fn drift(plane: &ControlPlane) {
    kubectl(plane, &["delete", "service", "plain-superlink", "-n", NAMESPACE], "");
    wait("the service again", || names(plane, "services").contains("plain-superlink"));
}

/// A run that is deleted while it waits for its SuperLink, and one whose retention has ended.
fn runs(plane: &ControlPlane) {
    let run = |name: &str, app: Value, ttl: Value| {
        let spec = json!({"federation": "watched", "app": app, "rounds": 1, "ttlSecondsAfterFinished": ttl});
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        json!({"apiVersion": "flwr.exalsius.ai/v1", "kind": "FederationRun", "metadata": metadata, "spec": spec})
    };
    apply(plane, &run("waits", json!({"configMap": {"name": "app"}}), json!(null)));
    let state = ["get", "federationrun", "waits", "-n", NAMESPACE, "-o", "jsonpath={.status.state}"];
    wait("a state of the run", || !plane.kubectl(&state).stdout.is_empty());
    kubectl(plane, &["delete", "federationrun", "waits", "-n", NAMESPACE], "");
    apply(plane, &run("over", json!({"native": "mlp"}), json!(0)));
    let held = ["get", "federationrun", "over", "-n", NAMESPACE, "-o", "jsonpath={.metadata.finalizers}"];
    wait("a finalizer", || !plane.kubectl(&held).stdout.is_empty());
    let ended = json!({"number": 1, "attempt": 1, "state": "Succeeded", "finished": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {"count": 1, "active": [], "history": [ended]}}).to_string();
    let told = ["patch", "federationrun/over", "-n", NAMESPACE, "--subresource=status", "--type=merge", "-p", &status];
    kubectl(plane, &told, "");
    wait("its end", || !names(plane, "federationruns").contains("over"));
}

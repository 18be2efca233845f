//! Tests of the control plane itself.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use trellis_testing::kube::{ControlPlane, Parts, shared};

const CONTROLLERS_WITHIN: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

fn succeeded(plane: &ControlPlane, arguments: &[&str], input: &str) -> String {
    let output = plane.kubectl_with_input(arguments, input);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + CONTROLLERS_WITHIN;
    while !holds() {
        assert!(Instant::now() < until, "not in {CONTROLLERS_WITHIN:?}: {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[test]
fn each_write_has_a_user_and_a_result() {
    let Some(plane) = shared(Parts::WithScheduler) else { return };
    let namespace = plane.namespace("writes");
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n";
    succeeded(plane, &["apply", "-n", &namespace, "--server-side", "-f", "-"], map);
    let of_map = |plane: &ControlPlane| {
        let writes = plane.writes().into_iter();
        writes.filter(|write| write.namespace == namespace && write.name == "one").collect::<Vec<_>>()
    };
    let writes = of_map(plane);
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert_eq!((writes[0].user.as_str(), writes[0].verb.as_str(), writes[0].status), ("admin", "patch", 201));
    assert!(plane.write_requests()["APPLY configmaps"] >= 1);
    succeeded(plane, &["get", "configmaps", "-n", &namespace], "");
    assert_eq!(of_map(plane), writes);
}

#[test]
fn users_and_service_accounts_have_their_rbac_permissions() {
    let Some(plane) = shared(Parts::WithScheduler) else { return };
    let namespace = plane.namespace("rights");
    let given = format!(
        "apiVersion: v1
kind: ServiceAccount
metadata: {{name: reader, namespace: {namespace}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: readers, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}}
subjects:
- {{kind: ServiceAccount, name: reader, namespace: {namespace}}}
- {{kind: Group, name: auditors, apiGroup: rbac.authorization.k8s.io}}
"
    );
    succeeded(plane, &["apply", "-f", "-"], &given);
    let may = |kubeconfig: &Path, verb: &str| {
        let kubeconfig = kubeconfig.to_str().expect("text");
        let asked = ["--kubeconfig", kubeconfig, "auth", "can-i", verb, "services", "-n", &namespace];
        String::from_utf8(plane.kubectl(&asked).stdout).expect("text").trim() == "yes"
    };
    for kubeconfig in [
        plane.kubeconfig_for_service_account(&namespace, "reader"),
        plane.kubeconfig_for_user("jane", Some("auditors")),
    ] {
        assert!(may(&kubeconfig, "list"));
        assert!(!may(&kubeconfig, "delete"));
    }
    assert!(!may(&plane.kubeconfig_for_user("jane", None), "list"));
}

#[test]
fn controllers_create_pods_and_the_scheduler_places_them_on_existing_nodes() {
    let Some(plane) = shared(Parts::WithScheduler) else { return };
    let namespace = plane.namespace("placed");
    let objects = "apiVersion: v1
kind: Node
metadata: {name: placed-node, labels: {placed: 'yes'}}
spec: {taints: []}
status: {capacity: {cpu: '4', memory: 8Gi, pods: '10'}, allocatable: {cpu: '4', memory: 8Gi, pods: '10'}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: pool}
spec:
  serviceName: pool
  selector: {matchLabels: {app: pool}}
  template:
    metadata: {labels: {app: pool}}
    spec:
      nodeSelector: {placed: 'yes'}
      tolerations: [{operator: Exists}]
      containers: [{name: one, image: none}]
";
    succeeded(plane, &["apply", "-n", &namespace, "-f", "-"], objects);
    eventually("the pod is on the node", || {
        let pods: Value =
            serde_json::from_str(&plane.get(&format!("/api/v1/namespaces/{namespace}/pods"))).expect("JSON");
        pods["items"][0]["spec"]["nodeName"] == "placed-node"
    });
}

#[test]
fn an_api_server_that_comes_back_has_what_it_had_and_nothing_stays_of_a_control_plane_that_ended() {
    let Some(plane) = ControlPlane::start(Parts::ApiServer) else { return };
    let namespace = plane.namespace("kept");
    plane.stop_api_server();
    assert!(!plane.kubectl(&["get", "--raw", "/readyz", "--request-timeout=5s"]).status.success());
    plane.start_api_server();
    succeeded(&plane, &["get", "namespace", &namespace], "");
    let directory = plane.kubeconfig().parent().expect("a directory").to_owned();
    drop(plane);
    assert!(!directory.exists());
}

//! Pods of a real control plane that nobody runs: what controllers and callers make of what is said about them.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use trellis_fake_kubelet::rules::{Behaviour, Pods};
use trellis_fake_kubelet::{Kubelet, Settings};
use trellis_testing::kube::{ControlPlane, Parts, shared};

const WITHIN: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

fn cluster() -> Option<(&'static ControlPlane, &'static Kubelet)> {
    static KUBELET: OnceLock<Kubelet> = OnceLock::new();
    let plane = shared(Parts::WithScheduler)?;
    let kubelet = KUBELET.get_or_init(|| Kubelet::start(&plane.kubeconfig(), Settings::nodes("node", 3)));
    Some((plane, kubelet))
}

fn apply(plane: &ControlPlane, namespace: &str, objects: &str) {
    let output = plane.kubectl_with_input(&["apply", "-n", namespace, "-f", "-"], objects);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn get(plane: &ControlPlane, path: &str) -> Value {
    serde_json::from_str(&plane.get(path)).expect("JSON")
}

fn eventually(plane: &ControlPlane, path: &str, what: &str, holds: impl Fn(&Value) -> bool) {
    let until = Instant::now() + WITHIN;
    loop {
        let found = get(plane, path);
        if holds(&found) {
            return;
        }
        assert!(Instant::now() < until, "not in {WITHIN:?}: {what}: {found}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn stateful_set(replicas: u32, claims: bool) -> String {
    let claim = "
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}";
    format!(
        "apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: pool}}
spec:
  replicas: {replicas}
  podManagementPolicy: Parallel
  serviceName: pool
  persistentVolumeClaimRetentionPolicy: {{whenDeleted: Delete, whenScaled: Delete}}
  selector: {{matchLabels: {{app: pool}}}}
  template:
    metadata: {{labels: {{app: pool}}}}
    spec: {{containers: [{{name: one, image: none}}]}}{}
",
        if claims { claim } else { "" }
    )
}

#[test]
fn a_stateful_set_becomes_ready_scales_and_goes_with_its_claims_and_volumes() {
    let Some((plane, _)) = cluster() else { return };
    let namespace = plane.namespace("whole");
    let set = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/pool");
    apply(plane, &namespace, &stateful_set(3, true));
    eventually(plane, &set, "three are ready", |set| set["status"]["readyReplicas"] == 3);
    apply(plane, &namespace, &stateful_set(1, true));
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    eventually(plane, &pods, "one is left", |pods| pods["items"].as_array().is_some_and(|pods| pods.len() == 1));
    let of_namespace = |volume: &&Value| volume["spec"]["claimRef"]["namespace"] == namespace.as_str();
    let volumes = |list: &Value| list["items"].as_array().expect("a list").iter().filter(of_namespace).count();
    eventually(plane, "/api/v1/persistentvolumes", "its volume is left", |list| volumes(list) == 1);
    assert!(plane.kubectl(&["delete", "statefulset", "pool", "-n", &namespace]).status.success());
    eventually(plane, &pods, "none is left", |pods| pods["items"] == Value::Array(vec![]));
    eventually(plane, "/api/v1/persistentvolumes", "no volume is left", |list| volumes(list) == 0);
}

#[test]
fn a_daemon_set_has_a_ready_pod_on_each_node() {
    let Some((plane, _)) = cluster() else { return };
    let namespace = plane.namespace("daemons");
    let daemons = "apiVersion: apps/v1
kind: DaemonSet
metadata: {name: pool}
spec:
  selector: {matchLabels: {app: pool}}
  template:
    metadata: {labels: {app: pool}}
    spec: {containers: [{name: one, image: none}]}
";
    apply(plane, &namespace, daemons);
    let path = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/pool");
    eventually(plane, &path, "three are ready", |daemons| daemons["status"]["numberReady"] == 3);
}

#[test]
fn pods_of_a_test_behave_as_it_wants_and_a_rule_that_changes_counts_at_once() {
    let Some((plane, kubelet)) = cluster() else { return };
    let namespace = plane.namespace("ruled");
    let one = || Pods::of_namespace(&namespace).named("pool-1");
    kubelet.let_pods(Pods::of_namespace(&namespace), Behaviour::ReadyAfter(Duration::from_millis(300)));
    kubelet.let_pods(one(), Behaviour::NeverReady);
    apply(plane, &namespace, &stateful_set(2, false));
    let set = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/pool");
    eventually(plane, &set, "one is ready", |set| set["status"]["readyReplicas"] == 1);
    let pod = format!("/api/v1/namespaces/{namespace}/pods/pool-1");
    eventually(plane, &pod, "the other runs", |pod| pod["status"]["phase"] == "Running");
    assert_eq!(get(plane, &pod)["status"]["containerStatuses"][0]["ready"], false);
    kubelet.let_pods(one(), Behaviour::Ready);
    eventually(plane, &set, "both are ready", |set| set["status"]["readyReplicas"] == 2);
    kubelet.let_pods(one(), Behaviour::Ends { exit_code: 3 });
    // The controller makes it anew, and it ends again.
    eventually(plane, &set, "one is ready", |set| set["status"]["readyReplicas"] == 1);
    kubelet.let_pods(one(), Behaviour::Ready);
    eventually(plane, &set, "both are ready", |set| set["status"]["readyReplicas"] == 2);
}

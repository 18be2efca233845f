//! A node that is lost. In a control plane of its own: others would miss the node.

use std::time::{Duration, Instant};

use serde_json::Value;
use trellis_fake_kubelet::{Kubelet, Settings};
use trellis_testing::kube::{ControlPlane, Parts};

const WITHIN: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

fn ready_pods(plane: &ControlPlane) -> usize {
    let pods: Value = serde_json::from_str(&plane.get("/api/v1/namespaces/default/pods")).expect("JSON");
    let is_ready = |pod: &&Value| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    pods["items"].as_array().expect("a list").iter().filter(is_ready).count()
}

fn eventually(plane: &ControlPlane, wanted: usize) {
    let until = Instant::now() + WITHIN;
    while ready_pods(plane) != wanted {
        assert!(Instant::now() < until, "{} pods are ready, not {wanted}", ready_pods(plane));
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[test]
fn pods_of_a_lost_node_are_not_ready_until_it_is_found() {
    let Some(plane) = ControlPlane::start(Parts::WithScheduler) else { return };
    let kubelet = Kubelet::start(&plane.kubeconfig(), Settings::nodes("node", 2));
    let daemons = "apiVersion: apps/v1
kind: DaemonSet
metadata: {name: pool}
spec:
  selector: {matchLabels: {app: pool}}
  template:
    metadata: {labels: {app: pool}}
    spec: {containers: [{name: one, image: none}]}
";
    let output = plane.kubectl_with_input(&["apply", "-f", "-"], daemons);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually(&plane, 2);
    kubelet.lose_node("node-1");
    eventually(&plane, 1);
    kubelet.find_node("node-1");
    eventually(&plane, 2);
}

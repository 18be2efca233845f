//! A federation in a cluster, from its document to nothing left: a real API server with its controllers, and pods that nobody
//! runs.

use serde_json::{Value, json};
use trellis_fake_kubelet::{Kubelet, Settings};
use trellis_testing::kube::{ControlPlane, Parts};

use crate::scene::{Scene, eventually, kill};

const KINDS: &str = "statefulsets,pods,services,secrets,configmaps,persistentvolumeclaims";

fn document(plane: &ControlPlane, nodes: u32, version: &str) -> String {
    format!(
        "apiVersion: trellis.dev/v1
kind: Federation
metadata: {{name: demo}}
spec:
  sites:
  - name: cluster
    kubernetes:
      kubeconfig: {}
      images: {{superlink: 'trellis-superlink:{version}', supernode: 'trellis-supernode:{version}'}}
  pools:
  - {{name: cpu, count: {nodes}, clientApp: 'native:mlp'}}
",
        plane.kubeconfig().display()
    )
}

fn left(plane: &ControlPlane) -> Vec<String> {
    let output = plane.kubectl(&["get", KINDS, "-l", "trellis.dev/federation", "-o", "name"]);
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn nodes(scene: &Scene) -> Value {
    scene.json(&["status"])["items"][0]["nodes"].clone()
}

#[test]
fn a_federation_in_a_cluster_comes_up_scales_and_leaves_nothing() {
    let Some(plane) = ControlPlane::start(Parts::WithScheduler) else { return };
    let _kubelet = Kubelet::start(&plane.kubeconfig(), Settings::nodes("machine", 2));
    let scene = Scene::new();
    scene.write("demo.yaml", &document(&plane, 2, "1"));
    let planned = scene.good(&["plan", "-f", "demo.yaml", "--templates"]);
    assert!(planned.contains("kind: StatefulSet") && planned.contains("name: demo-supernode-cpu-1"), "{planned}");
    assert!(left(&plane).is_empty(), "nothing is done yet");

    assert_eq!(scene.good(&["apply", "-f", "demo.yaml"]), "demo created\n");
    assert_eq!(nodes(&scene)["ready"], 2);
    assert_eq!(scene.json(&["status", "demo"])["summary"]["state"], "ready");

    scene.good(&["scale", "cpu=3"]);
    eventually("the third node", || (nodes(&scene)["ready"] == 3).then_some(()));
    // A server that is killed is followed by one that finds everything again.
    kill(scene.process("server"));
    eventually("another server", || scene.run(&["status", "-o", "json"]).status.success().then_some(()));
    scene.good(&["scale", "cpu=1"]);
    eventually("two to go", || {
        (nodes(&scene) == json!({"wanted": 1, "present": 1, "ready": 1, "busy": 0})).then_some(())
    });

    scene.good(&["delete", "demo"]);
    eventually("nothing to be left", || left(&plane).is_empty().then_some(()));
    scene.good(&["down"]);
}

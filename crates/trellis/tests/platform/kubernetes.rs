//! A federation in a cluster, from its document to its deletion: a real API server with its controllers, and simulated pods.

use serde_json::{Value, json};
use trellis_fake_kubelet::processes::ProcessSettings;
use trellis_fake_kubelet::{Kubelet, Settings};
use trellis_testing::kube::{ControlPlane, Parts};
use trellis_testing::processes::kill;

use crate::scene::{Scene, eventually};

const KINDS: &str = "statefulsets,pods,services,secrets,configmaps,persistentvolumeclaims";

/// Only a SuperLink that runs can make nodes known.
fn document(plane: &ControlPlane, nodes: u32, node_auth: bool) -> String {
    format!(
        "apiVersion: trellis.dev/v1
kind: Federation
metadata: {{name: demo}}
spec:
  sites:
  - name: cluster
    kubernetes:
      kubeconfig: {}
  security: {{nodeAuth: {node_auth}}}
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
    scene.write("demo.yaml", &document(&plane, 2, false));
    assert_eq!(scene.good(&["apply", "-f", "demo.yaml"]), "demo created\n");
    assert_eq!(nodes(&scene)["ready"], 2);
    assert_eq!(scene.json(&["status", "demo"])["summary"]["state"], "ready");

    scene.write("more.yaml", &document(&plane, 3, false));
    let planned = scene.good(&["plan", "-f", "more.yaml", "--templates"]);
    assert!(planned.contains("kind: StatefulSet") && planned.contains("name: demo-supernode-cpu-2"), "{planned}");
    assert_eq!(nodes(&scene)["present"], 2, "nothing is done by a plan");

    scene.good(&["scale", "cpu=3"]);
    eventually("the third node", || (nodes(&scene)["ready"] == 3).then_some(()));
    // A killed server is followed by one that finds everything.
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

/// Set in the process that has a network and mounts of its own.
const INSIDE: &str = "TRELLIS_TEST_OWN_NETWORK";

/// Pods as processes need unique addresses, so the test runs itself in separate namespaces.
#[test]
fn a_run_completes_in_pods() {
    if std::env::var_os(INSIDE).is_some() {
        return train_in_pods();
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: pods as processes need root");
        return;
    }
    let itself = std::env::current_exe().expect("a test is a program");
    let mut apart = std::process::Command::new("unshare");
    apart.args(["--net", "--mount", "--propagation", "private"]).arg(itself);
    apart.args(["--exact", "kubernetes::a_run_completes_in_pods", "--nocapture"]).env(INSIDE, "1");
    assert!(apart.status().expect("unshare runs").success());
}

fn command(words: &[&str]) {
    let done = std::process::Command::new(words[0]).args(&words[1..]).status().expect("it runs");
    assert!(done.success(), "{words:?}");
}

fn train_in_pods() {
    command(&["ip", "link", "set", "lo", "up"]);
    let Some(plane) = ControlPlane::start(Parts::WithScheduler) else { return };
    // Pods have a separate /tmp, so their files cannot be there.
    let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let program = env!("CARGO_BIN_EXE_trellis");
    let images = json!({ "images": [{
        "name": "trellis-*",
        "entrypoint": ["trellis"],
        "content": { "/usr/local/bin/trellis": program },
        "env": { "PATH": "/usr/local/bin" },
        "user": 65532,
    }] });
    let images = serde_json::from_value(images).expect("images");
    let processes = Some(ProcessSettings { directory: directory.path().to_owned(), images });
    let _kubelet = Kubelet::start(&plane.kubeconfig(), Settings { processes, ..Settings::nodes("machine", 2) });
    // Names of Services, for programs that are in no pod.
    let hosts = directory.path().join("hosts");
    eventually("names of services", || hosts.exists().then_some(()));
    command(&["mount", "--bind", &hosts.display().to_string(), "/etc/hosts"]);

    let scene = Scene::new();
    scene.write("demo.yaml", &document(&plane, 2, true));
    scene.good(&["apply", "-f", "demo.yaml"]);
    let said = scene.good(&["run", "native:mlp", "--rounds", "2", "-o", "json"]);
    let last: Value = serde_json::from_str(said.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&last["event"], &last["status"]), (&json!("ended"), &json!("completed")), "{said}");
    let told = scene.json(&["nodes"]);
    let known = told["items"].as_array().expect("nodes").iter().filter(|node| node["phase"] == "ready");
    assert_eq!(known.count(), 2, "{told}");
    // The SuperLink sends its log; for a node, the command is shown that prints the log.
    let log = scene.good(&["logs", "--part", "coordinator"]);
    assert!(log.contains("starting SuperLink"), "{log}");
    let (code, told) = scene.bad(&["logs", "--part", "cpu-0"]);
    assert!(code == 1 && told.contains("kubectl") && told.contains("trellis.dev/part=cpu-0"), "{told}");
    let models = scene.json(&["model", "ls"]);
    assert!(models["elsewhere"][0]["copy"].as_str().is_some_and(|copy| copy.contains("kubectl")), "{models}");

    scene.good(&["scale", "cpu=1"]);
    eventually("one to go", || (nodes(&scene)["present"] == 1).then_some(()));
    scene.good(&["delete", "demo"]);
    eventually("nothing to be left", || left(&plane).is_empty().then_some(()));
    scene.good(&["down"]);
}

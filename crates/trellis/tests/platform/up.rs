//! From `trellis up` to the deletion.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::scene::{Scene, eventually};

#[test]
fn up_train_and_down_leaves_nothing() {
    let scene = Scene::new();
    let up = scene.json(&["up", "--detach", "--nodes", "2", "--timeout", "2m"]);
    assert_eq!(up["federation"]["state"], "ready");
    assert_eq!(up["connection"]["insecure"], false);
    let config = std::fs::read_to_string(scene.path(".flwr/config.toml")).expect("the connection of flwr");
    assert!(config.contains("[superlink.local]"), "{config}");

    let status = scene.json(&["status"]);
    assert_eq!(status["items"][0]["nodes"], json!({"wanted": 2, "present": 2, "ready": 2, "busy": 0}));
    assert!(scene.good(&["status", "local"]).contains("coordinator ready at local"));
    let yaml = scene.good(&["status", "local", "-o", "yaml"]);
    assert!(yaml.starts_with("---\nsummary:\n  name: local\n"), "{yaml}");
    let nodes = scene.json(&["nodes"]);
    let shards: Vec<_> = nodes["items"].as_array().expect("nodes").iter().map(|node| &node["shard"]).collect();
    assert_eq!(shards, [&json!(0), &json!(1)]);

    let said = scene.good(&["run", "native:mlp", "--rounds", "2", "-o", "json"]);
    let last: serde_json::Value = serde_json::from_str(said.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&last["event"], &last["status"]), (&json!("ended"), &json!("completed")), "{said}");
    let model = last["model"].as_str().expect("a model").to_owned();
    let runs = scene.json(&["runs"]);
    assert_eq!(runs["items"][0]["outcome"], "completed");
    let run = runs["items"][0]["id"].as_str().expect("an id");
    assert!(scene.good(&["runs", run]).contains("round 2 of 2"));
    assert!(!scene.good(&["logs", "--part", "coordinator"]).is_empty());

    scene.good(&["scale", "nodes=3"]);
    eventually("the third node", || {
        let nodes = &scene.json(&["status"])["items"][0]["nodes"];
        (nodes["ready"] == 3).then_some(())
    });
    // An existing federation is not changed.
    assert_eq!(scene.json(&["up", "--detach"])["federation"]["nodes"]["wanted"], 3);

    scene.good(&["down"]);
    eventually("nobody", || scene.processes(None).is_empty().then_some(()));
    assert_eq!(scene.serving(), None);
    let config = std::fs::read_to_string(scene.path(".flwr/config.toml")).unwrap_or_default();
    assert!(!config.contains("[superlink.local]\naddress"), "{config}");
    assert!(std::path::Path::new(&model).exists(), "models stay: {model}");
    the_history_of_runs_stays(&scene, &runs["items"][0]);
}

/// Without a server, until it is purged.
fn the_history_of_runs_stays(scene: &Scene, run: &serde_json::Value) {
    assert_eq!(&scene.json(&["runs"])["items"][0], run);
    assert_eq!(&scene.json(&["runs", run["id"].as_str().expect("an id"), "--federation", "local"]), run);
    scene.good(&["delete", "local", "--purge"]);
    let (code, told) = scene.bad(&["runs"]);
    assert!(code == 1 && told.contains("no server runs"), "{told}");
    let (code, told) = scene.bad(&["delete", "local", "--purge"]);
    assert!(code == 1 && told.contains("no federation"), "{told}");
    eventually("nobody", || scene.processes(None).is_empty().then_some(()));
}

#[test]
fn ctrl_c_takes_down_what_up_brought_up() {
    let scene = Scene::new();
    let mut up =
        scene.command(&["up", "--nodes", "1"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    eventually("a node", || (!scene.processes(Some("supernode")).is_empty()).then_some(()));
    kill_process(Pid::from_child(&up), Signal::INT).expect("it is there");
    let code = up.wait().expect("it ends").code();
    assert!(code == Some(0) || code == Some(130), "{code:?}");
    eventually("nobody", || scene.processes(None).is_empty().then_some(()));
}

#[test]
fn several_federations_are_told_apart() {
    let scene = Scene::new();
    let document = |name: &str| {
        format!("apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {{name: {name}}}\nspec: {{nodes: 1}}\n")
    };
    scene.write("both.yaml", &format!("{}---\n{}", document("one"), document("two")));
    assert_eq!(scene.good(&["apply", "-f", "both.yaml"]), "one created\ntwo created\n");
    assert_eq!(scene.good(&["apply", "-f", "both.yaml", "--no-wait"]), "one unchanged\ntwo unchanged\n");
    let (code, told) = scene.bad(&["runs"]);
    assert!(code == 2 && told.contains("one, two") && told.contains("--federation NAME"), "{told}");
    let (code, told) = scene.bad(&["run"]);
    assert!(code == 2 && told.contains("one, two"), "{told}");
    assert!(scene.good(&["plan", "-f", "both.yaml"]).contains("one"));
    scene.good(&["delete", "one"]);
    assert_eq!(scene.json(&["status"])["items"].as_array().expect("federations").len(), 1);
    scene.good(&["down", "two"]);
    eventually("nobody", || scene.processes(None).is_empty().then_some(()));
}

//! A SuperNode that joins a federation from elsewhere is a node like all others: listed, with a shard, drained, revoked.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::scene::{Scene, eventually};

fn nodes(scene: &Scene) -> Vec<Value> {
    scene.json(&["nodes"])["items"].as_array().expect("nodes").clone()
}

fn node(scene: &Scene, name: &str) -> Option<Value> {
    nodes(scene).into_iter().find(|node| node["name"] == name)
}

/// Names of the nodes with a shard, by shard, once the plan is empty.
fn settled(scene: &Scene, wanted: &[&str]) {
    eventually(&format!("{wanted:?} to have the shards"), || {
        let mut held = nodes(scene);
        held.retain(|node| node["shard"].is_number());
        held.sort_by_key(|node| node["shard"].as_u64());
        let names: Vec<&str> = held.iter().filter_map(|node| node["name"].as_str()).collect();
        // After the shards: they are assigned before the nodes are renewed.
        (names == wanted && scene.json(&["status"])["items"][0]["state"] == "ready").then_some(())
    });
}

/// Checks how many nodes a new run selects, and that all of them answer.
#[track_caller]
fn trains_on(scene: &Scene, nodes: u64) {
    let said = scene.good(&["run", "native:mlp", "--rounds", "1", "-o", "json"]);
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let round = lines.iter().rfind(|line| line["train"].is_object()).unwrap_or_else(|| panic!("no round in {said}"));
    let train = &round["train"];
    assert!(train["asked"] == nodes && train["answered"] == nodes, "not {nodes} nodes: {round:#}");
}

fn join(scene: &Scene, connection: &Value, name: &str) -> Child {
    let text = |key: &str| connection[key].as_str().unwrap_or_else(|| panic!("no {key} in {connection:#}")).to_owned();
    let path = |name: &str| scene.path(name).display().to_string();
    let (token, key, state) = (path("join.token"), path("node.key"), path(name));
    let (http, fleet, ca) = (text("http"), text("fleet"), text("root_certificates_path"));
    let trust = ["--root-certificates", &ca];
    let make = ["node", "token", "--superlink", &http, "--token-file", &text("token_path"), "--save", &token];
    scene.good(&[&make[..], &trust].concat());
    let register = ["node", "join", "--superlink", &http, "--key", &key, "--token-file", &token, "--name", name];
    scene.good(&[&register[..], &trust].concat());
    let start = ["supernode", "--superlink", &fleet, "--auth-supernode-private-key", &key, "--state-dir", &state];
    let mut command = scene.command(&[&start[..], &trust].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
}

#[test]
fn a_node_from_elsewhere_is_listed_has_a_shard_and_is_drained_and_revoked() {
    let scene = Scene::new();
    let up = scene.json(&["up", "--detach", "--nodes", "2"]);
    let mut ward = join(&scene, &up["connection"], "ward");

    // The data is divided anew: no other node has the third shard.
    settled(&scene, &["nodes-0", "nodes-1", "ward"]);
    let listed = node(&scene, "ward").expect("it is listed");
    assert_eq!((&listed["joined"], &listed["phase"]), (&json!(true), &json!("ready")), "{listed:#}");
    assert_eq!(scene.json(&["status"])["items"][0]["nodes"]["joined"], 1);
    assert!(scene.good(&["nodes"]).contains("(joined)"));
    assert!(scene.good(&["status", "local"]).contains("1 node that joined from elsewhere is online"));
    trains_on(&scene, 3);

    scene.good(&["node", "drain", "ward"]);
    eventually("ward to be drained", || node(&scene, "ward").filter(|node| node["drained"] == true));
    trains_on(&scene, 2);
    scene.good(&["node", "drain", "ward", "--end"]);
    eventually("ward to take work", || node(&scene, "ward").filter(|node| node["drained"] == false));
    trains_on(&scene, 3);

    let (code, told) = scene.bad(&["node", "revoke", "nodes-0"]);
    assert!(code == 1 && told.contains("trellis scale nodes=COUNT"), "{told}");
    scene.good(&["node", "revoke", "ward"]);
    eventually("ward to be gone", || node(&scene, "ward").is_none().then_some(()));

    // Its shard stays without a node until the data is divided anew.
    let said = scene.run(&["scale", "nodes=1"]);
    let told = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success() && told.contains("2 of 3 shards have no node"), "{told}");
    settled(&scene, &["nodes-0"]);
    let told = scene.run(&["run", "native:mlp", "--rounds", "1"]);
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.contains("2 of 3 shards have no node"), "{told}");
    let said = scene.run(&["scale", "nodes=1", "--repartition"]);
    assert!(said.status.success() && said.stderr.is_empty(), "{}", String::from_utf8_lossy(&said.stderr));
    eventually("one shard", || {
        let status = &scene.json(&["status", "local"])["status"];
        (status["shards"] == 1 && status["ready"]["met"] == true).then_some(())
    });

    let _ = ward.kill();
    let _ = ward.wait();
    scene.good(&["down"]);
}

//! A federation of appliances that find each other, and train.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};
use trellis_client::{Security, SuperLink, Target, Trust};

use crate::scene::{Machine, PATIENCE, Scene};

pub fn train(scene: &Scene, superlink: &Machine, rounds: u32) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
    command.args(["run", "native:mlp", "--superlink", &scene.http.to_string(), "--rounds", &rounds.to_string()]);
    command.args(["--min-available-nodes", "2"]).arg("--root-certificates").arg(superlink.authority());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.spawn().expect("it starts")
}

pub async fn completes(run: Child, superlink: &Machine) {
    let done = tokio::time::timeout(PATIENCE, run.wait_with_output()).await.expect("it ends").expect("it ran");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{out}\n{err}\n{}", superlink.log());
}

fn node_config(node: &Machine) -> String {
    std::fs::read_to_string(node.root.join("etc/trellis/node-config.toml")).expect("a node config")
}

#[tokio::test]
async fn appliances_find_each_other_and_train() {
    let scene = Scene::new(2, &[], &[]).await;
    let (mut superlink, mut first, mut second) = (scene.superlink(), scene.node(0), scene.node(1));
    // Nodes that start before their SuperLink wait for it; a service's list of its VMs may be stale.
    scene.gate(|gate| gate.stale = true);
    first.start();
    second.start();
    superlink.start();
    for machine in [&superlink, &first, &second] {
        machine.until_says("READY", "YES").await;
    }
    assert!(superlink.authority().exists());
    let mut configs = [node_config(&first), node_config(&second)];
    configs.sort();
    assert_eq!(configs, ["partition-id = 0\nnum-partitions = 2\n", "partition-id = 1\nnum-partitions = 2\n"]);
    completes(train(&scene, &superlink, 3), &superlink).await;
    superlink.until_says("TRELLIS_RUNS", "0").await;
    for machine in [&mut first, &mut second, &mut superlink] {
        machine.stop().await;
    }
}

#[tokio::test]
async fn a_change_waits_until_no_round_is_at_work() {
    let scene = Scene::new(2, &[], &[]).await;
    let (mut superlink, mut first, mut second) = (scene.superlink(), scene.node(0), scene.node(1));
    superlink.start();
    first.start();
    second.start();
    for machine in [&superlink, &first, &second] {
        machine.until_says("READY", "YES").await;
    }
    let (pid, instance) = (superlink.program(), superlink.says("TRELLIS_INSTANCE").expect("it runs"));
    let run = train(&scene, &superlink, 150);
    superlink.until_says("TRELLIS_BUSY", "YES").await;
    let round: u32 = superlink.until_other("FL_ROUND_NUMBER", "0").await.parse().expect("a number");
    assert!((1..=150).contains(&round), "{round}");
    superlink.set_context("FL_LOG_LEVEL", "DEBUG");
    completes(run, &superlink).await;
    superlink.until_other("TRELLIS_INSTANCE", &instance).await;
    assert!(superlink.log().contains("a change waits until no round is at work"), "{}", superlink.log());
    assert_ne!(superlink.program(), pid);
    assert_eq!(superlink.says("FL_ROUND_NUMBER"), None, "no run is at work");
    for machine in [&mut first, &mut second, &mut superlink] {
        machine.stop().await;
    }
}

#[tokio::test]
async fn a_change_waits_for_nobody_where_that_is_said() {
    let scene = Scene::new(2, &[("FL_DEFER_RECONFIGURE", "NO")], &[]).await;
    let (mut superlink, mut first, mut second) = (scene.superlink(), scene.node(0), scene.node(1));
    superlink.start();
    first.start();
    second.start();
    for machine in [&superlink, &first, &second] {
        machine.until_says("READY", "YES").await;
    }
    let instance = superlink.says("TRELLIS_INSTANCE").expect("it runs");
    let run = train(&scene, &superlink, 150);
    superlink.until_says("TRELLIS_BUSY", "YES").await;
    superlink.set_context("FL_LOG_LEVEL", "DEBUG");
    superlink.until_other("TRELLIS_INSTANCE", &instance).await;
    superlink.until_says("READY", "YES").await;
    assert!(!superlink.log().contains("a change waits"), "{}", superlink.log());
    completes(run, &superlink).await;
    for machine in [&mut first, &mut second, &mut superlink] {
        machine.stop().await;
    }
}

/// A Python with Flower and numpy, if the test environment has one.
fn flower() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/trellis-test"));
    let cache = std::env::var_os("TRELLIS_TEST_CACHE").map(PathBuf::from).or_else(home)?;
    Some(cache.join("flwr-1.42")).filter(|venv| venv.join("bin/python").exists())
}

/// How each run ended; an empty one has not.
async fn endings(scene: &Scene, superlink: &Machine) -> Vec<String> {
    let trust = Trust::bundle(&superlink.authority()).expect("an authority");
    let (host, port) = (scene.http.ip().to_string(), scene.http.port());
    let target = Target { host, port, security: Security::Tls(trust), token: None };
    let runs = SuperLink::new(target).list_runs(None).await.expect("runs");
    runs.into_iter().map(|run| run.status.map(|status| status.sub_status).unwrap_or_default()).collect()
}

#[tokio::test]
async fn a_use_case_is_submitted_when_enough_nodes_are_there() {
    let Some(venv) = flower() else {
        eprintln!("skipped: no Python with flwr 1.42 in the test cache");
        return;
    };
    let said = [("FL_USE_CASE", "anomaly-detection"), ("FL_NUM_ROUNDS", "1")];
    let scene = Scene::new(2, &said, &[("FL_CLIENT_APP", "")]).await;
    let (mut superlink, mut first, mut second) = (scene.superlink(), scene.node(0), scene.node(1));
    for machine in [&superlink, &first, &second] {
        std::fs::create_dir_all(machine.root.join("opt/trellis")).expect("a directory");
        std::os::unix::fs::symlink(&venv, machine.root.join("opt/trellis/venv")).expect("a link");
    }
    superlink.start();
    first.start();
    first.until_says("READY", "YES").await;
    assert_eq!(endings(&scene, &superlink).await, [""; 0], "one node is not enough");
    second.start();
    superlink.until_says("TRELLIS_RUNS", "1").await;
    superlink.until_says("TRELLIS_RUNS", "0").await;
    assert_eq!(endings(&scene, &superlink).await, ["completed"], "{}", superlink.log());
    let instance = superlink.says("TRELLIS_INSTANCE").expect("it runs");
    superlink.crash().await;
    superlink.start();
    superlink.until_other("TRELLIS_INSTANCE", &instance).await;
    for machine in [&superlink, &first, &second] {
        machine.until_says("READY", "YES").await;
    }
    assert_eq!(endings(&scene, &superlink).await, ["completed"], "once in the life of the VM");
    for machine in [&mut first, &mut second, &mut superlink] {
        machine.stop().await;
    }
}

//! A federation of appliances that find each other, and train.

use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::scene::{Machine, PATIENCE, Scene};

fn train(scene: &Scene, superlink: &Machine, rounds: u32) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
    command.args(["run", "native:mlp", "--superlink", &scene.http.to_string(), "--rounds", &rounds.to_string()]);
    command.args(["--min-available-nodes", "2"]).arg("--root-certificates").arg(superlink.authority());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.spawn().expect("it starts")
}

fn node_config(node: &Machine) -> String {
    std::fs::read_to_string(node.root.join("etc/trellis/node-config.toml")).expect("a node config")
}

#[tokio::test]
async fn appliances_find_each_other_and_train() {
    let scene = Scene::new(2, &[], &[]).await;
    let (mut superlink, mut first, mut second) = (scene.superlink(), scene.node(0), scene.node(1));
    // Nodes that come before their SuperLink wait for it; a service's view of its VMs may be old.
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
    let done = train(&scene, &superlink, 3).wait_with_output();
    let done = tokio::time::timeout(PATIENCE, done).await.expect("it ends").expect("it ran");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{out}\n{err}\n{}", superlink.log());
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
    superlink.set_context("FL_LOG_LEVEL", "DEBUG");
    let done = tokio::time::timeout(PATIENCE, run.wait_with_output()).await.expect("it ends").expect("it ran");
    assert!(done.status.success(), "{}\n{}", String::from_utf8_lossy(&done.stderr), superlink.log());
    superlink.until_other("TRELLIS_INSTANCE", &instance).await;
    assert!(superlink.log().contains("a change waits until no round is at work"), "{}", superlink.log());
    assert_ne!(superlink.program(), pid);
    for machine in [&mut first, &mut second, &mut superlink] {
        machine.stop().await;
    }
}

//! A SuperLink's VM after its boot: events, and the reported status.

use std::time::Duration;

use rustix::process::Signal;
use trellis_appliance::readiness::MAX_HANG_DELAY;

use crate::scene::Scene;

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a process");
    rustix::process::kill_process(pid, signal).expect("it is there");
}

#[tokio::test]
async fn what_dies_is_not_ready_and_comes_back() {
    let scene = Scene::new(0, &[], &[]).await;
    let mut superlink = scene.superlink();
    superlink.start();
    superlink.until_says("READY", "YES").await;
    assert_eq!(superlink.says("FL_ENDPOINT"), Some(scene.fleet.to_string()));
    let (first, authority) = (superlink.says("TRELLIS_INSTANCE").expect("it runs"), superlink.says("FL_CA_CERT"));
    let since = scene.handle.updates(0).len() as u64;
    signal(superlink.program().expect("it runs"), Signal::KILL);
    superlink.until_other("TRELLIS_INSTANCE", &first).await;
    superlink.until_says("READY", "YES").await;
    let log: Vec<_> = scene.handle.updates(since).into_iter().filter(|update| update.name == "READY").collect();
    let words: Vec<_> = log.iter().filter_map(|update| update.new.as_deref()).collect();
    assert_eq!(words, ["NO", "YES"]);
    assert_eq!(superlink.says("FL_CA_CERT"), authority);
    superlink.stop().await;
}

#[tokio::test]
async fn what_answers_nobody_any_more_is_not_ready() {
    let scene = Scene::new(0, &[], &[]).await;
    let mut superlink = scene.superlink();
    superlink.notice = MAX_HANG_DELAY;
    superlink.start();
    superlink.until_says("READY", "YES").await;
    let pid = superlink.program().expect("it runs");
    signal(pid, Signal::STOP);
    superlink.until_says("READY", "NO").await;
    signal(pid, Signal::CONT);
    superlink.until_says("READY", "YES").await;
    assert_eq!(superlink.program(), Some(pid), "nobody ended it");
    superlink.stop().await;
}

#[tokio::test]
async fn a_vm_that_was_switched_off_is_the_same_again() {
    let scene = Scene::new(0, &[], &[]).await;
    let mut superlink = scene.superlink();
    superlink.start();
    superlink.until_says("READY", "YES").await;
    let (authority, instance) = (superlink.says("FL_CA_CERT"), superlink.says("TRELLIS_INSTANCE").expect("it runs"));
    superlink.crash().await;
    superlink.start();
    superlink.until_other("TRELLIS_INSTANCE", &instance).await;
    superlink.until_says("READY", "YES").await;
    assert_eq!(superlink.says("FL_CA_CERT"), authority);
    superlink.stop().await;
    assert_eq!(superlink.program(), None, "it ended with the one that started it");
}

#[tokio::test]
async fn a_context_that_says_the_same_changes_nothing_and_another_is_followed() {
    let scene = Scene::new(0, &[], &[]).await;
    let mut superlink = scene.superlink();
    superlink.start();
    superlink.until_says("READY", "YES").await;
    let (pid, instance) = (superlink.program(), superlink.says("TRELLIS_INSTANCE").expect("it runs"));
    superlink.write_context();
    // Reported by the same reconcile, so earlier changes have been observed by then.
    superlink.set_context("FL_LOG_LEVEL", "LOUD");
    let error = superlink.until_other("FL_ERROR", "").await;
    assert!(error.starts_with("config_validation_failed"), "{error}");
    assert_eq!(
        (superlink.says("READY").as_deref(), superlink.program()),
        (Some("YES"), pid),
        "what is in force serves on"
    );
    // Reported before the stop, so that the status is never wrong.
    superlink.notice = Duration::from_millis(500);
    superlink.set_context("FL_LOG_LEVEL", "DEBUG");
    superlink.until_other("TRELLIS_INSTANCE", &instance).await;
    superlink.until_says("READY", "YES").await;
    assert_ne!(superlink.program(), pid);
    superlink.stop().await;
}

#[tokio::test]
async fn another_address_is_another_certificate_of_the_same_authority() {
    let scene = Scene::new(1, &[], &[]).await;
    let (mut superlink, mut node) = (scene.superlink(), scene.node(0));
    superlink.start();
    node.start();
    node.until_says("FL_NODE_READY", "YES").await;
    let authority = superlink.says("FL_CA_CERT");
    let moved = format!("127.0.0.2:{}", scene.fleet.port());
    superlink.set_context("FL_FLEET_API_ADDRESS", &moved);
    superlink.until_says("FL_ENDPOINT", &moved).await;
    superlink.until_says("READY", "YES").await;
    assert_eq!(superlink.says("FL_CA_CERT"), authority);
    let log = node.root.join("log");
    let follows = || std::fs::read_to_string(&log).unwrap_or_default().contains(&moved);
    let began = std::time::Instant::now();
    while !follows() {
        assert!(began.elapsed() < crate::scene::PATIENCE, "{}", node.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    node.until_says("FL_NODE_READY", "YES").await;
    node.stop().await;
    superlink.stop().await;
}

#[tokio::test]
async fn the_controllers_word_counts() {
    let scene = Scene::new(1, &[], &[]).await;
    let (mut superlink, mut node) = (scene.superlink(), scene.node(0));
    superlink.start();
    node.start();
    node.until_says("FL_NODE_READY", "YES").await;
    node.until_says("TRELLIS_DRAINING", "NO").await;
    scene.say(node.vm, &[("TRELLIS_DRAIN", "YES")]);
    node.until_says("TRELLIS_DRAINING", "YES").await;
    scene.say(node.vm, &[("TRELLIS_DRAIN", "NO")]);
    node.until_says("TRELLIS_DRAINING", "NO").await;
    let instance = node.says("TRELLIS_INSTANCE").expect("it runs");
    scene.say(node.vm, &[("TRELLIS_RESTART", &instance)]);
    node.until_other("TRELLIS_INSTANCE", &instance).await;
    let assignment = trellis_one::keys::Assignment {
        part: "fed/site/node/pool-0".into(),
        generation: "00000000000000ab".into(),
        settings: [("FL_NODE_CONFIG".to_owned(), "partition-id=4 num-partitions=9".to_owned())].into(),
    };
    scene.say(node.vm, &[("TRELLIS_ASSIGNMENT", &assignment.to_attribute())]);
    node.until_says("TRELLIS_GENERATION", "00000000000000ab").await;
    node.until_says("FL_NODE_READY", "YES").await;
    let config = std::fs::read_to_string(node.root.join("etc/trellis/node-config.toml")).expect("a node config");
    assert!(config.contains("partition-id = 4") && config.contains("num-partitions = 9"), "{config}");
    node.stop().await;
    superlink.stop().await;
}

#[tokio::test]
async fn a_script_of_the_operator_has_a_say_in_what_ready_means() {
    let scene = Scene::new(0, &[("READY_SCRIPT_PATH", "/etc/ready")], &[]).await;
    let mut superlink = scene.superlink();
    let script = superlink.root.join("etc/ready");
    let agree = |code: u32| {
        let new = script.with_extension("new");
        std::fs::write(&new, format!("#!/bin/sh\nexit {code}\n")).expect("written");
        std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
        std::fs::rename(&new, &script).expect("in place");
    };
    agree(1);
    superlink.start();
    superlink.until_says("READY", "NO").await;
    superlink.until_other("TRELLIS_INSTANCE", "").await;
    agree(0);
    superlink.until_says("READY", "YES").await;
    let pid = superlink.program();
    agree(3);
    superlink.until_says("READY", "NO").await;
    assert_eq!(superlink.program(), pid, "it runs on");
    agree(0);
    superlink.until_says("READY", "YES").await;
    superlink.stop().await;
}

#[tokio::test]
async fn who_is_not_awaited_says_nothing_to_oneflow() {
    let scene = Scene::new(0, &[("REPORT_READY", "NO")], &[]).await;
    let mut superlink = scene.superlink();
    superlink.start();
    superlink.until_says("FL_READY", "YES").await;
    assert_eq!(superlink.says("READY"), None);
    superlink.stop().await;
}

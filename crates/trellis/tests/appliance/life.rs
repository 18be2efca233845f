//! A SuperLink's VM after its boot: what happens to it, and what it says meanwhile.

use std::time::Duration;

use crate::scene::{NOTICE, Prober, Scene};

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is killed");
}

#[tokio::test]
async fn what_dies_is_not_ready_and_comes_back() {
    let scene = Scene::new(0, &[], &[]).await;
    let mut superlink = scene.superlink();
    superlink.start();
    superlink.until_says("READY", "YES").await;
    assert_eq!(superlink.says("FL_ENDPOINT"), Some(scene.fleet.to_string()));
    let prober = Prober::watch(&superlink, scene.fleet);
    let (first, authority) = (superlink.says("TRELLIS_INSTANCE").expect("it runs"), superlink.says("FL_CA_CERT"));
    let since = scene.handle.updates(0).len() as u64;
    kill(superlink.program().expect("it runs"));
    superlink.until_other("TRELLIS_INSTANCE", &first).await;
    superlink.until_says("READY", "YES").await;
    let log: Vec<_> = scene.handle.updates(since).into_iter().filter(|update| update.name == "READY").collect();
    let words: Vec<_> = log.iter().filter_map(|update| update.new.as_deref()).collect();
    assert_eq!(words, ["NO", "YES"]);
    assert_eq!(superlink.says("FL_CA_CERT"), authority);
    superlink.stop().await;
    assert_eq!(superlink.says("READY").as_deref(), Some("NO"), "nobody watches any more");
    let lie = prober.longest_lie().await;
    assert!(lie < NOTICE, "READY was said for {lie:?} of what did not work");
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
    // Said through the same pass: when this is followed, what came before was looked at.
    superlink.set_context("FL_LOG_LEVEL", "LOUD");
    let error = superlink.until_other("FL_ERROR", "").await;
    assert!(error.starts_with("config_validation_failed"), "{error}");
    assert_eq!(
        (superlink.says("READY").as_deref(), superlink.program()),
        (Some("YES"), pid),
        "what is in force serves on"
    );
    let prober = Prober::watch(&superlink, scene.fleet);
    superlink.set_context("FL_LOG_LEVEL", "DEBUG");
    superlink.until_other("TRELLIS_INSTANCE", &instance).await;
    superlink.until_says("READY", "YES").await;
    assert_ne!(superlink.program(), pid);
    let lie = prober.longest_lie().await;
    assert!(lie < Duration::from_millis(500), "READY was said for {lie:?} while it was restarted");
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

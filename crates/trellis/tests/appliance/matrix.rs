//! Boots that fail, and boots that nearly do.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::scene::{PATIENCE, Scene};

/// Long enough for several polls.
const SHORT_S: u64 = 4;
const PLAIN: (&str, &str) = ("FL_TLS_ENABLED", "NO");
const NO_APP: (&str, &str) = ("FL_CLIENT_APP", "");

#[tokio::test]
async fn without_a_token_nothing_is_pretended() {
    let scene = Scene::new(1, &[("TOKEN", "NO")], &[("TOKEN", "NO")]).await;
    for machine in [scene.superlink(), scene.node(0)] {
        let said = machine.fails(60).await;
        assert!(said.contains("no_token") && said.contains("TOKEN=YES"), "{said}");
        assert_eq!(machine.says("READY"), None);
        assert_eq!(machine.program(), None);
    }
}

#[tokio::test]
async fn a_token_that_is_refused_is_the_wrong_one() {
    let scene = Scene::new(1, &[], &[]).await;
    scene.gate(|gate| gate.status = Some(401));
    for machine in [scene.superlink(), scene.node(0)] {
        let said = machine.fails(60).await;
        assert!(said.contains("onegate_unauthorised"), "{said}");
    }
}

#[tokio::test]
async fn a_onegate_that_fails_is_waited_for_until_the_limit() {
    let scene = Scene::new(1, &[], &[]).await;
    scene.gate(|gate| gate.status = Some(500));
    let said = scene.superlink().fails(SHORT_S).await;
    assert!(said.contains("onegate_unreachable"), "{said}");
    scene.gate(|gate| (gate.status, gate.refuse) = (None, true));
    let said = scene.node(0).fails(SHORT_S).await;
    assert!(said.contains("onegate_unreachable"), "{said}");
}

#[tokio::test]
async fn a_onegate_that_comes_late_and_slowly_is_enough() {
    let scene = Scene::new(0, &[], &[]).await;
    scene.gate(|gate| gate.status = Some(500));
    let mut superlink = scene.superlink();
    superlink.start();
    let log = || superlink.log().contains("onegate_unreachable");
    until(log).await;
    scene.gate(|gate| (gate.status, gate.slow_ms) = (None, 300));
    superlink.until_says("READY", "YES").await;
    assert_eq!(superlink.says("FL_ERROR"), None);
    superlink.stop().await;
}

async fn until(mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "it never holds");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_node_waits_for_its_superlink_and_says_what_for() {
    let scene = Scene::new(1, &[], &[]).await;
    let (link, node) = (scene.superlink(), scene.node(0));
    let endpoint = scene.fleet.to_string();
    let ready = [("FL_READY", "YES"), ("FL_ENDPOINT", endpoint.as_str()), ("FL_VERSION", "1.42.0")];
    let no_pem = STANDARD.encode("nothing");
    for (said, code) in [
        (vec![], "discovery_timeout"),
        (vec![("FL_READY", "NO"), ("FL_ERROR", "port_busy: x")], "discovery_timeout"),
        (ready.to_vec(), "ca_missing"),
        ([&ready[..], &[("FL_CA_CERT", no_pem.as_str())]].concat(), "ca_invalid"),
        ([&ready[..], &[("FL_CA_CERT", "!")]].concat(), "ca_invalid"),
    ] {
        scene.say(link.vm, &said);
        let printed = node.fails(SHORT_S).await;
        assert!(printed.contains(&format!("{code}: ")), "{code}: {printed}");
        let told = node.says("FL_ERROR").expect("an error is reported");
        assert!(told.starts_with(code), "{told}");
        assert_eq!(node.says("READY").as_deref(), Some("NO"));
        assert_eq!(node.program(), None);
    }
}

#[tokio::test]
async fn a_superlink_of_another_service_is_not_ours() {
    let scene = Scene::new(1, &[], &[]).await;
    scene.gate(|gate| gate.foreign = true);
    let node = scene.node(0);
    let said = node.fails(SHORT_S).await;
    assert!(said.contains("discovery_timeout"), "{said}");
    assert!(node.says("FL_ERROR").is_some_and(|error| error.starts_with("discovery_timeout")));
    assert_eq!((node.says("READY").as_deref(), node.program()), (Some("NO"), None));
}

#[tokio::test]
async fn official_programs_of_two_releases_are_not_brought_together() {
    let node = [("FL_RUNTIME", "flower"), ("FLOWER_VERSION", "1.40.0"), PLAIN, NO_APP];
    let scene = Scene::new(1, &[], &node).await;
    let endpoint = scene.fleet.to_string();
    let said = [("FL_READY", "YES"), ("FL_ENDPOINT", endpoint.as_str()), ("FL_VERSION", "1.25.0")];
    scene.say(scene.superlink().vm, &said);
    let node = scene.node(0);
    let said = node.fails(60).await;
    assert!(node.says("FL_ERROR").is_some_and(|error| error.starts_with("version_mismatch")));
    assert_eq!(node.says("READY").as_deref(), Some("NO"));
    assert!(said.contains("version_mismatch") && said.contains("1.25.0"), "{said}");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_said_not_to_be() {
    let node = [
        ("FL_RUNTIME", "flower"),
        ("FLOWER_VERSION", "1.40.0"),
        PLAIN,
        NO_APP,
        ("FL_SUPERLINK_ADDRESS", "127.0.0.1:1"),
    ];
    let scene = Scene::new(1, &[], &node).await;
    let node = scene.node(0);
    let said = node.fails(60).await;
    assert!(said.contains("start_failed") && said.contains("flower-1.40.0/bin/flower-supernode"), "{said}");
    assert!(node.says("FL_ERROR").is_some_and(|error| error.starts_with("start_failed")));
}

#[tokio::test]
async fn a_node_that_cannot_connect_is_not_ready() {
    let scene = Scene::new(1, &[], &[PLAIN, ("FL_SUPERLINK_ADDRESS", "127.0.0.1:1")]).await;
    let node = scene.node(0);
    let said = node.fails(SHORT_S).await;
    assert!(said.contains("health_check_timeout"), "{said}");
    assert_eq!(node.says("FL_NODE_READY").as_deref(), Some("NO"));
    let lied =
        scene.handle.updates(0).iter().any(|update| update.name == "READY" && update.new.as_deref() == Some("YES"));
    assert!(!lied, "READY was said");
}

#[tokio::test]
async fn a_port_that_another_has_is_named() {
    let scene = Scene::new(0, &[], &[]).await;
    let _taken = TcpListener::bind(scene.fleet).expect("the port is free");
    let superlink = scene.superlink();
    let said = superlink.fails(60).await;
    assert!(said.contains("port_busy") && said.contains(&scene.fleet.to_string()), "{said}");
    assert_eq!(superlink.says("READY").as_deref(), Some("NO"));
    assert!(superlink.says("FL_ERROR").is_some_and(|error| error.starts_with("port_busy")));
}

#[tokio::test]
async fn all_that_is_wrong_with_the_context_is_said_at_once() {
    let scene = Scene::new(0, &[("FL_LOG_LEVEL", "LOUD"), ("FL_NUM_ROUNDS", "none")], &[]).await;
    let superlink = scene.superlink();
    let said = superlink.fails(60).await;
    let told = superlink.says("FL_ERROR").expect("an error is reported");
    for text in [&said, &told] {
        for part in ["config_validation_failed", "FL_LOG_LEVEL", "FL_NUM_ROUNDS"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[tokio::test]
async fn a_gpu_that_is_not_there_is_missed_only_where_it_must_be() {
    let gpu = [("FL_GPU_ENABLED", "YES"), ("FL_GPU_FALLBACK", "NO"), PLAIN, ("FL_SUPERLINK_ADDRESS", "127.0.0.1:1")];
    if std::path::Path::new("/dev/nvidia0").exists() {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    let scene = Scene::new(1, &[], &gpu).await;
    let node = scene.node(0);
    let said = node.fails(60).await;
    assert!(said.contains("gpu_missing"), "{said}");
    assert!(node.says("FL_ERROR").is_some_and(|error| error.starts_with("gpu_missing")));
    assert_eq!(node.says("READY").as_deref(), Some("NO"));
}

#[tokio::test]
async fn a_disk_that_is_full_is_said_to_be() {
    let scene = Scene::new(0, &[], &[]).await;
    let superlink = scene.superlink();
    let state = superlink.root.join("var/lib/trellis");
    std::fs::create_dir_all(&state).expect("a directory");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(&state).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: only root can make a small disk");
        return;
    }
    let said = superlink.fails(60).await;
    let _ = Command::new("umount").arg(&state).status();
    assert!(said.contains("disk_full"), "{said}");
    assert!(superlink.says("FL_ERROR").is_some_and(|error| error.starts_with("disk_full")));
    assert_eq!(superlink.says("READY").as_deref(), Some("NO"));
}

#[tokio::test]
async fn clocks_that_are_apart_are_said_to_be() {
    let scene = Scene::new(1, &[], &[]).await;
    for (offset_s, direction) in [(4000, "behind"), (-4000, "ahead of")] {
        scene.gate(|gate| gate.date_offset_s = offset_s);
        for machine in [scene.superlink(), scene.node(0)] {
            let said = machine.fails(60).await;
            assert!(said.contains("clock_skew") && said.contains(direction), "{said}");
            assert!(machine.says("FL_ERROR").is_some_and(|error| error.starts_with("clock_skew")));
            assert_eq!((machine.says("READY").as_deref(), machine.program()), (Some("NO"), None));
        }
    }
}

#[tokio::test]
async fn a_superlink_or_its_authority_that_comes_late_is_waited_for() {
    let endpoint_and_version = |scene: &Scene| {
        let endpoint = scene.fleet.to_string();
        let said = [("FL_READY", "YES"), ("FL_ENDPOINT", endpoint.as_str()), ("FL_VERSION", "1.42.0")];
        scene.say(scene.superlink().vm, &said);
    };
    for (is_published, code) in [(false, "discovery_timeout"), (true, "ca_missing")] {
        let scene = Scene::new(1, &[], &[]).await;
        if is_published {
            endpoint_and_version(&scene);
        }
        let (mut superlink, mut node) = (scene.superlink(), scene.node(0));
        node.start();
        let error = node.until_other("FL_ERROR", "").await;
        assert!(error.starts_with(code), "{error}");
        assert_eq!((node.says("READY").as_deref(), node.program()), (Some("NO"), None));
        superlink.start();
        node.until_says("READY", "YES").await;
        assert_eq!(node.says("FL_ERROR"), None);
        node.stop().await;
        superlink.stop().await;
    }
}

#[tokio::test]
async fn a_superlink_that_goes_is_waited_for_where_it_was() {
    let scene = Scene::new(1, &[], &[]).await;
    let (mut superlink, mut node) = (scene.superlink(), scene.node(0));
    superlink.start();
    node.start();
    node.until_says("READY", "YES").await;
    let (pid, instance) = (node.program(), node.says("TRELLIS_INSTANCE"));
    superlink.crash().await;
    node.until_says("READY", "NO").await;
    assert_eq!(node.says("FL_NODE_READY").as_deref(), Some("NO"));
    assert_eq!(node.says("FL_CLIENT_STATUS").as_deref(), Some("3"));
    superlink.start();
    node.until_says("READY", "YES").await;
    assert_eq!((node.program(), node.says("TRELLIS_INSTANCE")), (pid, instance), "the node stays");
    assert_eq!(node.says("FL_ERROR"), None);
    node.stop().await;
    superlink.stop().await;
}

#[tokio::test]
async fn a_framework_that_is_not_there_is_missed() {
    let scene =
        Scene::new(1, &[], &[PLAIN, ("FL_SUPERLINK_ADDRESS", "127.0.0.1:1"), ("FL_FRAMEWORK", "pytorch")]).await;
    let node = scene.node(0);
    let said = node.fails(60).await;
    assert!(said.contains("preflight_failed") && said.contains("torch"), "{said}");
    assert!(node.says("FL_ERROR").is_some_and(|error| error.starts_with("preflight_failed")));
    assert_eq!(node.program(), None);
    // A Python that answers the version query.
    let python = node.root.join("opt/trellis/venv/bin/python");
    std::fs::create_dir_all(python.parent().expect("a directory")).expect("made");
    std::fs::write(&python, "#!/bin/sh\nexit 0\n").expect("written");
    std::fs::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    let said = node.fails(SHORT_S).await;
    assert!(said.contains("health_check_timeout"), "{said}");
}

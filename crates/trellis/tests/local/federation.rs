//! A coordinator and its nodes, as users have them.

use std::process::{Command, Stdio};

use trellis_plan::{CoordinatorSpec, Desired, NodeSpec, OpenDriver, Presence, Spec, Verb};
use trellis_spec::Tls;

use crate::scene::{Scene, coordinator, id, node, restart};

#[tokio::test(flavor = "multi_thread")]
async fn with_tls_and_node_keys_by_themselves() {
    let scene = Scene::new();
    let (link, edge) = (id("demo/local/coordinator"), id("demo/local/node/edge-0"));
    let began = std::time::Instant::now();
    let spec = CoordinatorSpec { tls: Tls::Auto, node_auth: true, ..coordinator() };
    scene.make(1, Verb::Create(Desired::new(link.clone(), Spec::Coordinator(spec)))).await;
    let fleet = scene.until_ready(&link).await.addresses.fleet.expect("an address");
    let spec = NodeSpec { tls: Tls::Auto, node_auth: true, ..node(&fleet) };
    let desired = Desired::new(edge.clone(), Spec::Node(spec));
    scene.make(2, Verb::Create(desired.clone())).await;
    let facts = scene.until_ready(&edge).await;
    println!("the first node is connected after {:?}", began.elapsed());
    assert!(facts.node_id.is_some(), "{facts:?}");
    assert_eq!((facts.busy, facts.shard, facts.draining), (Some(false), Some(0), false));
    let trust = scene.driver().trust_path(&link.federation).expect("users are told whom to trust");
    assert!(trust.exists());
    scene.make(3, restart(&desired, facts.instance)).await;
    scene.until(&edge, |presence| presence.facts().is_some_and(|now| now.instance != facts.instance)).await;
    assert_eq!(scene.until_ready(&edge).await.node_id, facts.node_id, "its key was kept, so it is the same node");
    for (serial, part) in [(4, &edge), (5, &link)] {
        scene.make(serial, Verb::Delete { id: part.clone() }).await;
        scene.until(part, |presence| *presence == Presence::Absent).await;
    }
    assert!(!trust.exists(), "the authority goes with the last part");
    assert!(scene.driver().models_path(&link.federation).is_some_and(|path| path.exists()), "models stay");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_may_be_long() {
    let scene = Scene::new();
    let long = "a-name-that-is-as-long-as-names-may-be-00";
    let long = &long[..40].trim_end_matches('-');
    let link = id(&format!("{long}/{long}/coordinator"));
    scene.make(1, scene.create(&link)).await;
    let fleet = scene.until_ready(&link).await.addresses.fleet.expect("an address");
    let edge = id(&format!("{long}/{long}/node/{long}-0"));
    scene.make(2, Verb::Create(scene.desired(&edge, &fleet, 0))).await;
    scene.until_ready(&edge).await;
}

/// ServerApps outlive a restarted SuperLink, and end when it is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_coordinator_started_ends_with_its_deletion() {
    let scene = Scene::new();
    let desired = scene.desired(&id("demo/local/coordinator"), "", 0);
    scene.make(1, Verb::Create(desired.clone())).await;
    let before = scene.until_ready(&desired.id).await;
    let inherited = std::fs::read(format!("/proc/{}/environ", scene.pid(&desired.id))).expect("it lives");
    let inherited = inherited.split(|byte| *byte == 0).filter_map(|entry| str::from_utf8(entry).ok()?.split_once('='));
    let mut app = Command::new("sleep");
    app.arg("600").envs(inherited).current_dir(scene.home.path()).stdin(Stdio::null());
    let mut app = app.spawn().expect("a program");
    scene.make(2, restart(&desired, before.instance)).await;
    scene.until(&desired.id, |presence| presence.facts().is_some_and(|now| now.instance != before.instance)).await;
    scene.until_ready(&desired.id).await;
    assert_eq!(app.try_wait().expect("a child process"), None, "it outlives the SuperLink");
    scene.make(3, Verb::Delete { id: desired.id.clone() }).await;
    scene.until(&desired.id, |presence| *presence == Presence::Absent).await;
    let ended = app.try_wait().expect("a child process");
    assert!(ended.is_some(), "it ends with the part");
    assert!(!scene.part(&desired.id).exists());
}

//! The identity of a node: the owner's name, the client release, and removal.

use trellis_core::conformance::id;
use trellis_core::control::{self, NewNode, Reach};
use trellis_core::id::{NodeId, RunId};
use trellis_core::node::Node;
use trellis_core::port::Topic;
use trellis_core::refusal::Kind;
use trellis_core::run::ServerApp;
use trellis_core::{app, fleet};

use super::scene::{Heard, INTERVAL_S, RUN, Scene, T0, instructions, key};

const OWNER: (&str, &str) = ("aid", "name");

fn node(scene: &Scene, id: u64) -> Node {
    scene.see(|read| read.node(NodeId(id))).unwrap()
}

#[test]
fn a_node_has_the_name_of_its_owner_and_its_last_client() {
    let scene = Scene::new();
    let new = NewNode { key: key(11), name: "barn".into(), location: "north field".into() };
    scene.ok(move |tx| control::register_node(tx, NodeId(11), OWNER, &new, T0));
    let registered = node(&scene, 11);
    assert_eq!((&registered.name[..], &registered.location[..], &registered.client[..]), ("barn", "north field", ""));
    for (client, later) in [("grpc", 1.0), ("grpc 1.39.0", 2.0), ("http 1.42.0", 3.0)] {
        scene.twice(move |tx| fleet::activate(tx, &key(11), INTERVAL_S, client, T0 + later));
        assert_eq!(node(&scene, 11).client, client, "a node may be upgraded");
        scene.ok(move |tx| fleet::heartbeat(tx, NodeId(11), INTERVAL_S, T0 + later));
        assert_eq!(node(&scene, 11).client, client, "heartbeats do not change it");
    }
    assert_eq!((&node(&scene, 11).name[..], &node(&scene, 11).location[..]), ("barn", "north field"));
}

/// Two runs wait for node 11, one of them also for node 12. Also returns the topics announced since.
fn waiting_for_two() -> (Scene, Heard) {
    let (scene, heard) = Scene::heard(&[11, 12]);
    let other = RunId(5);
    scene.start(other, T0);
    assert!(scene.ok(move |tx| app::claim(tx, other, ServerApp::Flower, [8; 32], T0)));
    scene.ok(|tx| app::pull_inputs(tx, &[8; 32], "grpc", T0));
    scene.send("i1(model)", 11, T0);
    scene.send("i2(model)", 12, T0);
    let mut messages = instructions(&[("i3(model)", 11)], T0);
    messages[0].0.run = other;
    scene.ok(move |tx| app::push_messages(tx, other, &messages, T0));
    heard.since(&scene);
    (scene, heard)
}

#[test]
fn removing_a_node_wakes_all_runs_that_wait_for_it() {
    let (scene, heard) = waiting_for_two();
    let is_member = |key_of: u64| scene.see(|read| fleet::is_member(read, NodeId(11), &key(key_of)));
    assert!(is_member(11));
    assert!(!is_member(12), "with another node's key");
    scene.ok(|tx| control::unregister_node(tx, NodeId(11), ("boss", "boss"), Reach::All, T0 + 1.0));
    assert!(!is_member(11));
    assert_eq!(
        heard.since(&scene),
        [Topic::Node(NodeId(11)), Topic::Replies(RunId(5)), Topic::Replies(RUN), Topic::Nodes]
    );
    assert_eq!(scene.waiting(&[id("i1"), id("i2")], T0 + 1.0), 1, "the other node");
    assert!(!scene.see(|read| fleet::is_member(read, NodeId(404), &key(11))));
}

#[test]
fn runs_do_not_wait_for_a_deactivated_node() {
    let (scene, heard) = waiting_for_two();
    scene.ok(|tx| fleet::deactivate(tx, NodeId(12), T0 + 1.0));
    assert_eq!(heard.since(&scene), [Topic::Replies(RUN), Topic::Nodes]);
    assert!(scene.see(|read| fleet::is_member(read, NodeId(12), &key(12))), "it may come back");
    scene.ok(|tx| fleet::unregister(tx, NodeId(12), T0 + 2.0));
    assert_eq!(heard.since(&scene), [Topic::Node(NodeId(12)), Topic::Replies(RUN), Topic::Nodes]);
    assert!(!scene.see(|read| fleet::is_member(read, NodeId(12), &key(12))));
}

#[test]
fn users_remove_their_own_nodes_and_admins_remove_all() {
    let scene = Scene::new();
    for id in [11, 12] {
        scene.online(id, T0);
    }
    let take = |id, by, reach| scene.act(move |tx| control::unregister_node(tx, NodeId(id), by, reach, T0));
    let refusal = take(11, ("other", "name"), Reach::Own).unwrap_err();
    assert_eq!((refusal.kind, refusal.to_string().as_str()), (Kind::NotFound, "Node ID not found for account"));
    take(11, OWNER, Reach::Own).unwrap();
    take(12, ("other", "name"), Reach::All).unwrap();
    for id in [11, 12, 404] {
        assert_eq!(take(id, OWNER, Reach::All).unwrap_err().kind, Kind::NotFound, "removed or unknown");
    }
}

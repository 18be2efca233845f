//! Who a node is: what its owner calls it, what it says of itself.

use trellis_core::control::{self, NewNode};
use trellis_core::fleet;
use trellis_core::id::NodeId;
use trellis_core::node::Node;

use super::scene::{INTERVAL_S, Scene, T0, key};

const OWNER: (&str, &str) = ("aid", "name");

fn node(scene: &Scene, id: u64) -> Node {
    scene.see(|read| read.node(NodeId(id))).unwrap()
}

#[test]
fn a_node_is_what_its_owner_calls_it_and_speaks_what_it_said_last() {
    let scene = Scene::new();
    let new = NewNode { key: key(11), name: "barn".into(), location: "north field".into() };
    scene.ok(move |tx| control::register_node(tx, NodeId(11), OWNER, &new, T0));
    let registered = node(&scene, 11);
    assert_eq!((&registered.name[..], &registered.location[..], &registered.client[..]), ("barn", "north field", ""));
    for (client, later) in [("grpc", 1.0), ("grpc 1.39.0", 2.0), ("http 1.42.0", 3.0)] {
        scene.twice(move |tx| fleet::activate(tx, &key(11), INTERVAL_S, client, T0 + later));
        assert_eq!(node(&scene, 11).client, client, "a node may be upgraded under way");
        scene.ok(move |tx| fleet::heartbeat(tx, NodeId(11), INTERVAL_S, T0 + later));
        assert_eq!(node(&scene, 11).client, client, "a heartbeat says nothing about it");
    }
    assert_eq!((&node(&scene, 11).name[..], &node(&scene, 11).location[..]), ("barn", "north field"));
}

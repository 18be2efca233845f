//! Trees that make no sense, and content that is not what was announced: refused, and nothing changes.

use bytes::Bytes;
use trellis_core::conformance::id;
use trellis_core::control::Reach;
use trellis_core::fleet;
use trellis_core::id::NodeId;
use trellis_core::object::{Arrival, Content, arrive};
use trellis_core::refusal::Kind;
use trellis_core::{app, control};

use super::scene::{RUN, Scene, T0, instructions, reply, tree};

const DEEPEST: &str = "d1(d2(d3(d4(d5(d6(d7(d8)))))))";
const TOO_DEEP: &str = "d0(d1(d2(d3(d4(d5(d6(d7(d8))))))))";

#[test]
fn a_tree_that_is_too_deep() {
    let scene = Scene::running(&[11]);
    let messages = instructions(&[("sound(model)", 11), (TOO_DEEP, 11)], T0);
    let (kind, text) = scene.refused(move |tx| app::push_messages(tx, RUN, &messages, T0));
    assert_eq!((kind, &text[..]), (Kind::Invalid, "object tree is too deep or too large"));
    let instruction = scene.send("i", 11, T0);
    let deep = reply(11, TOO_DEEP, instruction, T0);
    assert_eq!(scene.refused(move |tx| fleet::push_reply(tx, NodeId(11), &deep, T0)).0, Kind::Invalid);
    scene.answer(11, DEEPEST, instruction, T0);
    assert_eq!(scene.collect_trees(&[instruction], T0)[0].1, tree(DEEPEST));
}

#[test]
fn a_root_that_is_not_the_message() {
    let scene = Scene::running(&[11]);
    let mut messages = instructions(&[("i(model)", 11)], T0);
    messages[0].1 = tree("other(model)");
    let (kind, text) = scene.refused(move |tx| app::push_messages(tx, RUN, &messages, T0));
    assert_eq!(kind, Kind::Invalid);
    assert!(text.contains("is not the root of the object tree"), "{text}");
}

#[test]
fn content_with_other_children_than_announced() {
    let scene = Scene::running(&[11]);
    scene.push(&[("i(a b)", 11)], T0);
    let content = Content::Inline(Bytes::from_static(b"x"));
    for children in [vec!["a"], vec!["a", "b", "c"], vec!["a", "c"], vec![]] {
        let children: Vec<_> = children.into_iter().map(id).collect();
        let content = content.clone();
        let (kind, text) = scene.refused(move |tx| arrive(tx, id("i"), &content, &children));
        assert_eq!(kind, Kind::Precondition);
        assert!(text.contains("other children than announced"), "{text}");
    }
    let children = ["b", "a", "b"].map(id);
    assert_eq!(scene.arrive(id("i"), children.to_vec()), Arrival::Stored, "the order and repetitions do not matter");
}

#[test]
fn content_that_nobody_announced() {
    let scene = Scene::running(&[11]);
    let before = scene.dump();
    assert_eq!(scene.arrive(id("stranger"), vec![id("a")]), Arrival::Unannounced);
    assert_eq!(scene.dump(), before);
}

#[test]
fn content_that_comes_a_second_time_is_not_taken_again() {
    let scene = Scene::running(&[11]);
    scene.send("i(a)", 11, T0);
    let before = scene.dump();
    let other = Content::Inline(Bytes::from_static(b"something else"));
    assert_eq!(scene.ok(move |tx| arrive(tx, id("a"), &other, &[id("odd")])), Arrival::Known);
    assert_eq!(scene.dump(), before);
}

#[test]
fn nodes_and_keys_that_make_no_sense() {
    let scene = Scene::new();
    let node = scene.online(11, T0);
    for interval_s in [0.0, 9.99, 1800.01, -30.0, f64::NAN, f64::INFINITY] {
        let (kind, _) = scene.refused(move |tx| fleet::heartbeat(tx, node, interval_s, T0));
        assert_eq!(kind, Kind::Invalid);
        let (kind, _) = scene.refused(move |tx| fleet::activate(tx, b"key of 11", interval_s, "grpc", T0));
        assert_eq!(kind, Kind::Invalid);
    }
    assert!(!scene.ok(|tx| fleet::heartbeat(tx, NodeId(404), 30.0, T0)));
    assert_eq!(scene.refused(|tx| fleet::activate(tx, b"unknown", 30.0, "grpc", T0)).0, Kind::Precondition);
    assert_eq!(scene.refused(|tx| fleet::deactivate(tx, NodeId(404), T0)).0, Kind::Precondition);
    assert_eq!(scene.refused(|tx| fleet::unregister(tx, NodeId(404), T0)).0, Kind::Precondition);
    let other = ("somebody", "else");
    let (kind, text) = scene.refused(move |tx| control::unregister_node(tx, node, other, Reach::Own, T0));
    assert_eq!((kind, &text[..]), (Kind::NotFound, "Node ID not found for account"));
    let again = control::NewNode { key: b"key of 11".to_vec(), ..Default::default() };
    let (kind, text) = scene.refused(move |tx| control::register_node(tx, NodeId(12), ("aid", ""), &again, T0));
    assert_eq!((kind, &text[..]), (Kind::Precondition, fleet::KEY_IN_USE));
    assert_eq!(scene.refused(|tx| fleet::register(tx, NodeId(11), ("", ""), b"new", T0)).0, Kind::Transient);

    scene.ok(move |tx| fleet::unregister(tx, node, T0));
    assert!(!scene.ok(move |tx| fleet::heartbeat(tx, node, 30.0, T0)));
    let (kind, text) = scene.refused(|tx| fleet::register(tx, NodeId(12), ("", ""), b"key of 11", T0));
    assert_eq!((kind, &text[..]), (Kind::Precondition, fleet::KEY_IN_USE), "a key ends with its node");
    let (kind, text) = scene.refused(|tx| fleet::activate(tx, b"key of 11", 30.0, "grpc", T0));
    assert_eq!((kind, &text[..]), (Kind::Precondition, "No SuperNode found with the given public key."));
    assert_eq!(scene.refused(move |tx| fleet::unregister(tx, node, T0)).0, Kind::Precondition);
}

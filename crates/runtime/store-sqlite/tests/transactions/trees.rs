//! Invalid trees, and content that differs from its announcement: refused without changes.

use std::time::Instant;

use bytes::Bytes;
use trellis_core::conformance::id;
use trellis_core::control::Reach;
use trellis_core::fleet::{self, NewReply};
use trellis_core::id::{NodeId, RunId};
use trellis_core::message::State;
use trellis_core::object::{Arrival, Content, MAX_OUTSTANDING_OBJECTS, MAX_TREE_OBJECTS, Scope, Tree, arrive, visible};
use trellis_core::refusal::Kind;
use trellis_core::run::{Outcome, ServerApp};
use trellis_core::{app, control};

use super::scene::{APP, RUN, Scene, T0, instructions, node_scope, reply, tree};

const DEEPEST: &str = "d1(d2(d3(d4(d5(d6(d7(d8)))))))";
const TOO_DEEP: &str = "d0(d1(d2(d3(d4(d5(d6(d7(d8))))))))";

#[test]
fn a_tree_that_is_too_deep() {
    let scene = Scene::running(&[11]);
    let messages = instructions(&[("sound(model)", 11), (TOO_DEEP, 11)], T0);
    let (kind, text) = scene.refused(move |tx| app::push_messages(tx, RUN, &messages, T0));
    assert_eq!(kind, Kind::Invalid);
    assert!(text.contains("too deep or too large: a message has at most 8 levels"), "{text}");
    let instruction = scene.send("i", 11, T0);
    let deep = reply(11, TOO_DEEP, instruction, T0);
    assert_eq!(scene.refused(move |tx| fleet::push_reply(tx, NodeId(11), &deep, T0)).0, Kind::Invalid);
    scene.answer(11, DEEPEST, instruction, T0);
    assert_eq!(scene.collect_trees(&[instruction], T0)[0].1, tree(DEEPEST));
}

#[test]
fn a_root_with_another_id_than_the_message() {
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
        let (kind, text) = scene.refused(move |tx| arrive(tx, APP, id("i"), &content, &children));
        assert_eq!(kind, Kind::Precondition);
        assert!(text.contains("other children than announced"), "{text}");
    }
    let children = ["b", "a", "b"].map(id);
    assert_eq!(scene.arrive(id("i"), children.to_vec()), Arrival::Stored, "order and duplicates do not matter");
}

#[test]
fn unannounced_content() {
    let scene = Scene::running(&[11]);
    let before = scene.dump();
    assert_eq!(scene.arrive(id("stranger"), vec![id("a")]), Arrival::Unannounced);
    assert_eq!(scene.dump(), before);
}

#[test]
fn known_content_is_not_stored_again() {
    let scene = Scene::running(&[11]);
    scene.send("i(a)", 11, T0);
    let before = scene.dump();
    let other = Content::Inline(Bytes::from_static(b"something else"));
    assert_eq!(scene.ok(move |tx| arrive(tx, APP, id("a"), &other, &[id("odd")])), Arrival::Known);
    assert_eq!(scene.dump(), before);
}

/// Node 11 announces objects of other senders with false children.
#[test]
fn a_false_announcement_changes_nothing_for_other_senders() {
    let scene = Scene::running(&[11, 12]);
    let other_run = RunId(5);
    scene.start(other_run, T0);
    assert!(scene.ok(move |tx| app::claim(tx, other_run, ServerApp::Flower, [8; 32], T0)));
    scene.ok(|tx| app::pull_inputs(tx, &[8; 32], "grpc", T0));
    let (first, second) = (scene.send("i1", 11, T0), scene.send("i2", 12, T0));
    for (node, instruction) in [(11, first), (12, second)] {
        scene.pull(node, T0);
        scene.confirm(node, instruction);
    }
    let bogus = reply(11, "r1(model(bogus) update(bogus) deep(model(bogus)))", first, T0);
    scene.push_reply(11, bogus, T0);

    let mut messages = instructions(&[("other(deep(model(a b)))", 12)], T0);
    messages[0].0.run = other_run;
    let pushed = scene.ok(move |tx| app::push_messages(tx, other_run, &messages, T0));
    scene.upload_from(Scope::of_app(other_run), "other(deep(model(a b)))", &pushed.missing);
    assert_eq!(scene.pull(12, T0), Some(id("other")), "another run is not affected");
    scene.send("i3(deep(model(a b)))", 12, T0);
    assert_eq!(scene.state_of(id("i3")), Some(State::Ready), "the ServerApp is not affected");
    scene.answer(12, "r2(update(x))", second, T0);
    assert_eq!(scene.collect_trees(&[second], T0)[0].1, tree("r2(update(x))"), "another node is not affected");

    let content = Content::Inline(Bytes::from_static(b"model"));
    let children = ["a", "b"].map(id);
    let late = scene.refused(move |tx| arrive(tx, node_scope(11), id("model"), &content, &children));
    assert_eq!(late.0, Kind::Precondition, "the content decides");
    let known = reply(11, "r3(model(bogus))", first, T0);
    let (kind, text) = scene.refused(move |tx| fleet::push_reply(tx, NodeId(11), &known, T0));
    assert_eq!(kind, Kind::Invalid, "{text}");
}

#[test]
fn only_the_addressees_can_read_objects() {
    let scene = Scene::running(&[11, 12]);
    let (first, second) = (scene.send("i1(model(a))", 11, T0), scene.send("i2", 12, T0));
    scene.pull(11, T0);
    scene.pull(12, T0);
    scene.answer(11, "r1(update)", first, T0);
    scene.push_reply(12, reply(12, "r2(pending)", second, T0), T0);
    let reads =
        |scope: Scope, label: &str| scene.see(|read| visible(read, scope, id(label))).map(|found| found.has_content);
    let elsewhere = Scope::of_app(RunId(5));
    for (label, app, of_11, of_12) in [
        ("a", Some(true), Some(true), Some(true)),
        ("i1", Some(true), Some(true), Some(true)),
        ("update", Some(true), Some(true), None),
        ("pending", None, None, Some(false)),
        ("unknown", None, None, None),
    ] {
        assert_eq!((reads(APP, label), reads(node_scope(11), label)), (app, of_11), "{label}");
        assert_eq!((reads(node_scope(12), label), reads(elsewhere, label)), (of_12, None), "{label}");
    }
}

#[test]
fn a_message_of_another_run_cannot_be_replaced() {
    let scene = Scene::running(&[11]);
    scene.send("i", 11, T0);
    let other_run = RunId(5);
    scene.start(other_run, T0);
    assert!(scene.ok(move |tx| app::claim(tx, other_run, ServerApp::Flower, [8; 32], T0)));
    scene.ok(|tx| app::pull_inputs(tx, &[8; 32], "grpc", T0));
    let mut messages = instructions(&[("i", 11)], T0);
    messages[0].0.run = other_run;
    assert_eq!(scene.refused(move |tx| app::push_messages(tx, other_run, &messages, T0)).0, Kind::Invalid);
}

/// The number of objects is limited per message, and per node for incomplete replies.
#[test]
fn a_node_cannot_fill_the_store_with_announcements() {
    let numbered = |message: &str, objects: u64| Tree {
        children: (1..objects).map(|n| tree(&format!("{message}-{n}"))).collect(),
        ..tree(message)
    };
    let scene = Scene::running(&[11, 12]);
    let answers = MAX_OUTSTANDING_OBJECTS / MAX_TREE_OBJECTS;
    let asked: Vec<_> = (0..=answers).map(|n| scene.send(&format!("i{n}"), 11, T0)).collect();
    for id in &asked {
        assert_eq!(scene.pull(11, T0), Some(*id));
        scene.confirm(11, *id);
    }
    let full = |n: u64| NewReply {
        tree: numbered(&format!("r{n}"), MAX_TREE_OBJECTS),
        ..reply(11, &format!("r{n}"), asked[n as usize], T0)
    };
    let too_large = NewReply { tree: numbered("r0", MAX_TREE_OBJECTS + 1), ..full(0) };
    let (kind, text) = scene.refused(move |tx| fleet::push_reply(tx, NodeId(11), &too_large, T0));
    assert_eq!(kind, Kind::Invalid, "{text}");
    for n in 0..answers {
        let begun = Instant::now();
        scene.push_reply(11, full(n), T0);
        println!("{MAX_TREE_OBJECTS} objects announced in {:?}", begun.elapsed());
    }
    let one_more = full(answers);
    let (kind, text) = scene.refused(move |tx| fleet::push_reply(tx, NodeId(11), &one_more, T0));
    assert_eq!(kind, Kind::Transient, "{text}");
    assert!(text.contains("push the objects of earlier replies first"), "{text}");
    let honest = scene.send("honest(model)", 12, T0);
    scene.pull(12, T0);
    scene.answer(12, "r(update)", honest, T0);
    scene.ok(|tx| app::finish(tx, RUN, Outcome::Completed, "", T0));
    scene.nothing_left(RUN);
}

#[test]
fn invalid_nodes_and_keys() {
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
    assert_eq!((kind, &text[..]), (Kind::Precondition, fleet::KEY_IN_USE), "the key of a removed node stays in use");
    let (kind, text) = scene.refused(|tx| fleet::activate(tx, b"key of 11", 30.0, "grpc", T0));
    assert_eq!((kind, &text[..]), (Kind::Precondition, "No SuperNode found with the given public key."));
    assert_eq!(scene.refused(move |tx| fleet::unregister(tx, node, T0)).0, Kind::Precondition);
}

//! Regressions.

use trellis_core::conformance::id;
use trellis_core::fleet;
use trellis_core::id::{NodeId, RunId};
use trellis_core::message::State;
use trellis_core::refusal::Kind;
use trellis_core::run::ServerApp;
use trellis_core::{app, control};

use super::scene::{APP, INTERVAL_S, RUN, Scene, T0, encode, instructions, reply};

#[test]
fn a_known_subtree_counts_for_the_depth_of_a_tree() {
    let scene = Scene::running(&[11, 12]);
    scene.send("d1(d2(d3(d4(d5(d6(d7(d8)))))))", 12, T0);
    let (deep, sound) = (scene.send("i1", 11, T0), scene.send("i2", 12, T0));
    scene.answer(12, "sound", sound, T0);
    for written in ["d0(d1)", "d0(d1(d2(d3(d4(d5(d6(d7(d8))))))))"] {
        let new = reply(11, written, deep, T0);
        let (kind, _) = scene.refused(move |tx| fleet::push_reply(tx, NodeId(11), &new, T0));
        assert_eq!(kind, Kind::Invalid, "{written}: the stored children of d1 count");
    }
    let collected = scene.collect(&[sound, deep], T0 + 1.0);
    assert_eq!(collected[0].envelope.id, id("sound"), "the tree of one node does not block replies of others");
}

#[test]
fn another_tree_for_a_known_object_leaves_nothing() {
    let scene = Scene::running(&[11]);
    scene.push(&[("i1(model(a))", 11)], T0);
    let messages = instructions(&[("i2(model(b(c)))", 11)], T0);
    let _refused_or_not = scene.act(move |tx| app::push_messages(tx, RUN, &messages, T0));
    scene.ok(|tx| control::stop_run(tx, RUN, T0));
    scene.nothing_left(RUN);
}

#[test]
fn a_late_retry_of_an_answered_instruction_leaves_nothing() {
    let scene = Scene::running(&[11]);
    let instruction = scene.send("i(model)", 11, T0);
    let offline = T0 + 2.0 * INTERVAL_S;
    assert_eq!(scene.collect(&[instruction], offline).len(), 1, "answered with an error");
    let messages = instructions(&[("i(model)", 11)], T0);
    let pushed = scene.ok(move |tx| app::push_messages(tx, RUN, &messages, offline));
    assert_eq!(pushed.missing, [], "an answered instruction needs no objects");
    scene.ok(move |tx| control::stop_run(tx, RUN, offline));
    scene.nothing_left(RUN);
}

#[test]
fn a_late_retry_of_an_abandoned_instruction_is_not_delivered() {
    let scene = Scene::running(&[11]);
    let reported = scene.collect(&[id("i")], T0);
    assert_eq!(reported[0].envelope.error.as_ref().unwrap().code, 3, "the app knows that it gets no reply");
    let messages = instructions(&[("i", 11)], T0);
    if let Ok(pushed) = scene.act(move |tx| app::push_messages(tx, RUN, &messages, T0)) {
        scene.upload("i", &pushed.missing);
    }
    assert_eq!(scene.pull(11, T0), None, "its reply would be ignored");
}

#[test]
fn a_child_that_is_also_a_grandchild_counts_twice() {
    let scene = Scene::running(&[11, 12]);
    let first = scene.send("i1(a b(a))", 11, T0);
    assert_eq!(scene.see(|read| read.object(APP, id("a"))).unwrap().references, 2);
    scene.send("i2(b(a))", 12, T0);
    scene.answer(11, "r", first, T0);
    assert!(scene.see(|read| read.object(APP, id("a"))).is_some(), "i2 refers to it");
}

#[test]
fn a_tree_that_contains_itself_is_invalid() {
    let scene = Scene::running(&[11]);
    for written in ["x(x)", "x(y(x))", "x(y(z(y)))"] {
        let messages = instructions(&[(written, 11)], T0);
        let (kind, _) = scene.refused(move |tx| app::push_messages(tx, RUN, &messages, T0));
        assert_eq!(kind, Kind::Invalid, "{written}");
    }
}

/// A second run next to [`RUN`].
fn other_run(scene: &Scene) -> RunId {
    let other = RunId(5);
    scene.start(other, T0);
    assert!(scene.ok(move |tx| app::claim(tx, other, ServerApp::Flower, [8; 32], T0)));
    scene.ok(|tx| app::pull_inputs(tx, &[8; 32], "grpc", T0));
    other
}

#[test]
fn a_request_for_a_message_of_another_run_does_not_change_it() {
    let scene = Scene::running(&[11]);
    let other = other_run(&scene);
    let instruction = scene.send("i(model)", 11, T0);
    let foreign = |scene: &Scene| {
        scene.ok(move |tx| app::answer_missing(tx, other, &[instruction], T0, &encode));
        let collected = scene.see(|read| app::collect_replies(read, other, &[instruction], T0));
        assert_eq!((collected.replies.len(), collected.of_another_run), (0, vec![instruction]));
    };
    foreign(&scene);
    assert_eq!(scene.state_of(instruction), Some(State::Ready));
    assert_eq!(scene.pull(11, T0), Some(instruction));
    let answered = scene.answer(11, "r(update)", instruction, T0);
    foreign(&scene);
    let collected = scene.collect(&[instruction], T0);
    assert_eq!(collected.iter().map(|reply| reply.envelope.id).collect::<Vec<_>>(), [answered]);
}

#[test]
fn a_message_that_is_also_a_child_becomes_ready() {
    let scene = Scene::running(&[11, 12]);
    scene.push(&[("i(model)", 11)], T0);
    scene.push(&[("j(i(model))", 12)], T0);
    scene.upload("j(i(model))", &["model", "i", "j"].map(id));
    assert_eq!(scene.pull(12, T0), Some(id("j")));
    assert_eq!(scene.pull(11, T0), Some(id("i")));
}

//! A round: two nodes get the same model and answer; nothing is left. Every call is made twice.

use trellis_core::conformance::id;
use trellis_core::fleet::{self, PushOutcome};
use trellis_core::id::{NodeId, RunId};
use trellis_core::message::State;
use trellis_core::object::{self, Arrival, Scope};
use trellis_core::run::{self, Outcome, ServerApp};
use trellis_core::{app, control};

use super::scene::{APP, HASH, INTERVAL_S, RUN, Scene, T0, instructions, key, node_scope, objects, reply, tree};

/// Both instructions carry the same model.
const FIRST: &str = "i1(model(a b))";
const SECOND: &str = "i2(model(a b))";

#[test]
fn two_nodes_share_a_model_and_every_call_is_idempotent() {
    let scene = Scene::new();
    for n in [11, 12] {
        let node = scene.twice(move |tx| fleet::register(tx, NodeId(n), ("aid", "name"), &key(n), T0));
        assert_eq!(node, NodeId(n));
        assert_eq!(scene.twice(move |tx| fleet::activate(tx, &key(n), INTERVAL_S, "grpc", T0)), node);
        assert!(scene.twice(move |tx| fleet::heartbeat(tx, node, INTERVAL_S, T0)));
    }
    scene.start(RUN, T0);
    assert_eq!(scene.see(|read| read.pending_runs()), [(RUN, ServerApp::Flower)]);
    assert!(scene.ok(|tx| app::claim(tx, RUN, ServerApp::Flower, HASH, T0)));
    let inputs = scene.twice(|tx| app::pull_inputs(tx, &HASH, "http 1.42.0", T0).map(|i| (i.run, i.fab, i.context)));
    assert_eq!(scene.see(|read| read.run(RUN)).unwrap().client, "http 1.42.0");
    assert_eq!((inputs.0.state(), &inputs.2[..]), (&run::State::Running, &b"context"[..]));
    assert!(scene.twice(|tx| app::heartbeat(tx, &HASH, T0)));

    announce_and_upload(&scene);
    for (n, message, model) in [(11, "i1", FIRST), (12, "i2", SECOND)] {
        work(&scene, n, message, model);
    }
    collect_and_confirm(&scene);

    scene.twice(|tx| app::push_outputs(tx, &HASH, RUN, b"the end", T0 + 5.0));
    scene.twice(|tx| app::finish(tx, RUN, Outcome::Completed, "", T0 + 6.0));
    scene.nothing_left(RUN);
    let run = scene.see(|read| read.run(RUN)).unwrap();
    assert_eq!((run.running_at, run.finished_at, run.launches), (Some(T0), Some(T0 + 6.0), 1));
    assert_eq!(run.clientapp_runtime_s, 1.0, "each runtime counts once, though each reply was pushed twice");
    assert_eq!(scene.see(|read| read.context(RUN)).unwrap(), &b"the end"[..]);
}

fn announce_and_upload(scene: &Scene) {
    let messages = instructions(&[(FIRST, 11), (SECOND, 12)], T0);
    let pushed = scene.twice(move |tx| app::push_messages(tx, RUN, &messages, T0));
    assert_eq!(pushed.ids, [Some(id("i1")), Some(id("i2"))]);
    assert_eq!(pushed.missing, ["a", "b", "model", "i1", "i2"].map(id), "each once, children first");
    assert_eq!(scene.objects(), 5);
    let all = [objects(&tree(FIRST)), objects(&tree(SECOND))].concat();
    for missing in pushed.missing {
        assert_eq!(scene.pull(12, T0), None, "an object of i2 is missing");
        let (_, children) = all.iter().find(|(object, _)| *object == missing).unwrap().clone();
        assert_eq!(scene.arrive(missing, children.clone()), Arrival::Stored);
        let before = scene.dump();
        assert_eq!(scene.arrive(missing, children), Arrival::Known);
        assert_eq!(scene.dump(), before);
    }
}

/// The part of a node: pull twice, as after a lost answer, confirm, and reply with a part of the model.
fn work(scene: &Scene, n: u64, message: &'static str, model: &str) {
    let node = NodeId(n);
    let pull = move || scene.ok(move |tx| fleet::pull(tx, node, T0 + 1.0)).unwrap();
    let (first, tree_of_it) = pull();
    assert_eq!((tree_of_it, first.state()), (tree(model), State::Delivered));
    let (second, same_tree) = pull();
    assert_eq!((&second.envelope, same_tree), (&first.envelope, tree(model)));
    assert_eq!(second.deliveries, first.deliveries + 1, "the only change of a second pull");
    scene.twice(move |tx| fleet::confirm(tx, node, RUN, id(message)));
    assert_eq!(scene.pull(n, T0 + 1.0), None, "the instruction is confirmed");

    let written = format!("r{n}(update{n}(b))");
    let new = reply(n, &written, id(message), T0 + 2.0);
    let taken = scene.twice(move |tx| fleet::push_reply(tx, node, &new, T0 + 2.0));
    let missing = vec![id(&format!("update{n}")), id(&format!("r{n}"))];
    assert_eq!(taken, PushOutcome::Announced { missing: missing.clone() }, "b arrived with the model");
    assert_eq!(scene.waiting(&[id(message)], T0 + 2.0), 1);
    scene.upload_from(node_scope(n), &written, &missing);
    assert_eq!(scene.waiting(&[id(message)], T0 + 2.0), 0);
    assert_eq!(scene.state_of(id(message)), Some(State::Answered));
    let children = scene.see(|read| read.children(APP, id(message)));
    assert_eq!(scene.arrive(id(message), children), Arrival::Known, "a retry after a lost answer");
}

fn collect_and_confirm(scene: &Scene) {
    let asked = [id("i1"), id("i2")];
    let replies = scene.collect_trees(&asked, T0 + 3.0);
    assert_eq!(scene.collect_trees(&asked, T0 + 3.0), replies, "as often as it is asked for");
    let trees: Vec<_> = replies.iter().map(|(_, tree)| tree.clone()).collect();
    assert_eq!(trees, ["r11(update11(b))", "r12(update12(b))"].map(tree));
    assert!(replies.iter().all(|(reply, _)| reply.ready && reply.envelope.error.is_none()));
    assert_eq!(replies.iter().map(|(reply, _)| reply.reply_to).collect::<Vec<_>>(), asked);
    for (reply, left) in replies.into_iter().zip([7, 0]) {
        scene.twice(move |tx| app::confirm_reply(tx, RUN, reply.0.envelope.id));
        assert_eq!(scene.objects(), left, "objects are deleted with their last message");
    }
}

#[test]
fn stored_objects_are_not_requested_again() {
    let scene = Scene::running(&[11, 12]);
    scene.send(FIRST, 11, T0);
    let pushed = scene.push(&[(SECOND, 12)], T0);
    assert_eq!(pushed.missing, [id("i2")]);
    scene.upload(SECOND, &pushed.missing);
    assert_eq!(scene.pull(12, T0), Some(id("i2")));
}

#[test]
fn objects_may_arrive_in_any_order() {
    let scene = Scene::running(&[11]);
    scene.push(&[("i1(model(a b) config)", 11)], T0);
    let mut all = objects(&tree("i1(model(a b) config)"));
    all.reverse(); // The root first, the leaves last.
    for (object, children) in all {
        assert_eq!(scene.pull(11, T0), None, "{object} is missing");
        assert_eq!(scene.arrive(object, children), Arrival::Stored);
    }
    assert_eq!(scene.pull(11, T0), Some(id("i1")));
}

#[test]
fn a_tree_may_contain_an_object_many_times() {
    let scene = Scene::running(&[11]);
    let pushed = scene.push(&[("i1(x(a a a) y(a b) x(a))", 11)], T0);
    assert_eq!(pushed.missing, ["a", "x", "b", "y", "i1"].map(id));
    scene.upload("i1(x(a) y(a b))", &pushed.missing);
    let (_, handed_out) = scene.ok(|tx| fleet::pull(tx, NodeId(11), T0)).unwrap();
    assert_eq!(handed_out, tree("i1(x(a) y(a b))"));
    scene.ok(|tx| control::stop_run(tx, RUN, T0));
    scene.nothing_left(RUN);
}

#[test]
fn a_message_that_is_a_child_of_another_one_is_kept_for_it() {
    let scene = Scene::running(&[11, 12]);
    let inner = scene.send("i(model)", 11, T0);
    let outer = scene.send("j(i(model))", 12, T0);
    let reply = scene.answer(11, "r", inner, T0);
    scene.ok(move |tx| app::confirm_reply(tx, RUN, reply));
    assert_eq!(scene.state_of(inner), None);
    let (_, handed_out) = scene.ok(|tx| fleet::pull(tx, NodeId(12), T0)).unwrap();
    assert_eq!((handed_out, scene.objects()), (tree("j(i(model))"), 3));
    let reply = scene.answer(12, "s", outer, T0);
    assert_eq!(scene.objects(), 4, "both messages, the model and the reply");
    scene.ok(move |tx| app::confirm_reply(tx, RUN, reply));
    assert_eq!(scene.objects(), 0);
}

#[test]
fn runs_are_isolated() {
    let scene = Scene::running(&[11]);
    let other = RunId(5);
    scene.start(other, T0);
    assert!(scene.ok(move |tx| app::claim(tx, other, ServerApp::Flower, [8; 32], T0)));
    scene.ok(|tx| app::pull_inputs(tx, &[8; 32], "grpc", T0));
    let mut messages = instructions(&[("other(model(a b))", 11)], T0);
    messages[0].0.run = other;
    scene.send(FIRST, 11, T0);
    let pushed = scene.ok(move |tx| app::push_messages(tx, other, &messages, T0));
    assert_eq!(pushed.missing, ["a", "b", "model", "other"].map(id), "objects of another run do not count");
    let scope = Scope::of_app(other);
    for (object, children) in objects(&tree("other(model(a b))")) {
        let arrival = scene.arrive_from(scope, object, children);
        assert_eq!(arrival == Arrival::Known, object != id("other"), "content is stored once");
    }
    scene.ok(|tx| control::stop_run(tx, RUN, T0));
    assert_eq!(scene.pull(11, T0), Some(id("other")), "the other run continues");
    assert_eq!(scene.see(|read| object::tree(read, scope, id("other"))), tree("other(model(a b))"));
    assert!(scene.see(|read| read.object(scope, id("other"))).unwrap().is_complete());
    scene.ok(move |tx| control::stop_run(tx, other, T0));
    scene.nothing_left(other);
}

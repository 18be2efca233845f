//! The end of a run deletes all its messages and objects, in any state, and nothing of other runs.

use std::sync::Arc;

use bytes::Bytes;
use trellis_core::conformance::{await_one, change, id};
use trellis_core::id::NodeId;
use trellis_core::object::{Arrival, Content, arrive};
use trellis_core::port::{Commit, Fab, Store, Topic};
use trellis_core::run::{Outcome, ServerApp};
use trellis_core::{app, control, fleet};
use trellis_store_sqlite::{SqliteStore, StateDirectory};

use super::scene::{APP, INTERVAL_S, RUN, Scene, Step, T0, instructions, node_scope, reply};

/// A run with a message in every state.
fn in_the_middle_of_everything() -> Scene {
    let scene = Scene::running(&[11, 12, 13, 14, 15, 16]);
    scene.push(&[("incomplete(never)", 11)], T0);
    scene.send("ready(model(a b))", 12, T0);
    scene.send("delivered(model(a b))", 13, T0);
    scene.pull(13, T0);
    let confirmed = scene.send("confirmed(model(a b))", 14, T0);
    scene.pull(14, T0);
    scene.confirm(14, confirmed);
    let answering = scene.send("answering(model(a b))", 15, T0);
    scene.pull(15, T0);
    scene.push_reply(15, reply(15, "half(b x y)", answering, T0), T0);
    assert_eq!(scene.arrive_from(node_scope(15), id("x"), vec![]), Arrival::Stored);
    let answered = scene.send("answered(model(a b))", 16, T0);
    scene.pull(16, T0);
    scene.answer(16, "whole(b z)", answered, T0);
    scene.collect(&[id("unknown")], T0);
    assert!(scene.objects() > 10);
    scene
}

#[test]
fn every_end_of_a_run_leaves_nothing() {
    let ends: [Step; 4] = [
        |tx| control::stop_run(tx, RUN, T0),
        |tx| app::finish(tx, RUN, Outcome::Completed, "", T0),
        |tx| app::finish(tx, RUN, Outcome::Failed, "why", T0),
        |tx| app::process_exited(tx, RUN, "why", T0),
    ];
    for end in ends {
        let scene = in_the_middle_of_everything();
        scene.ok(end);
        scene.nothing_left(RUN);
        let late = scene.arrive_from(node_scope(15), id("y"), vec![]);
        assert_eq!(late, Arrival::Unannounced, "late content is refused");
        assert_eq!(scene.objects(), 0);
        for node in 11..=16 {
            assert_eq!(scene.pull(node, T0), None);
        }
    }
}

#[test]
fn large_objects_are_deleted_with_their_files() {
    let scene = Scene::running(&[11, 12]);
    let pushed = scene.push(&[("i1(large)", 11), ("i2(large)", 12)], T0);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let name = runtime.block_on(async {
        let mut upload = scene.store.objects().upload();
        upload.write(Bytes::from_static(b"as if it were large")).await.unwrap();
        upload.finish(id("large")).await.unwrap()
    });
    let content = Content::Large { bytes: 19, name };
    assert_eq!(scene.ok(move |tx| arrive(tx, APP, id("large"), &content, &[])), Arrival::Stored);
    scene.upload("i1(large)", &pushed.missing[1..]);
    scene.upload("i2(large)", &pushed.missing[1..]);
    let finish = |node, label: &str, to| {
        scene.pull(node, T0);
        let reply = scene.answer(node, label, to, T0);
        assert_eq!(scene.count_files(), 1, "its sender may not know yet that it arrived");
        scene.ok(move |tx| app::confirm_reply(tx, RUN, reply));
    };
    finish(11, "r1", id("i1"));
    assert_eq!(scene.count_files(), 1, "the other node refers to it");
    finish(12, "r2", id("i2"));
    assert_eq!(scene.count_files(), 0, "no references");
    scene.ok(|tx| control::stop_run(tx, RUN, T0));
    scene.nothing_left(RUN);
}

#[test]
fn all_waiters_are_notified() {
    let directory = tempfile::tempdir().unwrap();
    let (tell, reported) = std::sync::mpsc::channel();
    let state = StateDirectory::open(directory.path(), None).unwrap();
    let on_commit = move |commit: &Commit<'_>| tell.send(commit.topics.to_vec()).unwrap();
    let store = SqliteStore::open(Arc::new(state), Box::new(on_commit)).unwrap();
    let act = |work: Step| {
        change(&store, work).unwrap();
        await_one(&reported)
    };
    let started = act(|tx| {
        let fab = Fab { hash: String::new(), content: Bytes::new(), verifications: vec![] };
        control::start_run(tx, RUN, Default::default(), &fab, b"", T0)
    });
    assert_eq!(started, [Topic::Launch, Topic::Run(RUN)]);
    act(|tx| {
        fleet::register(tx, NodeId(11), ("", ""), b"key", T0)?;
        fleet::activate(tx, b"key", INTERVAL_S, "grpc", T0)?;
        app::claim(tx, RUN, ServerApp::Flower, [7; 32], T0)?;
        app::pull_inputs(tx, &[7; 32], "grpc", T0).map(drop)
    });
    let announced = act(|tx| app::push_messages(tx, RUN, &instructions(&[("i", 11)], T0), T0).map(drop));
    assert_eq!(announced, [], "its object is missing");
    let complete = act(|tx| arrive(tx, APP, id("i"), &Content::Inline(Bytes::new()), &[]).map(drop));
    assert_eq!(complete, [Topic::Node(NodeId(11))]);
    act(|tx| fleet::push_reply(tx, NodeId(11), &reply(11, "r", id("i"), T0), T0).map(drop));
    let replied = act(|tx| arrive(tx, node_scope(11), id("r"), &Content::Inline(Bytes::new()), &[]).map(drop));
    assert_eq!(replied, [Topic::Replies(RUN)]);
    let mut over = act(|tx| app::finish(tx, RUN, Outcome::Completed, "", T0));
    over.sort_unstable();
    let mut expected = vec![Topic::Finished(RUN), Topic::Log(RUN), Topic::Replies(RUN), Topic::Run(RUN)];
    expected.sort_unstable();
    assert_eq!(over, expected);
}

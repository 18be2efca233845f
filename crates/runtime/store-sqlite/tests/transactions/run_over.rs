//! A run that is not running: every call fails with the text that clients know, and changes nothing.

use trellis_core::awaited::Awaited;
use trellis_core::conformance::id;
use trellis_core::id::{NodeId, RunId};
use trellis_core::refusal::Kind;
use trellis_core::run::{Outcome, ServerApp};
use trellis_core::{app, control, fleet};

use super::scene::{HASH, RUN, Scene, Step, T0, encode, instructions, reply};

type Call = (&'static str, Step);

/// All calls that need a running run.
const CALLS: [Call; 7] = [
    ("push messages", |tx| app::push_messages(tx, RUN, &instructions(&[("i(model)", 11)], T0), T0).map(drop)),
    ("collect replies", |tx| app::collect_replies(tx, RUN, &[id("i")], T0).map(drop)),
    ("answer what is missing", |tx| app::answer_missing(tx, RUN, &[id("i")], T0, &encode)),
    ("look for replies", |tx| Awaited::new(RUN, vec![id("i")], 0, T0).check(tx, T0).map(drop)),
    ("confirm a reply", |tx| app::confirm_reply(tx, RUN, id("r"))),
    ("confirm an instruction", |tx| fleet::confirm(tx, NodeId(11), RUN, id("i"))),
    ("push a reply", |tx| fleet::push_reply(tx, NodeId(11), &reply(11, "r", id("i"), T0), T0).map(drop)),
];

fn all_refuse(scene: &Scene, expected: &str) {
    for (name, call) in CALLS {
        let (kind, text) = scene.refused(call);
        assert_eq!((kind, &text[..]), (Kind::RunOver, expected), "{name}");
    }
}

#[test]
fn an_unknown_run() {
    let scene = Scene::new();
    scene.online(11, T0);
    let text = format!("Run ID not found: {RUN}");
    all_refuse(&scene, &text);
    let (kind, reported) = scene.refused(|tx| app::finish(tx, RUN, Outcome::Completed, "", T0));
    assert_eq!((kind, reported), (Kind::RunOver, text));
    let (kind, reported) = scene.refused(|tx| control::stop_run(tx, RUN, T0));
    assert_eq!((kind, &reported[..]), (Kind::NotFound, "Run ID not found"));
    assert!(!scene.ok(|tx| app::claim(tx, RUN, ServerApp::Flower, HASH, T0)));
}

#[test]
fn a_run_that_has_not_started() {
    let scene = Scene::new();
    scene.online(11, T0);
    scene.start(RUN, T0);
    all_refuse(&scene, "Run is pending.");
    assert!(scene.ok(|tx| app::claim(tx, RUN, ServerApp::Flower, HASH, T0)));
    all_refuse(&scene, "Run is starting.");
    let (kind, _) = scene.refused(|tx| app::push_outputs(tx, &HASH, RUN, b"", T0));
    assert_eq!(kind, Kind::RunOver);
    let (kind, _) = scene.refused(|tx| app::finish(tx, RUN, Outcome::Completed, "", T0));
    assert_eq!(kind, Kind::Precondition, "a run that never ran cannot be complete");
}

#[test]
fn a_finished_run() {
    let ends: [(Step, &str); 3] = [
        (|tx| app::finish(tx, RUN, Outcome::Completed, "", T0), "Run is finished."),
        (|tx| app::finish(tx, RUN, Outcome::Failed, "why", T0), "Run is finished."),
        (|tx| control::stop_run(tx, RUN, T0), "Run is finished. Stopped by user."),
    ];
    for (end, expected) in ends {
        let scene = Scene::running(&[11]);
        scene.send("i(model)", 11, T0);
        scene.ok(end);
        all_refuse(&scene, expected);
        let (kind, reported) = scene.refused(|tx| app::finish(tx, RUN, Outcome::Failed, "another end", T0 + 1.0));
        assert_eq!((kind, &reported[..]), (Kind::RunOver, expected), "the first end counts");
        let (kind, reported) = scene.refused(|tx| control::stop_run(tx, RUN, T0 + 1.0));
        assert_eq!((kind, reported), (Kind::Precondition, format!("Run ID {RUN} is already finished")));
        let (kind, _) = scene.refused(|tx| app::pull_inputs(tx, &HASH, "grpc", T0));
        assert_eq!(kind, Kind::Denied, "its token was deleted");
        assert!(!scene.ok(|tx| app::heartbeat(tx, &HASH, T0)));
        assert!(!scene.ok(|tx| app::claim(tx, RUN, ServerApp::Flower, [9; 32], T0)));
        assert_eq!(scene.pull(11, T0), None);
    }
}

#[test]
fn a_malformed_instruction_is_refused_with_all_errors() {
    let scene = Scene::running(&[11]);
    let sound = instructions(&[("sound", 11), ("broken(model)", 11)], T0);
    let refuse = |change: fn(&mut trellis_core::message::Envelope)| {
        let mut messages = sound.clone();
        change(&mut messages[1].0);
        let (kind, text) = scene.refused(move |tx| app::push_messages(tx, RUN, &messages, T0));
        assert_eq!(kind, Kind::Invalid);
        text
    };
    assert!(refuse(|envelope| envelope.run = RunId(3)).contains("has mismatched `run_id`"));
    assert!(refuse(|envelope| envelope.src = NodeId(11)).contains("src_node_id` is not the SuperLink"));
    assert!(refuse(|envelope| envelope.id = id("x")).contains("is not the root of the object tree"));
    assert!(refuse(|envelope| envelope.dst = NodeId(0)).contains("dst_node_id` is not set"));
    assert!(refuse(|envelope| envelope.ttl_s = 1e-9).contains("TTL has expired"));
    let two = refuse(|envelope| (envelope.ttl_s, envelope.created_at) = (f64::NAN, f64::NAN));
    assert!(two.contains("ttl`") && two.contains("created_at`"), "all errors: {two}");
    assert_eq!(scene.objects(), 0, "the valid message next to it left nothing");
}

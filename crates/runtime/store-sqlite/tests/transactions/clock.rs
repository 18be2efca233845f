//! Clock jumps: no panic, and no rows are left behind.

use trellis_core::conformance::id;
use trellis_core::id::NodeId;
use trellis_core::run::{Outcome, ServerApp};
use trellis_core::upkeep::{is_due, recover, tick};
use trellis_core::{app, control, fleet};

use super::scene::{HASH, INTERVAL_S, RUN, Scene, T0, encode, instructions, key, node_scope, reply};

/// Small and large jumps in both directions.
const JUMPS: [f64; 7] = [T0, T0 - 1e-6, T0 - 1e5, 0.0, -1e12, T0 + 1e12, T0 + 1.0];

/// A whole round in which the clock jumps to `then` at call number `jump_at`. Any call may be refused.
fn round(scene: &Scene, jump_at: usize, then: f64) -> usize {
    let mut calls = 0;
    let mut now = || {
        calls += 1;
        if calls > jump_at { then } else { T0 }
    };
    let node = NodeId(11);
    let at = now();
    let _ = scene.act(move |tx| fleet::register(tx, node, ("", ""), &key(11), at));
    let at = now();
    let _ = scene.act(move |tx| fleet::activate(tx, &key(11), INTERVAL_S, "grpc", at));
    let at = now();
    scene.start(RUN, at);
    let at = now();
    let _ = scene.act(move |tx| app::claim(tx, RUN, ServerApp::Flower, HASH, at));
    let at = now();
    let _ = scene.act(move |tx| app::pull_inputs(tx, &HASH, "grpc", at));
    let at = now();
    let _ = scene.act(move |tx| app::heartbeat(tx, &HASH, at));
    let at = now();
    let _ = scene.act(move |tx| app::push_messages(tx, RUN, &instructions(&[("i(a)", 11)], T0), at));
    for (object, children) in [("a", vec![]), ("i", vec![id("a")])] {
        scene.arrive(id(object), children);
    }
    let at = now();
    let _ = scene.act(move |tx| fleet::heartbeat(tx, node, INTERVAL_S, at));
    let at = now();
    let _ = scene.act(move |tx| fleet::pull(tx, node, at));
    let _ = scene.act(move |tx| fleet::confirm(tx, node, RUN, id("i")));
    let at = now();
    let _ = scene.act(move |tx| fleet::push_reply(tx, node, &reply(11, "r", id("i"), T0), at));
    scene.arrive_from(node_scope(11), id("r"), vec![]);
    let at = now();
    let _ = trellis_core::conformance::ask(&scene.store, |read| app::collect_replies(read, RUN, &[id("i")], at));
    let _ = scene.act(move |tx| app::answer_missing(tx, RUN, &[id("i")], at, &encode));
    let at = now();
    let _ = scene.act(move |tx| recover(tx, at));
    let at = now();
    let _ = trellis_core::conformance::ask(&scene.store, |read| is_due(read, at));
    let _ = scene.act(move |tx| tick(tx, at));
    let at = now();
    let _ = scene.act(move |tx| app::push_outputs(tx, &HASH, RUN, b"", at));
    let at = now();
    let _ = scene.act(move |tx| fleet::deactivate(tx, node, at));
    let at = now();
    let _ = scene.act(move |tx| fleet::unregister(tx, node, at));
    let at = now();
    let _ = scene.act(move |tx| app::finish(tx, RUN, Outcome::Failed, "", at));
    calls
}

#[test]
fn at_any_call_and_in_any_direction() {
    let calls = round(&Scene::new(), usize::MAX, T0);
    assert!(calls > 15);
    for then in JUMPS {
        for jump_at in 0..calls {
            let scene = Scene::new();
            round(&scene, jump_at, then);
            if !scene.see(|read| read.run(RUN)).unwrap().state().is_finished() {
                scene.ok(move |tx| control::stop_run(tx, RUN, then));
            }
            scene.nothing_left(RUN);
        }
    }
}

#[test]
fn an_instruction_dated_in_the_future_is_delivered_and_answered() {
    let scene = Scene::running(&[11]);
    let messages = instructions(&[("i", 11)], T0 + 500.0);
    scene.ok(move |tx| app::push_messages(tx, RUN, &messages, T0));
    scene.arrive(id("i"), vec![]);
    assert_eq!(scene.pull(11, T0), Some(id("i")));
    assert_eq!(scene.answer(11, "r", id("i"), T0), id("r"));
    assert_eq!(scene.collect(&[id("i")], T0)[0].envelope.id, id("r"));
}

#[test]
fn a_node_stays_online_while_the_clock_is_set_back() {
    let scene = Scene::running(&[11]);
    let instruction = scene.send("i", 11, T0);
    assert_eq!(scene.waiting(&[instruction], T0 - 1e6), 1);
    assert!(scene.ok(|tx| fleet::heartbeat(tx, NodeId(11), INTERVAL_S, T0 - 1e6)));
    assert_eq!(scene.waiting(&[instruction], T0 - 1e6), 1);
    assert_eq!(scene.pull(11, T0 - 1e6), Some(instruction));
}

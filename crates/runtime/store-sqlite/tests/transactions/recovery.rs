//! Restart of the SuperLink after downtime: deadlines of nodes and apps that were alive are extended.

use trellis_core::id::NodeId;
use trellis_core::node::State;
use trellis_core::run;
use trellis_core::run::ServerApp;
use trellis_core::upkeep::{recover, tick};
use trellis_core::{app, fleet};

use super::scene::{HASH, INTERVAL_S, RUN, Scene, T0};

/// Restarted after an hour.
const BACK: f64 = T0 + 3600.0;

fn alive_at(scene: &Scene, now: f64) {
    scene.ok(move |tx| tx.set_alive_at(now));
}

fn state(scene: &Scene, node: u64, now: f64) -> State {
    scene.see(|read| read.node(NodeId(node))).unwrap().state().at(now)
}

#[test]
fn the_first_start_extends_nothing_and_stores_the_time() {
    let scene = Scene::new();
    scene.twice(|tx| recover(tx, T0));
    assert_eq!(scene.see(|read| read.alive_at()), Some(T0));
}

#[test]
fn nodes_that_were_online_before_the_downtime_are_online_after_it() {
    let scene = Scene::new();
    for node in [11, 12, 13] {
        scene.online(node, T0);
    }
    scene.ok(|tx| fleet::deactivate(tx, NodeId(12), T0 + 1.0));
    let last_promise = T0 + 2.0 * INTERVAL_S;
    alive_at(&scene, last_promise - 1.0);
    scene.online(14, last_promise - 1.0);
    scene.ok(|tx| fleet::unregister(tx, NodeId(13), T0 + 2.0));

    scene.twice(|tx| recover(tx, BACK));
    assert_eq!(state(&scene, 11, BACK), State::Online { until: BACK + 2.0 * INTERVAL_S });
    assert_eq!(state(&scene, 12, BACK), State::Offline, "it was deactivated");
    assert_eq!(state(&scene, 13, BACK), State::Unregistered);
    assert_eq!(scene.see(|read| read.online_nodes(BACK)), [11, 14].map(NodeId));
    let silent = BACK + 2.0 * INTERVAL_S;
    assert_eq!(state(&scene, 11, silent), State::Offline, "the deadline is extended once");
    assert_eq!(scene.see(|read| read.alive_at()), Some(BACK));
}

#[test]
fn nodes_that_were_offline_before_the_downtime_stay_offline() {
    let scene = Scene::new();
    scene.online(11, T0);
    alive_at(&scene, T0 + 2.0 * INTERVAL_S);
    scene.twice(|tx| recover(tx, BACK));
    assert_eq!(state(&scene, 11, BACK), State::Offline);
    assert_eq!(scene.see(|read| read.online_nodes(BACK)), []);
    assert!(scene.ok(|tx| fleet::heartbeat(tx, NodeId(11), INTERVAL_S, BACK)), "a heartbeat brings it back");
}

#[test]
fn a_message_for_an_extended_node_is_still_awaited() {
    let scene = Scene::running(&[11]);
    let instruction = scene.send("i(model)", 11, T0);
    alive_at(&scene, T0 + 1.0);
    let back = T0 + 500.0;
    assert_eq!(scene.waiting(&[instruction], back), 0, "without the extension the node is offline");
    scene.ok(move |tx| recover(tx, back));
    assert_eq!(scene.waiting(&[instruction], back), 1);
    assert_eq!(scene.pull(11, back), Some(instruction));
}

#[test]
fn an_app_that_was_alive_before_the_downtime_gets_more_time() {
    let scene = Scene::running(&[]);
    scene.ok(|tx| app::heartbeat(tx, &HASH, T0));
    alive_at(&scene, T0 + 59.0);
    scene.twice(|tx| recover(tx, BACK));
    scene.ok(|tx| tick(tx, BACK + 59.0));
    assert_eq!(scene.see(|read| read.run(RUN)).unwrap().state(), &run::State::Running);
    scene.ok(|tx| tick(tx, BACK + 61.0));
    assert!(scene.see(|read| read.run(RUN)).unwrap().state().is_finished());
}

#[test]
fn an_app_that_was_silent_before_the_downtime_has_failed() {
    let scene = Scene::running(&[]);
    scene.ok(|tx| app::heartbeat(tx, &HASH, T0));
    alive_at(&scene, T0 + 61.0);
    scene.ok(|tx| recover(tx, BACK));
    scene.ok(|tx| tick(tx, BACK));
    assert!(scene.see(|read| read.run(RUN)).unwrap().state().is_finished());
}

#[test]
fn a_claim_without_a_started_app_is_released_soon() {
    let scene = Scene::new();
    scene.start(RUN, T0);
    scene.ok(|tx| app::claim(tx, RUN, ServerApp::Flower, HASH, T0));
    alive_at(&scene, T0 + 1.0);
    scene.ok(|tx| recover(tx, BACK));
    scene.ok(|tx| tick(tx, BACK));
    assert_eq!(scene.see(|read| read.run(RUN)).unwrap().state(), &run::State::Starting, "it may be starting");
    scene.ok(|tx| tick(tx, BACK + 30.0));
    assert_eq!(scene.see(|read| read.run(RUN)).unwrap().state(), &run::State::Pending);
}

#[test]
fn an_app_with_outputs_before_the_downtime_has_completed() {
    let scene = Scene::running(&[]);
    scene.ok(|tx| app::push_outputs(tx, &HASH, RUN, b"the end", T0));
    alive_at(&scene, T0 + 1.0);
    scene.ok(|tx| recover(tx, BACK));
    scene.ok(|tx| tick(tx, BACK + 3600.0));
    let expected = run::State::Finished { outcome: run::Outcome::Completed, details: String::new() };
    assert_eq!(scene.see(|read| read.run(RUN)).unwrap().state(), &expected);
}

#[test]
fn a_clock_set_back_during_the_downtime_shortens_nothing() {
    let scene = Scene::running(&[11]);
    let before = scene.see(|read| read.node(NodeId(11))).unwrap();
    let token = scene.see(|read| read.token(RUN)).unwrap();
    alive_at(&scene, T0 + 1.0);
    scene.twice(|tx| recover(tx, T0 - 1e6));
    assert_eq!(scene.see(|read| read.node(NodeId(11))).unwrap().state(), before.state());
    assert_eq!(scene.see(|read| read.token(RUN)).unwrap(), token);
}

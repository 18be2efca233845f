//! Native runs: claims by kind, reports of rounds, and waits for some of the replies.

use trellis_core::app;
use trellis_core::awaited::Awaited;
use trellis_core::conformance::id;
use trellis_core::id::{MessageId, RunId};
use trellis_core::refusal::Kind;
use trellis_core::report::{self, TrainingReport};
use trellis_core::run::{MAX_RESTARTS, Outcome, ServerApp};

use super::scene::{HASH, RUN, Scene, T0};

/// Time at which the nodes are offline.
const OFFLINE: f64 = T0 + 1000.0;

#[test]
fn a_run_is_claimed_only_by_launchers_of_its_kind() {
    let scene = Scene::new();
    scene.start(RUN, T0);
    scene.start_native(RunId(9), T0 + 1.0);
    let expected = [(RUN, ServerApp::Flower), (RunId(9), ServerApp::Native)];
    assert_eq!(scene.see(|read| read.pending_runs()), expected);
    let before = scene.dump();
    for (run, server_app) in [(RUN, ServerApp::Native), (RunId(9), ServerApp::Flower)] {
        assert!(!scene.ok(move |tx| app::claim(tx, run, server_app, HASH, T0)));
        assert_eq!(scene.dump(), before, "a launcher of another kind changed the state");
    }
    assert!(scene.ok(move |tx| app::claim(tx, RunId(9), ServerApp::Native, HASH, T0)));
    assert_eq!(scene.see(|read| read.pending_runs()), expected[..1]);
}

fn reported(kind: &str, round: u64, body: &str) -> TrainingReport {
    TrainingReport { run: RUN, round, kind: kind.to_owned(), body: body.to_owned() }
}

#[test]
fn a_report_is_idempotent_and_survives_its_run() {
    let scene = Scene::running(&[]);
    let keep = |reported: &TrainingReport| {
        let reported = reported.clone();
        scene.ok(move |tx| report::store(tx, &reported))
    };
    let first = reported("round", 1, "{}");
    assert_eq!(keep(&first), None);
    let before = scene.dump();
    assert_eq!(keep(&first), Some(first.clone()), "a retry");
    assert_eq!(scene.dump(), before);
    let better = reported("round", 1, "{\"a\":1}");
    assert_eq!(keep(&better), Some(first));
    scene.ok(|tx| app::finish(tx, RUN, Outcome::Completed, "", T0));
    assert_eq!(scene.see(|read| read.reports_after(RUN, None, 1)), [better]);
    let (kind, _) = scene.refused(|tx| report::store(tx, &reported("round", 2, "{}")).map(drop));
    assert_eq!(kind, Kind::RunOver);
}

#[test]
fn an_invalid_report_is_refused() {
    let scene = Scene::running(&[]);
    let before = scene.dump();
    let long = "x".repeat(report::MAX_KIND_BYTES + 1);
    for bad in
        [reported("", 1, "{}"), reported("Round", 1, "{}"), reported(&long, 1, "{}"), reported("round", u64::MAX, "{}")]
    {
        assert_eq!(scene.refused(move |tx| report::store(tx, &bad).map(drop)).0, Kind::Invalid);
    }
    assert_eq!(scene.dump(), before);
}

#[test]
fn restarts_of_a_serverapp_are_counted_per_round() {
    let scene = Scene::new();
    scene.start_native(RUN, T0);
    assert!(scene.ok(|tx| app::claim(tx, RUN, ServerApp::Native, HASH, T0)));
    scene.ok(|tx| app::pull_inputs(tx, &HASH, "http", T0).map(drop));
    let restart = || scene.ok(|tx| app::restart(tx, RUN, HASH, T0));
    let report = |round| scene.ok(move |tx| report::store(tx, &reported(report::ROUND, round, "{}")).map(drop));
    report(1);
    for _ in 0..MAX_RESTARTS {
        assert!(restart());
        report(1); // A repeated round is no progress.
    }
    let before = scene.dump();
    assert!(!restart(), "too many restarts");
    assert_eq!(scene.dump(), before);
    report(2);
    assert!(restart(), "a round finished after the last restart");
}

/// Three nodes with one instruction each.
fn asked(scene: &Scene) -> [MessageId; 3] {
    [(11, "i1(model)"), (12, "i2(model)"), (13, "i3(model)")].map(|(node, tree)| scene.send(tree, node, T0))
}

/// Checks once and returns the answered instructions, if there are enough.
fn look(scene: &Scene, ids: &[MessageId], enough: usize, now: f64) -> Option<Vec<MessageId>> {
    let mut awaited = Awaited::new(RUN, ids.to_vec(), enough, T0);
    let mut found = ask(scene, &mut awaited, now)?;
    found.sort_unstable();
    Some(found)
}

fn ask(scene: &Scene, awaited: &mut Awaited, now: f64) -> Option<Vec<MessageId>> {
    let awaited = std::cell::RefCell::new(awaited);
    scene.see(|read| awaited.borrow_mut().check(read, now))
}

#[test]
fn a_wait_for_some_replies() {
    let scene = Scene::running(&[11, 12, 13]);
    let ids = asked(&scene);
    let soon = T0 + 0.1;
    assert_eq!([0, 1, 2, 3].map(|enough| look(&scene, &ids, enough, soon)), [const { None }; 4]);
    scene.answer(12, "r2", ids[1], T0);
    assert_eq!(look(&scene, &ids, 1, soon), Some(vec![ids[1]]));
    assert_eq!([0, 2, 3].map(|enough| look(&scene, &ids, enough, soon)), [const { None }; 3]);
    assert_eq!(look(&scene, &[ids[0], ids[2]], 1, soon), None, "not awaited");
    scene.answer(13, "r3", ids[2], T0);
    assert_eq!(look(&scene, &ids, 2, soon), Some(vec![ids[1], ids[2]]));
    scene.answer(11, "r1", ids[0], T0);
    assert_eq!([0, 3, 100].map(|enough| look(&scene, &ids, enough, soon).map(|all| all.len())), [Some(3); 3]);
}

#[test]
fn replies_that_will_never_arrive_count() {
    let scene = Scene::running(&[11, 12, 13]);
    let ids = asked(&scene);
    scene.answer(12, "r2", ids[1], T0);
    let never = id("unknown");
    assert_eq!(look(&scene, &[ids[0], ids[1], never], 2, T0 + 0.1), None, "the search runs a little later");
    let mut found = vec![ids[1], never];
    found.sort_unstable();
    assert_eq!(look(&scene, &[ids[0], ids[1], never], 2, T0 + 1.0), Some(found));
    assert_eq!(look(&scene, &ids, 2, OFFLINE).map(|all| all.len()), Some(3), "all nodes are offline");

    let mut awaited = Awaited::new(RUN, ids.to_vec(), 2, OFFLINE);
    assert_eq!(ask(&scene, &mut awaited, OFFLINE), None);
    assert!(ask(&scene, &mut awaited, OFFLINE + 1.0).is_some(), "the next check");
}

#[test]
fn a_message_of_another_run_is_not_waited_for() {
    let scene = Scene::running(&[11]);
    let theirs = scene.send("i(model)", 11, T0);
    let other = RunId(77);
    scene.start(other, T0);
    scene.ok(move |tx| app::claim(tx, other, ServerApp::Flower, [8; 32], T0));
    scene.ok(|tx| app::pull_inputs(tx, &[8; 32], "grpc", T0).map(drop));
    let found = scene.see(|read| Awaited::new(other, vec![theirs], 0, T0).check(read, T0));
    assert_eq!(found, Some(vec![theirs]));
}

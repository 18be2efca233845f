//! Native runs: given only to those who can start them, and telling of their rounds. Replies of which some are enough.

use trellis_core::app;
use trellis_core::awaited::Awaited;
use trellis_core::conformance::id;
use trellis_core::id::{MessageId, RunId};
use trellis_core::refusal::Kind;
use trellis_core::report::{self, TrainingReport};
use trellis_core::run::{MAX_RESTARTS, Outcome, ServerApp};

use super::scene::{HASH, RUN, Scene, T0};

/// The nodes have fallen silent by then.
const OFFLINE: f64 = T0 + 1000.0;

#[test]
fn a_run_is_claimed_by_who_starts_its_kind() {
    let scene = Scene::new();
    scene.start(RUN, T0);
    scene.start_native(RunId(9), T0 + 1.0);
    let want = [(RUN, ServerApp::Flower), (RunId(9), ServerApp::Native)];
    assert_eq!(scene.see(|read| read.pending_runs()), want);
    let before = scene.dump();
    for (run, server_app) in [(RUN, ServerApp::Native), (RunId(9), ServerApp::Flower)] {
        assert!(!scene.ok(move |tx| app::claim(tx, run, server_app, HASH, T0)));
        assert_eq!(scene.dump(), before, "who starts something else changed something");
    }
    assert!(scene.ok(move |tx| app::claim(tx, RunId(9), ServerApp::Native, HASH, T0)));
    assert_eq!(scene.see(|read| read.pending_runs()), want[..1]);
}

fn told(kind: &str, round: u64, body: &str) -> TrainingReport {
    TrainingReport { run: RUN, round, kind: kind.to_owned(), body: body.to_owned() }
}

#[test]
fn a_report_is_kept_once_and_stays_when_the_run_is_over() {
    let scene = Scene::running(&[]);
    let keep = |told: &TrainingReport| {
        let told = told.clone();
        scene.ok(move |tx| report::keep(tx, &told))
    };
    let first = told("round", 1, "{}");
    assert_eq!(keep(&first), None);
    let before = scene.dump();
    assert_eq!(keep(&first), Some(first.clone()), "said again");
    assert_eq!(scene.dump(), before);
    let better = told("round", 1, "{\"a\":1}");
    assert_eq!(keep(&better), Some(first));
    scene.ok(|tx| app::finish(tx, RUN, Outcome::Completed, "", T0));
    assert_eq!(scene.see(|read| read.reports_after(RUN, None, 1)), [better]);
    let (kind, _) = scene.refused(|tx| report::keep(tx, &told("round", 2, "{}")).map(drop));
    assert_eq!(kind, Kind::RunOver);
}

#[test]
fn a_report_says_which_it_is() {
    let scene = Scene::running(&[]);
    let before = scene.dump();
    let long = "x".repeat(report::MAX_KIND_BYTES + 1);
    for bad in [told("", 1, "{}"), told("Round", 1, "{}"), told(&long, 1, "{}"), told("round", u64::MAX, "{}")] {
        assert_eq!(scene.refused(move |tx| report::keep(tx, &bad).map(drop)).0, Kind::Invalid);
    }
    assert_eq!(scene.dump(), before);
}

#[test]
fn deaths_of_a_serverapp_count_until_a_round_comes_of_it() {
    let scene = Scene::new();
    scene.start_native(RUN, T0);
    assert!(scene.ok(|tx| app::claim(tx, RUN, ServerApp::Native, HASH, T0)));
    scene.ok(|tx| app::pull_inputs(tx, &HASH, "http", T0).map(drop));
    let restart = || scene.ok(|tx| app::restart(tx, RUN, HASH, T0));
    let report = |round| scene.ok(move |tx| report::keep(tx, &told(report::ROUND, round, "{}")).map(drop));
    report(1);
    for _ in 0..MAX_RESTARTS {
        assert!(restart());
        report(1); // Done again: no progress.
    }
    let before = scene.dump();
    assert!(!restart(), "it died too often");
    assert_eq!(scene.dump(), before);
    report(2);
    assert!(restart(), "a round came of the last start");
}

/// Three nodes, each with an instruction.
fn asked(scene: &Scene) -> [MessageId; 3] {
    [(11, "i1(model)"), (12, "i2(model)"), (13, "i3(model)")].map(|(node, tree)| scene.send(tree, node, T0))
}

/// Looks, and says how many it found; `None`: not enough.
fn look(scene: &Scene, ids: &[MessageId], enough: usize, now: f64) -> Option<Vec<MessageId>> {
    let mut awaited = Awaited::new(RUN, ids.to_vec(), enough, T0);
    let mut found = ask(scene, &mut awaited, now)?;
    found.sort_unstable();
    Some(found)
}

fn ask(scene: &Scene, awaited: &mut Awaited, now: f64) -> Option<Vec<MessageId>> {
    let awaited = std::cell::RefCell::new(awaited);
    scene.see(|read| awaited.borrow_mut().look(read, now))
}

#[test]
fn some_replies_are_enough() {
    let scene = Scene::running(&[11, 12, 13]);
    let ids = asked(&scene);
    let soon = T0 + 0.1;
    assert_eq!([0, 1, 2, 3].map(|enough| look(&scene, &ids, enough, soon)), [const { None }; 4]);
    scene.answer(12, "r2", ids[1], T0);
    assert_eq!(look(&scene, &ids, 1, soon), Some(vec![ids[1]]));
    assert_eq!([0, 2, 3].map(|enough| look(&scene, &ids, enough, soon)), [const { None }; 3]);
    assert_eq!(look(&scene, &[ids[0], ids[2]], 1, soon), None, "it was not asked for");
    scene.answer(13, "r3", ids[2], T0);
    assert_eq!(look(&scene, &ids, 2, soon), Some(vec![ids[1], ids[2]]));
    scene.answer(11, "r1", ids[0], T0);
    assert_eq!([0, 3, 100].map(|enough| look(&scene, &ids, enough, soon).map(|all| all.len())), [Some(3); 3]);
}

#[test]
fn what_will_never_come_counts_too() {
    let scene = Scene::running(&[11, 12, 13]);
    let ids = asked(&scene);
    scene.answer(12, "r2", ids[1], T0);
    let never = id("nobody knows it");
    assert_eq!(look(&scene, &[ids[0], ids[1], never], 2, T0 + 0.1), None, "that is looked for a little later");
    let mut found = vec![ids[1], never];
    found.sort_unstable();
    assert_eq!(look(&scene, &[ids[0], ids[1], never], 2, T0 + 1.0), Some(found));
    assert_eq!(look(&scene, &ids, 2, OFFLINE).map(|all| all.len()), Some(3), "all nodes fell silent");

    let mut awaited = Awaited::new(RUN, ids.to_vec(), 2, OFFLINE);
    assert_eq!(ask(&scene, &mut awaited, OFFLINE), None);
    assert!(ask(&scene, &mut awaited, OFFLINE + 1.0).is_some(), "looked at again");
}

#[test]
fn a_message_of_another_run_is_not_waited_for() {
    let scene = Scene::running(&[11]);
    let theirs = scene.send("i(model)", 11, T0);
    let other = RunId(77);
    scene.start(other, T0);
    scene.ok(move |tx| app::claim(tx, other, ServerApp::Flower, [8; 32], T0));
    scene.ok(|tx| app::pull_inputs(tx, &[8; 32], "grpc", T0).map(drop));
    let found = scene.see(|read| Awaited::new(other, vec![theirs], 0, T0).look(read, T0));
    assert_eq!(found, Some(vec![theirs]));
}

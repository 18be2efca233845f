//! A run's ServerApp and its token: claimed once, launched again if it never starts, failed if its heartbeats stop.

use trellis_core::refusal::Kind;
use trellis_core::run::{MAX_LAUNCHES, Outcome, Run, ServerApp, State};
use trellis_core::upkeep::{NO_HEARTBEAT, is_due, recover, tick};
use trellis_core::{app, control};

use super::scene::{HASH, RUN, Scene, T0};

fn pending() -> Scene {
    let scene = Scene::new();
    scene.start(RUN, T0);
    scene
}

fn run(scene: &Scene) -> Run {
    scene.see(|read| read.run(RUN)).unwrap()
}

/// The deadline of the run's token.
fn until(scene: &Scene) -> f64 {
    scene.see(|read| read.token(RUN)).unwrap().state.until()
}

fn finished(outcome: Outcome, details: &str) -> State {
    State::Finished { outcome, details: details.into() }
}

#[test]
fn a_run_is_claimed_once() {
    let scene = pending();
    assert!(scene.ok(|tx| app::claim(tx, RUN, ServerApp::Flower, HASH, T0)));
    let before = scene.dump();
    for hash in [HASH, [9; 32]] {
        assert!(!scene.ok(move |tx| app::claim(tx, RUN, ServerApp::Flower, hash, T0)));
        assert_eq!(scene.dump(), before, "the second claim changed the state");
    }
    assert_eq!(scene.see(|read| read.pending_runs()), []);
    scene.ok(|tx| app::pull_inputs(tx, &HASH, "grpc", T0 + 1.0));
    assert!(!scene.ok(|tx| app::claim(tx, RUN, ServerApp::Flower, [9; 32], T0 + 1.0)));
}

#[test]
fn an_unknown_secret_is_refused() {
    let scene = Scene::running(&[]);
    let other = [9; 32];
    assert_eq!(scene.refused(move |tx| app::pull_inputs(tx, &other, "grpc", T0)).0, Kind::Denied);
    assert_eq!(scene.refused(move |tx| app::push_outputs(tx, &other, RUN, b"", T0)).0, Kind::Denied);
    let foreign = trellis_core::id::RunId(5);
    scene.start(foreign, T0);
    let (kind, text) = scene.refused(move |tx| app::push_outputs(tx, &HASH, foreign, b"", T0));
    assert_eq!((kind, &text[..]), (Kind::Denied, "Invalid token."), "also the secret of another run");
    assert!(!scene.ok(move |tx| app::heartbeat(tx, &other, T0)));
}

#[test]
fn an_app_that_never_starts_is_launched_again_up_to_a_limit() {
    let scene = pending();
    let mut now = T0;
    for launch in 1..=MAX_LAUNCHES {
        assert!(scene.ok(move |tx| app::claim(tx, RUN, ServerApp::Flower, [launch as u8; 32], now)));
        let end = until(&scene);
        scene.ok(move |tx| tick(tx, end.next_down()));
        assert_eq!((run(&scene).state(), run(&scene).launches), (&State::Starting, launch), "before the deadline");
        assert!(scene.see(|read| is_due(read, end)));
        scene.twice(move |tx| tick(tx, end));
        assert!(!scene.see(|read| is_due(read, end)), "nothing more to do");
        now = end;
        if launch < MAX_LAUNCHES {
            assert_eq!((run(&scene).state(), run(&scene).starting_at), (&State::Pending, None));
            assert_eq!(scene.see(|read| read.pending_runs()), [(RUN, ServerApp::Flower)]);
        }
    }
    let end = run(&scene);
    let State::Finished { outcome: Outcome::Failed, details } = end.state() else { panic!("{end:?}") };
    assert!(details.contains("never asked for its inputs"), "{details}");
    assert_eq!(end.finished_at, Some(now));
    scene.nothing_left(RUN);
}

/// The launcher reports the end of the app's process.
#[test]
fn a_watched_app_has_no_launch_timeout() {
    let scene = pending();
    assert!(scene.ok(|tx| app::claim_watched(tx, RUN, ServerApp::Flower, HASH, T0)));
    let late = T0 + 86_400.0;
    assert!(!scene.see(|read| is_due(read, late)));
    scene.ok(move |tx| tick(tx, late));
    assert_eq!((run(&scene).state(), scene.see(|read| read.pending_runs())), (&State::Starting, vec![]));
    scene.ok(move |tx| recover(tx, late));
    scene.ok(move |tx| tick(tx, late + 86_400.0));
    assert_eq!(
        run(&scene).state(),
        &State::Starting,
        "also after a restart of the SuperLink: it looks for the process"
    );
    scene.ok(move |tx| app::pull_inputs(tx, &HASH, "grpc", late + 86_400.0));
    assert_eq!((run(&scene).state(), run(&scene).launches), (&State::Running, 1));

    let scene = pending();
    scene.ok(|tx| app::claim_watched(tx, RUN, ServerApp::Flower, HASH, T0));
    scene.ok(|tx| app::process_exited(tx, RUN, "exit code 1", T0 + 1.0));
    assert_eq!(run(&scene).state(), &State::Pending, "the run is free at once");
}

#[test]
fn a_late_app_may_start_while_its_run_is_unclaimed() {
    let scene = pending();
    scene.ok(|tx| app::claim(tx, RUN, ServerApp::Flower, HASH, T0));
    scene.ok(|tx| tick(tx, T0 + 1000.0));
    assert_eq!(run(&scene).state(), &State::Pending);
    scene.ok(|tx| app::pull_inputs(tx, &HASH, "grpc", T0 + 1001.0));
    assert_eq!(run(&scene).state(), &State::Running);
    assert!(!scene.ok(|tx| app::claim(tx, RUN, ServerApp::Flower, [9; 32], T0 + 1002.0)));
}

#[test]
fn a_late_app_is_refused_after_its_successor_started() {
    let scene = pending();
    scene.ok(|tx| app::claim(tx, RUN, ServerApp::Flower, HASH, T0));
    scene.ok(|tx| tick(tx, T0 + 1000.0));
    assert!(scene.ok(|tx| app::claim(tx, RUN, ServerApp::Flower, [9; 32], T0 + 1000.0)));
    assert_eq!(scene.refused(|tx| app::pull_inputs(tx, &HASH, "grpc", T0 + 1001.0)).0, Kind::Denied);
    scene.ok(|tx| app::pull_inputs(tx, &[9; 32], "grpc", T0 + 1001.0));
}

#[test]
fn an_app_without_heartbeats_has_failed() {
    let scene = Scene::running(&[11]);
    scene.send("i(model)", 11, T0);
    scene.ok(|tx| app::heartbeat(tx, &HASH, T0 + 10.0));
    let end = until(&scene);
    assert!(end > T0 + 60.0, "a minute after the last heartbeat");
    scene.ok(move |tx| tick(tx, end.next_down()));
    assert_eq!(run(&scene).state(), &State::Running);
    scene.twice(move |tx| tick(tx, end));
    assert_eq!(run(&scene).state(), &finished(Outcome::Failed, NO_HEARTBEAT));
    scene.nothing_left(RUN);
}

#[test]
fn an_app_has_more_time_while_it_installs_itself() {
    let scene = Scene::running(&[]);
    assert!(until(&scene) >= T0 + 120.0);
    scene.ok(|tx| tick(tx, T0 + 120.0));
    assert_eq!(run(&scene).state(), &State::Running);
}

#[test]
fn a_heartbeat_just_before_the_deadline_saves_the_run() {
    let scene = Scene::running(&[]);
    let end = until(&scene);
    assert!(scene.ok(move |tx| app::heartbeat(tx, &HASH, end)));
    scene.ok(move |tx| tick(tx, end));
    assert_eq!(run(&scene).state(), &State::Running);
}

#[test]
fn a_closed_connection_shortens_the_timeout() {
    let scene = Scene::running(&[]);
    let deadline = until(&scene);
    scene.twice(|tx| app::hangup(tx, RUN, T0 + 1.0));
    let end = until(&scene);
    assert!(end < deadline && end > T0 + 1.0 + 22.5, "longer than the app's heartbeat interval");
    assert!(scene.ok(move |tx| app::heartbeat(tx, &HASH, end - 1.0)), "only the connection was lost");
    assert!(until(&scene) > end);
    scene.ok(move |tx| app::hangup(tx, RUN, end));
    let end = until(&scene);
    scene.ok(move |tx| tick(tx, end));
    assert_eq!(run(&scene).state(), &finished(Outcome::Failed, NO_HEARTBEAT));
    scene.twice(move |tx| app::hangup(tx, RUN, end));

    let scene = pending();
    scene.ok(|tx| app::claim(tx, RUN, ServerApp::Flower, HASH, T0));
    let before = scene.dump();
    scene.twice(|tx| app::hangup(tx, RUN, T0 + 1.0));
    assert_eq!(scene.dump(), before, "an app that has not started has no connection");
}

#[test]
fn an_app_without_heartbeats_after_its_outputs_has_completed() {
    let scene = Scene::running(&[]);
    scene.ok(|tx| app::push_outputs(tx, &HASH, RUN, b"the end", T0 + 1.0));
    let end = until(&scene);
    scene.ok(move |tx| tick(tx, end.next_down()));
    assert_eq!(run(&scene).state(), &State::Running);
    scene.twice(move |tx| tick(tx, end));
    assert_eq!(run(&scene).state(), &finished(Outcome::Completed, ""));
    scene.nothing_left(RUN);
}

#[test]
fn the_end_of_a_process_fails_its_run_unless_the_outputs_arrived() {
    let scene = pending();
    scene.twice(|tx| app::process_exited(tx, RUN, "exit code 1", T0));
    assert_eq!(run(&scene).state(), &State::Pending, "not launched yet");
    scene.ok(|tx| app::claim(tx, RUN, ServerApp::Flower, HASH, T0));
    scene.twice(|tx| app::process_exited(tx, RUN, "exit code 1", T0));
    assert_eq!(run(&scene).state(), &State::Pending, "it may be launched again");
    scene.ok(|tx| app::claim(tx, RUN, ServerApp::Flower, [9; 32], T0));
    scene.ok(|tx| app::pull_inputs(tx, &[9; 32], "grpc", T0));
    scene.twice(|tx| app::process_exited(tx, RUN, "exit code 1", T0 + 1.0));
    assert_eq!(run(&scene).state(), &finished(Outcome::Failed, "exit code 1"));

    let scene = Scene::running(&[]);
    scene.ok(|tx| app::push_outputs(tx, &HASH, RUN, b"the end", T0));
    scene.twice(|tx| app::process_exited(tx, RUN, "exit code 1", T0 + 1.0));
    assert_eq!(run(&scene).state(), &finished(Outcome::Completed, ""));

    let scene = Scene::running(&[]);
    scene.ok(|tx| control::stop_run(tx, RUN, T0));
    scene.twice(|tx| app::process_exited(tx, RUN, "killed", T0 + 1.0));
    assert_eq!(run(&scene).state(), &finished(Outcome::Stopped, ""), "a stopped run has not failed");
}

#[test]
fn a_process_that_ends_too_often_before_its_start_fails_its_run() {
    let scene = pending();
    for launch in 1..=MAX_LAUNCHES {
        assert!(scene.ok(move |tx| app::claim(tx, RUN, ServerApp::Flower, [launch as u8; 32], T0)));
        scene.ok(|tx| app::process_exited(tx, RUN, "exit code 1", T0));
    }
    assert_eq!(run(&scene).state(), &finished(Outcome::Failed, "exit code 1"));
}

#[test]
fn run_ids_are_unique() {
    let scene = pending();
    let fab = trellis_core::port::Fab { hash: "other".into(), content: "x".into(), verifications: vec![] };
    let (kind, _) = scene.refused(move |tx| control::start_run(tx, RUN, Default::default(), &fab, b"other", T0 + 1.0));
    assert_eq!(kind, Kind::Transient, "a retry picks another id");
}

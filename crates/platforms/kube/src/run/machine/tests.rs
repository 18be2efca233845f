use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// 2026-11-16T12:00:00Z, a Monday.
const NOON: i64 = 1_794_830_400;

fn run(spec: Value) -> FederationRun {
    let mut whole = json!({"federation": "demo", "app": {"native": "mlp"}});
    whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
    let resource = json!({
        "metadata": {"name": "r", "namespace": "n", "uid": "u1", "generation": 3, "creationTimestamp": time(NOON),
                     "finalizers": [super::super::FINALIZER]},
        "spec": whole,
    });
    FederationRun::read(&resource).expect("it can be read")
}

fn seen(runs: Vec<SeenRun>) -> Seen {
    Seen { federation: FederationState::Ready, runs: Ok(runs), unfit: Vec::new(), refused: Vec::new() }
}

fn at_superlink(number: u64, attempt: u32, phase: Phase) -> SeenRun {
    SeenRun {
        of: Try { number, attempt },
        id: number * 100 + u64::from(attempt),
        phase,
        submitted: NOON,
        finished: phase.is_over().then_some(NOON + 60),
        details: String::new(),
        round: None,
        rounds: None,
        result: BTreeMap::new(),
    }
}

/// Events aside.
fn deeds(next: &Next) -> Vec<Effect> {
    next.effects.iter().filter(|effect| !matches!(effect, Effect::Tell { .. })).cloned().collect()
}

/// Each step starts from the status that the previous step wrote.
fn step(run: &mut FederationRun, seen: &Seen, now: i64) -> Next {
    let next = next(run, seen, now);
    run.status = serde_json::from_value(serde_json::to_value(&next.status).expect("plain data")).expect("as written");
    assert_eq!(run.status, next.status, "nothing is lost on the way through the API server");
    next
}

fn holds(run: &FederationRun, kind: &str) -> bool {
    run.status.conditions.iter().any(|it| it.kind == kind && it.status == "True")
}

#[test]
fn a_try_is_announced_then_sent_then_followed_to_its_end() {
    let mut run = run(json!({}));
    run.held = false;
    assert_eq!(deeds(&step(&mut run, &seen(vec![]), NOON)), [Effect::Hold]);
    run.held = true;
    let announced = step(&mut run, &seen(vec![]), NOON);
    assert_eq!((deeds(&announced), run.status.state), (vec![], State::Waiting));
    assert!(announced.follow && run.status.active[0].submitted.is_some());
    let sent = step(&mut run, &seen(vec![]), NOON + 1);
    assert_eq!(deeds(&sent), [Effect::Submit(Try { number: 1, attempt: 1 })]);
    let mut there = at_superlink(1, 1, Phase::Running);
    (there.round, there.rounds, there.result) = (Some(2), Some(5), BTreeMap::from([("train.loss".to_owned(), 0.5)]));
    let followed = step(&mut run, &seen(vec![there.clone()]), NOON + 2);
    assert_eq!((deeds(&followed), run.status.state), (vec![], State::Running));
    assert_eq!((run.status.run_id.as_deref(), run.status.progress.as_deref()), (Some("101"), Some("2/5")));
    assert!(holds(&run, "Reconciling") && !holds(&run, "Ready"));
    there.phase = Phase::Completed;
    there.finished = Some(NOON + 60);
    let ended = step(&mut run, &seen(vec![there.clone()]), NOON + 61);
    assert_eq!((deeds(&ended), run.status.state, ended.follow), (vec![], State::Succeeded, false));
    assert_eq!(run.status.finished, Some(time(NOON + 60)));
    assert_eq!(run.status.result["train.loss"], 0.5);
    assert!(holds(&run, "Ready") && holds(&run, "Complete") && !holds(&run, "Reconciling"));
    let still = run.status.clone();
    step(&mut run, &seen(vec![there]), NOON + 3600);
    assert_eq!(run.status, still, "a finished run does not change");
}

#[test]
fn what_a_run_waits_for_is_told() {
    let unready = |why: &str| Seen { federation: FederationState::Unready(why.to_owned()), ..seen(vec![]) };
    for (spec, around, expected) in [
        (json!({}), Seen { federation: FederationState::Absent, ..seen(vec![]) }, "no Federation demo"),
        (json!({}), unready("no SuperLink"), "waits for the federation demo: no SuperLink"),
        (json!({"suspend": true}), seen(vec![]), "is suspended"),
        (json!({"schedule": "0 18 * * *"}), seen(vec![]), "the time of its schedule"),
    ] {
        let mut run = run(spec.clone());
        let waiting = step(&mut run, &around, NOON);
        assert_eq!((deeds(&waiting), run.status.state), (vec![], State::Waiting), "{spec}");
        assert!(run.status.message.contains(expected), "{}", run.status.message);
    }
}

#[test]
fn a_failed_try_is_repeated_with_growing_waits_and_then_no_more() {
    let mut run = run(json!({"retries": 2, "backoffSeconds": 30}));
    let mut now = NOON;
    for (attempt, wait) in [(1, Some(30)), (2, Some(60)), (3, None)] {
        step(&mut run, &seen(vec![]), now);
        assert_eq!(deeds(&step(&mut run, &seen(vec![]), now)), [Effect::Submit(Try { number: 1, attempt })]);
        let mut failed = at_superlink(1, attempt, Phase::Failed);
        failed.details = "out of memory".to_owned();
        let after = step(&mut run, &seen(vec![failed.clone()]), now);
        match wait {
            Some(wait) => {
                assert_eq!((after.wake_at, run.status.state), (Some(now + wait), State::Waiting));
                assert!(run.status.message.starts_with(&format!("attempt {attempt} failed: out of memory")));
                // Not a moment earlier.
                assert_eq!(deeds(&step(&mut run, &seen(vec![failed]), now + wait - 1)), []);
                assert!(run.status.active[0].submitted.is_none());
                now += wait;
            }
            None => {
                assert_eq!((run.status.state, run.status.message.as_str()), (State::Failed, "out of memory"));
                assert!(holds(&run, "Failed") && holds(&run, "Stalled"));
            }
        }
    }
}

#[test]
fn a_stopped_run_is_not_repeated_but_one_that_took_too_long_is() {
    let mut stopped = run(json!({"retries": 5}));
    step(&mut stopped, &seen(vec![]), NOON);
    step(&mut stopped, &seen(vec![at_superlink(1, 1, Phase::Stopped)]), NOON + 5);
    assert_eq!((stopped.status.state, stopped.status.active.len()), (State::Stopped, 0));

    let mut slow = run(json!({"retries": 1, "timeoutSeconds": 100}));
    step(&mut slow, &seen(vec![]), NOON);
    let running = seen(vec![at_superlink(1, 1, Phase::Running)]);
    let early = step(&mut slow, &running, NOON + 99);
    assert_eq!((deeds(&early), early.wake_at), (vec![], Some(NOON + 100)));
    assert_eq!(deeds(&step(&mut slow, &running, NOON + 100)), [Effect::Stop(101)]);
    step(&mut slow, &seen(vec![at_superlink(1, 1, Phase::Stopped)]), NOON + 101);
    assert_eq!((slow.status.attempt, slow.status.state), (Some(2), State::Waiting));
    assert!(slow.status.message.contains("longer than 100 seconds"), "{}", slow.status.message);
}

#[test]
fn a_run_that_the_superlink_forgot_has_failed_and_one_that_cannot_be_asked_about_has_not() {
    let mut run = run(json!({}));
    step(&mut run, &seen(vec![]), NOON);
    step(&mut run, &seen(vec![at_superlink(1, 1, Phase::Running)]), NOON + 1);
    let away = Seen { runs: Err("no route".to_owned()), ..seen(vec![]) };
    step(&mut run, &away, NOON + 2);
    assert_eq!((run.status.state, run.status.active.len()), (State::Running, 1));
    assert!(run.status.message.contains("no route"));
    step(&mut run, &seen(vec![]), NOON + 3);
    assert_eq!(run.status.state, State::Failed);
    assert!(run.status.message.contains("does not know run 101"));
}

#[test]
fn a_try_that_the_superlink_did_not_take_has_failed() {
    let mut run = run(json!({"retries": 1}));
    step(&mut run, &seen(vec![]), NOON);
    let refused = |attempt| vec![(Try { number: 1, attempt }, "no such federation".to_owned())];
    step(&mut run, &Seen { refused: refused(1), ..seen(vec![]) }, NOON + 1);
    assert_eq!((run.status.attempt, run.status.state), (Some(2), State::Waiting));
    step(&mut run, &Seen { refused: refused(1), ..seen(vec![]) }, NOON + 20);
    let again = step(&mut run, &Seen { refused: refused(1), ..seen(vec![]) }, NOON + 21);
    assert_eq!(deeds(&again), [Effect::Submit(Try { number: 1, attempt: 2 })], "the previous try was refused");
    step(&mut run, &Seen { refused: refused(2), ..seen(vec![]) }, NOON + 22);
    assert_eq!(run.status.state, State::Failed);
    assert!(run.status.message.contains("did not take it: no such federation"));
}

#[test]
fn a_schedule_is_heeded_once_for_each_of_its_times() {
    let mut run = run(json!({"schedule": "*/10 * * * *"}));
    let first = step(&mut run, &seen(vec![]), NOON + 1);
    assert_eq!((first.wake_at, run.status.next.clone()), (Some(NOON + 600), Some(time(NOON + 600))));
    assert_eq!(run.status.count, 0, "the creation time is not a scheduled time");
    step(&mut run, &seen(vec![]), NOON + 600);
    assert_eq!((run.status.count, run.status.active[0].scheduled.clone()), (1, Some(time(NOON + 600))));
    // An earlier run is under way: passed over, and said.
    let passed = step(&mut run, &seen(vec![at_superlink(1, 1, Phase::Running)]), NOON + 1200);
    assert_eq!(run.status.count, 1);
    assert!(matches!(passed.effects.last(), Some(Effect::Tell { reason: "SchedulePassedOver", .. })));
    step(&mut run, &seen(vec![at_superlink(1, 1, Phase::Completed)]), NOON + 1201);
    assert_eq!((run.status.history.len(), run.status.state), (1, State::Succeeded));
    assert!(holds(&run, "Ready") && !holds(&run, "Complete"), "a schedule has no end");
    // Away for a long time: one run makes up for all that were missed.
    step(&mut run, &seen(vec![]), NOON + 86_400);
    assert_eq!((run.status.count, run.status.scheduled.clone()), (2, Some(time(NOON + 86_400))));
    // Runs that were due while suspended are not repeated.
    run.status.active.clear();
    run.spec.suspend = true;
    step(&mut run, &seen(vec![]), NOON + 90_000);
    assert_eq!((run.status.count, run.status.next.clone()), (2, None));
    run.spec.suspend = false;
    step(&mut run, &seen(vec![]), NOON + 90_001);
    assert_eq!(run.status.count, 2);
}

#[test]
fn runs_of_a_schedule_may_be_allowed_to_overlap_up_to_a_limit_and_ten_are_remembered() {
    let mut run = run(json!({"schedule": "* * * * *", "concurrency": "Allow"}));
    let mut there = Vec::new();
    for minute in 1..=8 {
        step(&mut run, &seen(there.clone()), NOON + minute * 60);
        there = run.status.active.iter().map(|job| at_superlink(job.number, 1, Phase::Running)).collect();
    }
    assert_eq!(run.status.active.len(), MAX_ACTIVE_RUNS);
    for minute in 9..40 {
        let over = run.status.active.iter().map(|job| at_superlink(job.number, 1, Phase::Completed)).collect();
        step(&mut run, &seen(over), NOON + minute * 60);
    }
    assert_eq!(run.status.history.len(), MAX_HISTORY);
    let newest: Vec<u64> = run.status.history.iter().map(|past| past.number).collect();
    assert!(newest.is_sorted_by(|one, other| one > other), "{newest:?}");
}

#[test]
fn what_is_over_goes_after_its_time() {
    let mut run = run(json!({"ttlSecondsAfterFinished": 50}));
    step(&mut run, &seen(vec![]), NOON);
    let over = seen(vec![at_superlink(1, 1, Phase::Completed)]);
    // It ended at +60; it is observed late, and reported before it is deleted.
    assert_eq!(deeds(&step(&mut run, &over, NOON + 500)), []);
    assert_eq!(deeds(&step(&mut run, &over, NOON + 500)), [Effect::Delete]);
}

#[test]
fn who_deletes_a_run_stops_it() {
    let mut going = run(json!({}));
    step(&mut going, &seen(vec![]), NOON);
    going.deleted = Some(NOON + 1);
    let running = seen(vec![at_superlink(1, 1, Phase::Running)]);
    assert_eq!(deeds(&step(&mut going, &running, NOON + 1)), [Effect::Stop(101)]);
    assert_eq!(deeds(&next(&going, &seen(vec![at_superlink(1, 1, Phase::Stopped)]), NOON + 2)), [Effect::LetGo]);
    let absent = Seen { federation: FederationState::Absent, runs: Err("gone".to_owned()), ..seen(vec![]) };
    assert_eq!(deeds(&next(&going, &absent, NOON + 2)), [Effect::LetGo], "the run went with its federation");
    let away = Seen { runs: Err("no route".to_owned()), ..seen(vec![]) };
    assert_eq!(deeds(&next(&going, &away, NOON + 2)), [], "it waits for the SuperLink");
    assert_eq!(deeds(&next(&going, &away, NOON + 1 + DELETION_TIMEOUT_S)), [Effect::LetGo], "but not forever");
    let mut fresh = run(json!({}));
    fresh.deleted = Some(NOON);
    assert_eq!(deeds(&next(&fresh, &away, NOON)), [Effect::LetGo], "nothing was sent yet");
}

#[test]
fn of_twins_one_is_kept() {
    let mut run = run(json!({}));
    step(&mut run, &seen(vec![]), NOON);
    let (mut first, mut second) = (at_superlink(1, 1, Phase::Running), at_superlink(1, 1, Phase::Running));
    (first.id, first.submitted, second.id, second.submitted) = (7, NOON, 3, NOON + 1);
    let next = step(&mut run, &seen(vec![second.clone(), first.clone()]), NOON + 2);
    assert_eq!((deeds(&next), run.status.run_id.as_deref()), (vec![Effect::Stop(3)], Some("7")));
    // Also when the other one seems to be the older one later.
    second.submitted = NOON - 9;
    second.phase = Phase::Stopped;
    step(&mut run, &seen(vec![second, first]), NOON + 3);
    assert_eq!((run.status.run_id.as_deref(), run.status.state), (Some("7"), State::Running));
}

#[test]
fn an_unsound_resource_is_told_of_and_nothing_is_sent() {
    let mut run = run(json!({"schedule": "never"}));
    let next = step(&mut run, &seen(vec![]), NOON);
    assert_eq!((deeds(&next), run.status.state, run.status.count), (vec![], State::Failed, 0));
    assert!(run.status.message.contains("spec.schedule: invalid schedule"));
    assert!(holds(&run, "Stalled") && !holds(&run, "Failed"), "it may be put right");
    run.spec.schedule = None;
    step(&mut run, &seen(vec![]), NOON + 1);
    assert_eq!((run.status.state, run.status.count), (State::Waiting, 1));
}

/// A world in which the operator dies at any point, and calls and their answers get lost.
struct World {
    run: FederationRun,
    superlink: Vec<SeenRun>,
    /// Calls in transit, which arrive even if the caller has ended.
    on_the_way: Vec<Try>,
    idempotent: bool,
    now: i64,
    most_at_work: usize,
}

impl World {
    fn arrive(&mut self, of: Try) {
        let known = self.superlink.iter().any(|run| run.of == of);
        if !(known && self.idempotent) {
            let id = self.superlink.len() as u64 + 1;
            self.superlink.push(SeenRun {
                id,
                submitted: self.now,
                ..at_superlink(of.number, of.attempt, Phase::Running)
            });
        }
        let at_work = self.superlink.iter().filter(|run| !run.phase.is_over()).count();
        self.most_at_work = self.most_at_work.max(at_work);
    }

    /// One pass; `dice` says where it is cut short and what gets lost.
    fn pass(&mut self, dice: &mut impl FnMut(u32) -> u32) {
        self.now += i64::from(dice(20));
        if dice(3) == 0 {
            let reachable = dice(5) > 0;
            let runs = if reachable { Ok(self.superlink.clone()) } else { Err("away".to_owned()) };
            let next = next(&self.run, &Seen { runs, ..seen(vec![]) }, self.now);
            if dice(4) == 0 {
                return; // Killed before the status was written.
            }
            self.run.status = next.status;
            for effect in next.effects {
                if dice(4) == 0 {
                    return; // Killed before this effect.
                }
                match effect {
                    Effect::Submit(of) if dice(3) == 0 => self.on_the_way.push(of),
                    Effect::Submit(of) if dice(3) > 0 => self.arrive(of),
                    Effect::Stop(id) => {
                        let run = self.superlink.iter_mut().find(|run| run.id == id).expect("it is known");
                        run.phase = Phase::Stopped;
                    }
                    _ => {}
                }
            }
        } else if dice(2) == 0
            && let Some(of) = self.on_the_way.pop()
        {
            self.arrive(of);
        } else if dice(4) == 0
            && let Some(run) = self.superlink.iter_mut().find(|run| !run.phase.is_over())
        {
            run.phase = if dice(2) == 0 { Phase::Failed } else { Phase::Completed };
        }
    }
}

fn world(seed: u64, idempotent: bool, lose_calls: bool) -> World {
    let mut state = seed;
    let mut dice = move |sides: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as u32) % sides
    };
    let run = run(json!({"retries": 3, "backoffSeconds": 5}));
    let mut world = World { run, superlink: vec![], on_the_way: vec![], idempotent, now: NOON, most_at_work: 0 };
    for _ in 0..400 {
        world.pass(&mut dice);
        if !lose_calls {
            // Calls in transit arrive before the next observation.
            while let Some(of) = world.on_the_way.pop() {
                world.arrive(of);
            }
        }
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Killed anywhere, with answers lost: one run for each try, whatever the SuperLink makes of a repeated call.
    #[test]
    fn each_try_is_submitted_once(seed: u64) {
        let world = world(seed, false, false);
        let mut tries: Vec<Try> = world.superlink.iter().map(|run| run.of).collect();
        let count = tries.len();
        tries.dedup();
        prop_assert_eq!(tries.len(), count, "{:?}", world.superlink);
        prop_assert!(world.most_at_work <= 1);
        prop_assert_eq!(tries, (1..=count as u32).map(|attempt| Try { number: 1, attempt }).collect::<Vec<_>>());
    }

    /// Calls that arrive long after their caller died: a Trellis SuperLink still has one run for each try.
    #[test]
    fn a_superlink_that_knows_marks_has_each_try_once_whatever_is_late(seed: u64) {
        let world = world(seed, true, true);
        let mut tries: Vec<Try> = world.superlink.iter().map(|run| run.of).collect();
        tries.sort();
        let count = tries.len();
        tries.dedup();
        prop_assert_eq!(tries.len(), count);
    }

    /// And others come to one run at work: the twins are stopped.
    #[test]
    fn twins_are_stopped(seed: u64) {
        let mut world = world(seed, false, true);
        while let Some(of) = world.on_the_way.pop() {
            world.arrive(of);
        }
        for _ in 0..3 {
            let seen = seen(world.superlink.clone());
            let next = next(&world.run, &seen, world.now);
            world.run.status = next.status;
            for effect in next.effects {
                if let Effect::Stop(id) = effect {
                    world.superlink.iter_mut().filter(|run| run.id == id).for_each(|run| run.phase = Phase::Stopped);
                }
            }
        }
        let at_work: Vec<String> = world.superlink.iter().filter(|it| !it.phase.is_over()).map(|it| it.id.to_string()).collect();
        let followed: Vec<String> = world.run.status.active.iter().filter_map(|job| job.run_id.clone()).collect();
        prop_assert!(at_work.iter().all(|id| followed.contains(id)), "{:?} {:?}", at_work, followed);
    }
}

#[test]
fn an_edit_after_the_end_is_reported_and_has_no_effect() {
    let mut run = run(json!({}));
    let done = seen(vec![at_superlink(1, 1, Phase::Completed)]);
    step(&mut run, &done, NOON);
    step(&mut run, &done, NOON + 1);
    let over = step(&mut run, &done, NOON + 61);
    assert_eq!((over.effects.len(), holds(&run, "Complete"), holds(&run, "EditIgnored")), (0, true, false));

    run.generation += 1;
    run.spec.rounds = Some(9);
    let edited = step(&mut run, &done, NOON + 70);
    assert!(matches!(&edited.effects[..], [Effect::Tell { warning: true, reason: "EditIgnored", .. }]));
    assert!(holds(&run, "EditIgnored") && holds(&run, "Complete"));
    let later = step(&mut run, &done, NOON + 80);
    assert_eq!((later.effects, holds(&run, "EditIgnored")), (vec![], true), "reported once, and the condition stays");
}

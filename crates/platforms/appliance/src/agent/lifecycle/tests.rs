//! Every phase with every event, and the stories of a boot.

use super::*;

fn failure(code: Code) -> Failure {
    Failure::new(code, "x")
}

fn serving(busy: bool) -> Observed {
    Observed { serving: true, busy: Some(busy), ..Observed::default() }
}

fn probed(observed: Observed) -> Event {
    Event::Probed { observed, crash: None }
}

fn phases() -> Vec<Phase> {
    vec![
        Phase::Observing,
        Phase::Retracting(Disruption::Change),
        Phase::Retracting(Disruption::Restart),
        Phase::Applying,
        Phase::Following,
        Phase::Restarting,
        Phase::Probing { failure: None },
        Phase::Publishing { failure: None },
        Phase::Waiting,
        Phase::ProbingEnd,
        Phase::PublishingEnd,
        Phase::Leaving(Reason::Requested),
        Phase::Stopped(Reason::Requested),
    ]
}

fn events() -> Vec<Event> {
    vec![
        Event::Rendered(Change::Start, Schedule::Now),
        Event::Rendered(Change::Restart, Schedule::Now),
        Event::Applied,
        Event::Followed(Request::Nothing),
        Event::Followed(Request::Restart),
        Event::Restarted,
        probed(Observed::default()),
        Event::Published,
        Event::Failed(failure(Code::DiscoveryTimeout)),
        Event::Elapsed,
        Event::ProgramEnded,
        Event::Stop,
        Event::Left,
    ]
}

fn name(phase: &Phase) -> &'static str {
    match phase {
        Phase::Observing => "observe",
        Phase::Retracting(_) => "retract",
        Phase::Applying => "apply",
        Phase::Following => "follow",
        Phase::Restarting => "restart",
        Phase::Probing { failure: None } => "probe",
        Phase::Probing { failure: Some(_) } => "probe!",
        Phase::Publishing { .. } => "publish",
        Phase::Waiting => "wait",
        Phase::ProbingEnd => "probe end",
        Phase::PublishingEnd => "publish end",
        Phase::Leaving(_) => "leave",
        Phase::Stopped(_) => "stopped",
    }
}

/// The legal edges; `-` is refused. Rows are phases, columns are events, both in the order of the lists above.
#[rustfmt::skip]
const EDGES: [[&str; 13]; 13] = [
    // start, restart, applied, nothing, request, restarted, probed, published, failed, elapsed, ended, stop, left
    ["apply", "retract", "-", "-", "-", "-", "-", "-", "probe!", "-", "-", "leave", "-"],
    ["-", "-", "-", "-", "-", "-", "-", "apply", "apply", "-", "-", "leave", "-"],
    ["-", "-", "-", "-", "-", "-", "-", "restart", "restart", "-", "-", "leave", "-"],
    ["-", "-", "follow", "-", "-", "-", "-", "-", "probe!", "-", "-", "leave", "-"],
    ["-", "-", "-", "probe", "retract", "-", "-", "-", "-", "-", "-", "leave", "-"],
    ["-", "-", "-", "-", "-", "probe", "-", "-", "probe!", "-", "-", "leave", "-"],
    ["-", "-", "-", "-", "-", "-", "publish", "-", "-", "-", "-", "leave", "-"],
    ["-", "-", "-", "-", "-", "-", "-", "wait", "wait", "-", "-", "leave", "-"],
    ["-", "-", "-", "-", "-", "-", "-", "-", "-", "observe", "probe end", "leave", "-"],
    ["-", "-", "-", "-", "-", "-", "publish end", "-", "-", "-", "-", "leave", "-"],
    ["-", "-", "-", "-", "-", "-", "-", "observe", "observe", "-", "-", "leave", "-"],
    ["-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "stopped"],
    ["-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"],
];

#[test]
fn every_phase_takes_the_legal_events_and_refuses_the_others() {
    let now = Instant::now();
    for boot in [Boot::Pending { since: now }, Boot::Complete] {
        for rollout in [Rollout::Absent, Rollout::InForce, Rollout::Deferred] {
            for (phase, row) in phases().into_iter().zip(EDGES) {
                for (event, expected) in events().into_iter().zip(row) {
                    let state = State { phase: phase.clone(), boot, rollout, ..State::new(Resolve::Stay, now) };
                    let found = next(state, event.clone(), now);
                    let found = found.as_ref().map_or("-", |(state, _)| name(&state.phase));
                    assert_eq!(found, expected, "{phase:?} + {event:?}");
                }
            }
        }
    }
}

/// Applies events to a new state; returns the effects of the last one.
fn after(resolve: Resolve, events: Vec<Event>, now: impl Fn(Instant) -> Instant) -> (State, Vec<Effect>) {
    let began = Instant::now();
    events.into_iter().fold((State::new(resolve, began), vec![Effect::Observe]), |(state, _), event| {
        next(state, event, now(began)).expect("a legal event")
    })
}

/// The events of one reconcile that changes nothing.
fn reconcile(observed: Observed) -> Vec<Event> {
    let rendered = Event::Rendered(Change::Nothing, Schedule::AfterRound);
    vec![rendered, Event::Applied, Event::Followed(Request::Nothing), probed(observed), Event::Published]
}

#[test]
fn a_boot_is_complete_when_readiness_is_published() {
    let (state, effects) = after(Resolve::Stay, reconcile(serving(false)), |began| began);
    assert!(!state.is_booting());
    let report = [Effect::SubmitRun, Effect::LogReadiness(true), Effect::WriteStatus(None)];
    assert_eq!(effects[..3], report);
    assert_eq!(effects[3..], [Effect::Wait(RECONCILE_INTERVAL)]);
    let mut unpublished = reconcile(serving(false));
    *unpublished.last_mut().expect("an event") = Event::Failed(failure(Code::OnegateUnreachable));
    let (state, effects) = after(Resolve::Stay, unpublished, |began| began);
    assert!(state.is_booting());
    assert_eq!(effects.last(), Some(&Effect::Wait(BOOT_RECONCILE_INTERVAL)));
}

#[test]
fn a_boot_ends_at_a_final_failure_and_at_its_limit() {
    let limit = Duration::from_secs(9);
    let fail = |code| {
        let failed = Event::Failed(failure(code));
        vec![failed, probed(Observed::default()), Event::Published]
    };
    for (events, elapsed_s, reason) in [
        (fail(Code::PortBusy), 0, Some(Reason::Failed(failure(Code::PortBusy)))),
        (fail(Code::DiscoveryTimeout), 8, None),
        (fail(Code::DiscoveryTimeout), 9, Some(Reason::Failed(failure(Code::DiscoveryTimeout)))),
        (reconcile(Observed::default()), 8, None),
        (reconcile(Observed::default()), 9, Some(Reason::TimedOut)),
        (reconcile(serving(false)), 9, None),
    ] {
        let (_, effects) =
            after(Resolve::GiveUp { limit }, events.clone(), |began| began + Duration::from_secs(elapsed_s));
        let left = match effects.last() {
            Some(Effect::Leave(reason)) => Some(reason.clone()),
            _ => None,
        };
        assert_eq!(left, reason, "{events:?} after {elapsed_s} s");
        let (state, _) = after(Resolve::Stay, events, |began| began + Duration::from_secs(elapsed_s));
        assert_eq!(state.phase, Phase::Waiting);
    }
}

#[test]
fn a_change_waits_for_the_end_of_a_round() {
    let changed = Event::Rendered(Change::Restart, Schedule::AfterRound);
    let busy = || [reconcile(serving(true)), vec![Event::Elapsed, changed.clone()]].concat();
    let (state, effects) = after(Resolve::Stay, busy(), |began| began);
    assert!(state.is_deferred() && state.observed().serving);
    assert_eq!(effects, [Effect::LogDeferred, Effect::Follow]);
    let rest = vec![Event::Followed(Request::Nothing), probed(serving(true)), Event::Published, Event::Elapsed];
    let again = [busy(), rest.clone(), vec![changed.clone()]].concat();
    assert_eq!(after(Resolve::Stay, again, |began| began).1, [Effect::Follow], "the log has it already");
    let idle = vec![Event::Followed(Request::Nothing), probed(serving(false)), Event::Published, Event::Elapsed];
    let (state, effects) = after(Resolve::Stay, [busy(), idle, vec![changed]].concat(), |began| began);
    assert!(!state.is_deferred() && !state.observed().serving, "READY=NO is published before the programs stop");
    assert_eq!(effects, [Effect::Publish(None)]);
    let now = Event::Rendered(Change::Restart, Schedule::Now);
    let at_once = [reconcile(serving(true)), vec![Event::Elapsed, now]].concat();
    assert_eq!(after(Resolve::Stay, at_once, |began| began).1, [Effect::Publish(None)]);
}

#[test]
fn a_program_that_ends_repeatedly_is_a_failure_until_it_runs() {
    let crash = Event::Probed { observed: Observed::default(), crash: Some("superlink exited with code 1".into()) };
    let mut events = reconcile(Observed::default());
    events[3] = crash;
    let (_, effects) = after(Resolve::Stay, events[..4].to_vec(), |began| began);
    let expected = Failure::new(Code::StartFailed, "superlink exited with code 1");
    assert_eq!(effects, [Effect::Publish(Some(expected.clone()))]);
    let (_, effects) = after(Resolve::Stay, events.clone(), |began| began);
    assert!(effects.contains(&Effect::LogFailure(Some(expected.clone()))), "{effects:?}");
    let (_, effects) = after(Resolve::Stay, [events.clone(), vec![Event::Elapsed], events].concat(), |began| began);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::LogFailure(_))), "one line for each change");
}

#[test]
fn the_end_of_a_program_is_published_before_the_next_reconcile() {
    let ended = [reconcile(serving(false)), vec![Event::ProgramEnded]].concat();
    let (_, effects) = after(Resolve::Stay, ended.clone(), |began| began);
    assert_eq!(effects, [Effect::Probe]);
    let published = [ended, vec![probed(Observed::default()), Event::Published]].concat();
    let (state, effects) = after(Resolve::Stay, published, |began| began);
    assert_eq!((state.phase, effects), (Phase::Observing, vec![Effect::Observe]));
}

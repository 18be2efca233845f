//! Runs with their FAB, context, traffic and log.

use bytes::Bytes;

use super::{AWKWARD_IDS, AWKWARD_TEXT, Case, NOW, Subject, commit, query};
use crate::id::RunId;
use crate::port::{Fab, LogText, Traffic};
use crate::run::{Event, NewRun, Outcome, Run, ServerApp, State};

pub(super) const CASES: &[Case] = &[
    ("runs round-trip in every state", runs_round_trip),
    ("putting a run again updates it", update),
    ("an unknown run has nothing", unknown),
    ("pending runs are returned oldest first, with their kind of ServerApp", pending),
    ("traffic adds up per run", traffic),
    ("a FAB round-trips and may be put again", fab),
    ("a context is replaced", context),
    ("log lines are returned in order of arrival", log_order),
    ("log times increase strictly, even if the clock goes backwards", log_times),
    ("a long log is read in pages without loss", log_parts),
];

/// Large enough for a store that splits or limits rows.
const LARGE_BYTES: usize = 5 << 20;

fn new(id: u64) -> Run {
    let new = NewRun {
        fab_id: format!("publisher/app-{id}"),
        fab_version: AWKWARD_TEXT.into(),
        fab_hash: "f".repeat(64),
        override_config: vec![0, 0xff, 0],
        federation_options: Vec::new(),
        federation: String::new(),
        account: AWKWARD_TEXT.into(),
        server_app: if id.is_multiple_of(2) { ServerApp::Native } else { ServerApp::Flower },
    };
    Run::new(RunId(id), new, NOW)
}

fn finish(outcome: Outcome, details: &str) -> Event {
    Event::Finish { outcome, details: details.into() }
}

fn in_every_state() -> Vec<Run> {
    let steps: [&[Event]; 7] = [
        &[],
        &[Event::Claim],
        &[Event::Claim, Event::LoseLaunch],
        &[Event::Claim, Event::PullInputs],
        &[Event::PullInputs, finish(Outcome::Completed, "")],
        &[Event::Claim, finish(Outcome::Failed, AWKWARD_TEXT)],
        &[finish(Outcome::Stopped, "")],
    ];
    let ids = AWKWARD_IDS.into_iter().chain([77, 78]);
    let runs = ids.zip(steps).map(|(id, steps)| {
        let mut run = new(id);
        for (step, later) in steps.iter().zip(1..) {
            run.apply(step.clone(), NOW + 0.1 * f64::from(later)).expect("the step is legal");
        }
        run.clientapp_runtime_s = 0.1 + 0.2;
        run.client = AWKWARD_TEXT.into();
        run
    });
    runs.collect()
}

fn runs_round_trip(subject: &Subject<'_>) {
    let mut runs = in_every_state();
    runs[0].override_config = vec![7; LARGE_BYTES];
    let kept = runs.clone();
    commit(subject, move |tx| kept.iter().try_for_each(|run| tx.put_run(run)));
    runs.sort_by_key(|run| run.id);
    for run in &runs {
        assert!(query(subject, |read| read.run(run.id)).as_ref() == Some(run), "run {}", run.id);
    }
    let all = |mut found: Vec<Run>| {
        found.sort_by_key(|run| run.id);
        found
    };
    assert!(all(query(subject, |read| read.runs())) == runs);
    runs.retain(|run| !run.state().is_finished());
    assert_eq!(runs.len(), 4);
    assert!(all(query(subject, |read| read.unfinished_runs())) == runs);
}

fn update(subject: &Subject<'_>) {
    let mut run = new(1 << 63);
    let steps =
        [Event::Claim, Event::LoseLaunch, Event::Claim, Event::PullInputs, finish(Outcome::Failed, "the last word")];
    for (step, later) in steps.into_iter().zip(1..) {
        run.apply(step.clone(), NOW + f64::from(later)).expect("the step is legal");
        run.clientapp_runtime_s += 0.1;
        run.client.push('x');
        let kept = run.clone();
        commit(subject, move |tx| tx.put_run(&kept));
        assert_eq!(query(subject, |read| read.run(run.id)).as_ref(), Some(&run), "after {step:?}");
    }
    assert_eq!(run.launches, 2);
    assert_eq!(query(subject, |read| read.runs()).len(), 1);
}

fn unknown(subject: &Subject<'_>) {
    commit(subject, |tx| tx.put_run(&new(7)));
    let id = RunId(8);
    assert_eq!(query(subject, |read| read.run(id)), None);
    assert_eq!(query(subject, |read| read.fab("")), None);
    assert_eq!(query(subject, |read| read.context(id)), None);
    assert_eq!(query(subject, |read| read.traffic(id)), Traffic::default());
    assert_eq!(query(subject, |read| read.log_after(id, 0.0, 100)), None);
}

fn pending(subject: &Subject<'_>) {
    let mut runs = in_every_state();
    for (run, age) in runs.iter_mut().zip([30.0, 20.0, 40.0]) {
        run.pending_at = NOW - age;
    }
    let expected = [&runs[2], &runs[0]].map(|run| (run.id, run.server_app));
    assert!(expected.iter().all(|(id, _)| runs.iter().any(|run| run.id == *id && *run.state() == State::Pending)));
    assert_ne!(expected[0].1, expected[1].1, "one of each kind");
    commit(subject, move |tx| runs.iter().try_for_each(|run| tx.put_run(run)));
    assert_eq!(query(subject, |read| read.pending_runs()), expected);
}

fn traffic(subject: &Subject<'_>) {
    let (one, other) = (RunId(u64::MAX), RunId(1));
    let large = 1 << 60;
    for (run, bytes_sent, bytes_received) in [(one, 1, 0), (other, 0, 5), (one, large, large), (one, 0, 2)] {
        commit(subject, move |tx| tx.add_traffic(run, Traffic { bytes_sent, bytes_received }));
    }
    let expected = Traffic { bytes_sent: large + 1, bytes_received: large + 2 };
    assert_eq!(query(subject, |read| read.traffic(one)), expected);
    assert_eq!(query(subject, |read| read.traffic(other)), Traffic { bytes_sent: 0, bytes_received: 5 });
}

fn fab(subject: &Subject<'_>) {
    let fabs = [
        Fab { hash: "0".repeat(64), content: Bytes::new(), verifications: Vec::new() },
        Fab { hash: "1".repeat(64), content: Bytes::from(vec![9; LARGE_BYTES]), verifications: vec![0, 255] },
    ];
    for _ in 0..2 {
        let kept = fabs.clone();
        commit(subject, move |tx| kept.iter().try_for_each(|fab| tx.put_fab(fab)));
        for fab in &fabs {
            assert!(query(subject, |read| read.fab(&fab.hash)).as_ref() == Some(fab), "FAB {}", fab.hash);
        }
    }
    for (verifications, stored) in [(vec![7], vec![7]), (vec![], vec![7])] {
        let again = Fab { verifications, ..fabs[1].clone() };
        commit(subject, move |tx| tx.put_fab(&again));
        let found = query(subject, |read| read.fab(&fabs[1].hash)).map(|fab| fab.verifications);
        assert_eq!(found, Some(stored));
    }
    assert_eq!(query(subject, |read| read.fab(&"1".repeat(63))), None);
}

fn context(subject: &Subject<'_>) {
    let (run, other) = (RunId(u64::MAX), RunId(2));
    commit(subject, move |tx| tx.put_context(other, b"other"));
    for content in [vec![0, 1, 255], vec![3; LARGE_BYTES], Vec::new()] {
        let kept = content.clone();
        commit(subject, move |tx| tx.put_context(run, &kept));
        assert!(query(subject, |read| read.context(run)) == Some(Bytes::from(content)));
    }
    assert_eq!(query(subject, |read| read.context(other)), Some(Bytes::from_static(b"other")));
}

const ALL: usize = usize::MAX >> 1;

fn log_order(subject: &Subject<'_>) {
    let (run, other) = (RunId(1 << 63), RunId(1));
    let lines = ["first\n", AWKWARD_TEXT, "", "last without a line end"];
    commit(subject, move |tx| {
        lines.into_iter().zip(0..).try_for_each(|(line, later)| {
            tx.append_log(run, NOW + f64::from(later), line)?;
            tx.append_log(other, NOW + f64::from(later), "other")
        })
    });
    let log = query(subject, |read| read.log_after(run, 0.0, ALL)).expect("a log");
    assert_eq!(log, LogText { text: lines.concat(), latest: NOW + 3.0 });
    assert_eq!(query(subject, |read| read.log_after(run, log.latest, ALL)), None, "no more lines");
    let tail = query(subject, |read| read.log_after(run, NOW + 2.0, ALL));
    assert_eq!(tail.map(|tail| tail.text), Some(lines[3].to_owned()), "lines after the time, not at the time");
}

fn log_times(subject: &Subject<'_>) {
    let run = RunId(3);
    let clock = [NOW, NOW, NOW, NOW - 5000.0, 0.0, NOW - 1e-9, NOW + 1e-9, NOW + 1.0, NOW];
    for (now, n) in clock.into_iter().zip(0..) {
        commit(subject, move |tx| {
            tx.append_log(run, now, &format!("{n}a "))?;
            tx.append_log(run, now, &format!("{n}b "))
        });
    }
    let mut text = String::new();
    let mut latest = 0.0;
    for line in 0..2 * clock.len() {
        let part = query(subject, |read| read.log_after(run, latest, 1)).expect("more lines");
        assert!(part.latest > latest, "line {line} at {} is not later than {latest}", part.latest);
        latest = part.latest;
        text.push_str(&part.text);
    }
    let expected: String = (0..clock.len()).map(|n| format!("{n}a {n}b ")).collect();
    assert_eq!(text, expected);
    assert_eq!(query(subject, |read| read.log_after(run, latest, 1)), None);
    assert!(latest < NOW + 2.0, "log times run ahead of the clock: {latest}");
}

fn log_parts(subject: &Subject<'_>) {
    const LINES: usize = 100;
    const LINE_BYTES: usize = 10;
    let run = RunId(4);
    commit(subject, move |tx| (0..LINES).try_for_each(|n| tx.append_log(run, NOW, &format!("{n:09}\n"))));
    let (mut text, mut latest, mut parts) = (String::new(), 0.0, 0);
    while let Some(part) = query(subject, |read| read.log_after(run, latest, 7 * LINE_BYTES)) {
        assert!(part.text.len() <= 8 * LINE_BYTES, "{} bytes are not about {}", part.text.len(), 7 * LINE_BYTES);
        (latest, parts) = (part.latest, parts + 1);
        text.push_str(&part.text);
    }
    assert!(parts <= LINES, "a page was empty");
    assert_eq!(text, (0..LINES).map(|n| format!("{n:09}\n")).collect::<String>());
}

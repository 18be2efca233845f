//! Training reports: one of each kind per round, ordered by round.

use super::{AWKWARD_TEXT, Case, Subject, commit, query};
use crate::id::RunId;
use crate::report::TrainingReport;

pub(super) const CASES: &[Case] = &[
    ("a report round-trips, and replaces one of the same round and kind", replaced),
    ("reports are returned by round and kind, after a round", ordered),
    ("reports are read in pages of whole rounds", parts),
];

const RUN: RunId = RunId(1 << 63);
const ALL: usize = usize::MAX >> 1;
const LAST: u64 = i64::MAX as u64;

fn report(run: RunId, round: u64, kind: &str, body: &str) -> TrainingReport {
    TrainingReport { run, round, kind: kind.to_owned(), body: body.to_owned() }
}

fn put(subject: &Subject<'_>, reports: Vec<TrainingReport>) {
    commit(subject, move |tx| reports.iter().try_for_each(|report| tx.put_report(report)));
}

fn replaced(subject: &Subject<'_>) {
    let large = "x".repeat(1 << 20);
    let others = [report(RUN, 0, "other", "1"), report(RUN, LAST, "round", "2"), report(RunId(1), 0, "round", "3")];
    put(subject, others.to_vec());
    assert_eq!(query(subject, |read| read.report(RUN, 0, "round")), None);
    for body in [AWKWARD_TEXT, &large, ""] {
        put(subject, vec![report(RUN, 0, "round", body)]);
        assert!(query(subject, |read| read.report(RUN, 0, "round")) == Some(report(RUN, 0, "round", body)));
    }
    for other in others {
        assert_eq!(query(subject, |read| read.report(other.run, other.round, &other.kind)), Some(other));
    }
}

fn ordered(subject: &Subject<'_>) {
    let rows = [(2, "b"), (LAST, "a"), (0, "b"), (10, "a"), (2, "a"), (0, "a")];
    put(subject, rows.iter().map(|(round, kind)| report(RUN, *round, kind, "{}")).collect());
    put(subject, vec![report(RunId(1), 3, "a", "{}")]);
    let found = |after, limit_bytes| {
        let reports = query(subject, |read| read.reports_after(RUN, after, limit_bytes));
        reports.into_iter().map(|report| format!("{}{} ", report.round, report.kind)).collect::<String>()
    };
    assert_eq!(found(None, ALL), format!("0a 0b 2a 2b 10a {LAST}a "));
    assert_eq!(found(Some(0), ALL), format!("2a 2b 10a {LAST}a "));
    assert_eq!(found(Some(9), ALL), format!("10a {LAST}a "));
    assert_eq!((found(Some(LAST), ALL), found(Some(u64::MAX), ALL)), (String::new(), String::new()));
}

fn parts(subject: &Subject<'_>) {
    let both = |round: u64| ["evaluate", "train"].map(|kind| report(RUN, round, kind, "0123456789"));
    put(subject, (0..10).flat_map(both).collect());
    let (mut after, mut parts, mut all) = (None, 0, Vec::new());
    loop {
        let part = query(subject, |read| read.reports_after(RUN, after, 35));
        let Some(last) = part.last() else { break };
        assert_eq!(part.len(), 4, "two rounds exceed the limit");
        (after, parts) = (Some(last.round), parts + 1);
        all.extend(part);
    }
    assert_eq!((parts, all), (5, (0..10).flat_map(both).collect()));
    assert_eq!(query(subject, |read| read.reports_after(RUN, None, 0)), both(0), "at least one round");
}

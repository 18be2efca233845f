//! The audit log: order, content and retention.

use super::{AWKWARD_TEXT, Case, NOW, Subject, change, commit, query};
use crate::audit::{Entry, Event};
use crate::refusal::{Kind, Refusal};

pub(super) const CASES: &[Case] = &[
    ("audit entries round-trip in order, for every event", audit_round_trip),
    ("audit entries are read in pages, from either end", parts),
    ("trimming deletes the oldest audit entries, and numbers are not reused", trimmed),
    ("refused calls are trimmed separately", trimmed_apart),
    ("a rolled back job leaves no audit entry", refused),
];

/// Appends numbered entries, one job each.
fn append(subject: &Subject<'_>, numbers: std::ops::Range<u32>) {
    for n in numbers {
        append_one(subject, Event::Login, n);
    }
}

fn append_one(subject: &Subject<'_>, event: Event, n: u32) {
    commit(subject, move |tx| tx.append_audit(NOW, event, "actor", "subject", &n.to_string()).map(drop));
}

fn details(entries: &[Entry]) -> Vec<u32> {
    entries.iter().map(|entry| entry.detail.parse().expect("a number")).collect()
}

fn ascend(entries: &[Entry]) -> bool {
    entries.windows(2).all(|pair| pair[0].seq < pair[1].seq)
}

fn audit_round_trip(subject: &Subject<'_>) {
    assert_eq!(query(subject, |read| read.audit_after(0, 10)), []);
    assert_eq!(query(subject, |read| read.audit_count()), 0);
    for (event, earlier) in Event::ALL.into_iter().zip(1..) {
        // The clock goes backwards; the numbers increase.
        let at = NOW - f64::from(earlier);
        commit(subject, move |tx| tx.append_audit(at, event, AWKWARD_TEXT, "", &AWKWARD_TEXT.repeat(100)).map(drop));
    }
    let all = query(subject, |read| read.audit_after(0, usize::MAX));
    assert_eq!(all.iter().map(|entry| entry.event).collect::<Vec<_>>(), Event::ALL);
    assert!(ascend(&all));
    for (entry, earlier) in all.iter().zip(1..) {
        assert_eq!((entry.at, &entry.actor[..], &entry.subject[..]), (NOW - f64::from(earlier), AWKWARD_TEXT, ""));
        assert_eq!(entry.detail, AWKWARD_TEXT.repeat(100));
    }
    assert_eq!(query(subject, |read| read.audit_count()), Event::ALL.len() as u64);
}

fn parts(subject: &Subject<'_>) {
    append(subject, 0..20);
    let (mut seen, mut after) = (Vec::new(), 0);
    loop {
        let part = query(subject, |read| read.audit_after(after, 7));
        let Some(last) = part.last() else { break };
        assert!(part.len() <= 7);
        after = last.seq;
        seen.extend(part);
    }
    assert_eq!(details(&seen), (0..20).collect::<Vec<_>>());
    assert!(ascend(&seen));
    assert_eq!(query(subject, |read| read.audit_newest(20)), seen);
    assert_eq!(query(subject, |read| read.audit_newest(usize::MAX)), seen);
    assert_eq!(query(subject, |read| read.audit_newest(3)), seen[17..]);
    assert_eq!(query(subject, |read| read.audit_newest(0)), []);
    assert_eq!(query(subject, |read| read.audit_after(u64::MAX, 10)), []);
}

fn trimmed(subject: &Subject<'_>) {
    commit(subject, |tx| tx.trim_audit(false, 5));
    append(subject, 0..10);
    for keep_entries in [20, 10] {
        commit(subject, move |tx| tx.trim_audit(false, keep_entries));
        assert_eq!(query(subject, |read| read.audit_count()), 10, "nothing to trim");
    }
    commit(subject, |tx| tx.trim_audit(false, 4));
    assert_eq!(details(&query(subject, |read| read.audit_after(0, 100))), [6, 7, 8, 9]);
    assert_eq!(query(subject, |read| read.audit_count()), 4);
    let last = query(subject, |read| read.audit_newest(1))[0].seq;
    commit(subject, |tx| tx.trim_audit(false, 0));
    assert_eq!(query(subject, |read| read.audit_count()), 0);
    append(subject, 10..12);
    let after = query(subject, |read| read.audit_after(last, 100));
    assert_eq!(details(&after), [10, 11], "a reader continues after the last number it has seen");
    assert_eq!(query(subject, |read| read.audit_count()), 2);
}

fn trimmed_apart(subject: &Subject<'_>) {
    for n in 0..12 {
        append_one(subject, if n % 3 == 0 { Event::Login } else { Event::CallRefused }, n);
    }
    commit(subject, |tx| tx.trim_audit(true, 2));
    assert_eq!(details(&query(subject, |read| read.audit_after(0, 100))), [0, 3, 6, 9, 10, 11]);
    commit(subject, |tx| tx.trim_audit(false, 1));
    assert_eq!(details(&query(subject, |read| read.audit_after(0, 100))), [9, 10, 11]);
    assert_eq!(details(&query(subject, |read| read.audit_newest(2))), [10, 11]);
}

fn refused(subject: &Subject<'_>) {
    append(subject, 0..1);
    let refusal = change(subject.store, |tx| {
        tx.append_audit(NOW, Event::Login, "", "", "")?;
        Err::<(), _>(Refusal::new(Kind::Denied, "no"))
    });
    assert_eq!(refusal.unwrap_err().kind, Kind::Denied);
    append(subject, 1..2);
    assert_eq!(details(&query(subject, |read| read.audit_after(0, 100))), [0, 1]);
    assert_eq!(query(subject, |read| read.audit_count()), 2);
}

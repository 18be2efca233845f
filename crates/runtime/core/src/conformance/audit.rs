//! The audit log: in order, whole, and forgotten from its old end.

use super::{AWKWARD_TEXT, Case, NOW, Subject, change, keep, see};
use crate::audit::{Entry, Event};
use crate::refusal::{Kind, Refusal};

pub(super) const CASES: &[Case] = &[
    ("audit entries come back whole and in order, for every event", audit_round_trip),
    ("audit entries are read in parts, from either end", parts),
    ("the oldest audit entries are forgotten, and numbers are not used again", trimmed),
    ("refused calls are forgotten apart from all other entries", trimmed_apart),
    ("a refused job takes its audit entry with it", refused),
];

/// Writes entries that say their number, one job each.
fn append(subject: &Subject<'_>, numbers: std::ops::Range<u32>) {
    for n in numbers {
        append_one(subject, Event::Login, n);
    }
}

fn append_one(subject: &Subject<'_>, event: Event, n: u32) {
    keep(subject, move |tx| tx.append_audit(NOW, event, "actor", "subject", &n.to_string()).map(drop));
}

fn details(entries: &[Entry]) -> Vec<u32> {
    entries.iter().map(|entry| entry.detail.parse().expect("a number")).collect()
}

fn ascend(entries: &[Entry]) -> bool {
    entries.windows(2).all(|pair| pair[0].seq < pair[1].seq)
}

fn audit_round_trip(subject: &Subject<'_>) {
    assert_eq!(see(subject, |read| read.audit_after(0, 10)), []);
    assert_eq!(see(subject, |read| read.audit_count()), 0);
    for (event, earlier) in Event::ALL.into_iter().zip(1..) {
        // Clocks go backwards; numbers do not.
        let at = NOW - f64::from(earlier);
        keep(subject, move |tx| tx.append_audit(at, event, AWKWARD_TEXT, "", &AWKWARD_TEXT.repeat(100)).map(drop));
    }
    let all = see(subject, |read| read.audit_after(0, usize::MAX));
    assert_eq!(all.iter().map(|entry| entry.event).collect::<Vec<_>>(), Event::ALL);
    assert!(ascend(&all));
    for (entry, earlier) in all.iter().zip(1..) {
        assert_eq!((entry.at, &entry.actor[..], &entry.subject[..]), (NOW - f64::from(earlier), AWKWARD_TEXT, ""));
        assert_eq!(entry.detail, AWKWARD_TEXT.repeat(100));
    }
    assert_eq!(see(subject, |read| read.audit_count()), Event::ALL.len() as u64);
}

fn parts(subject: &Subject<'_>) {
    append(subject, 0..20);
    let (mut seen, mut after) = (Vec::new(), 0);
    loop {
        let part = see(subject, |read| read.audit_after(after, 7));
        let Some(last) = part.last() else { break };
        assert!(part.len() <= 7);
        after = last.seq;
        seen.extend(part);
    }
    assert_eq!(details(&seen), (0..20).collect::<Vec<_>>());
    assert!(ascend(&seen));
    assert_eq!(see(subject, |read| read.audit_newest(20)), seen);
    assert_eq!(see(subject, |read| read.audit_newest(usize::MAX)), seen);
    assert_eq!(see(subject, |read| read.audit_newest(3)), seen[17..]);
    assert_eq!(see(subject, |read| read.audit_newest(0)), []);
    assert_eq!(see(subject, |read| read.audit_after(u64::MAX, 10)), []);
}

fn trimmed(subject: &Subject<'_>) {
    keep(subject, |tx| tx.trim_audit(false, 5));
    append(subject, 0..10);
    for keep_entries in [20, 10] {
        keep(subject, move |tx| tx.trim_audit(false, keep_entries));
        assert_eq!(see(subject, |read| read.audit_count()), 10, "there is nothing to forget");
    }
    keep(subject, |tx| tx.trim_audit(false, 4));
    assert_eq!(details(&see(subject, |read| read.audit_after(0, 100))), [6, 7, 8, 9]);
    assert_eq!(see(subject, |read| read.audit_count()), 4);
    let last = see(subject, |read| read.audit_newest(1))[0].seq;
    keep(subject, |tx| tx.trim_audit(false, 0));
    assert_eq!(see(subject, |read| read.audit_count()), 0);
    append(subject, 10..12);
    let after = see(subject, |read| read.audit_after(last, 100));
    assert_eq!(details(&after), [10, 11], "who has read up to the last one finds what came after it");
    assert_eq!(see(subject, |read| read.audit_count()), 2);
}

fn trimmed_apart(subject: &Subject<'_>) {
    for n in 0..12 {
        append_one(subject, if n % 3 == 0 { Event::Login } else { Event::CallRefused }, n);
    }
    keep(subject, |tx| tx.trim_audit(true, 2));
    assert_eq!(details(&see(subject, |read| read.audit_after(0, 100))), [0, 3, 6, 9, 10, 11]);
    keep(subject, |tx| tx.trim_audit(false, 1));
    assert_eq!(details(&see(subject, |read| read.audit_after(0, 100))), [9, 10, 11]);
    assert_eq!(details(&see(subject, |read| read.audit_newest(2))), [10, 11]);
}

fn refused(subject: &Subject<'_>) {
    append(subject, 0..1);
    let refusal = change(subject.store, |tx| {
        tx.append_audit(NOW, Event::Login, "", "", "")?;
        Err::<(), _>(Refusal::new(Kind::Denied, "no"))
    });
    assert_eq!(refusal.unwrap_err().kind, Kind::Denied);
    append(subject, 1..2);
    assert_eq!(details(&see(subject, |read| read.audit_after(0, 100))), [0, 1]);
    assert_eq!(see(subject, |read| read.audit_count()), 2);
}

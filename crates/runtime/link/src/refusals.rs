//! Rate limits of refused calls in the log and the audit log: a flood of refusals must not flood the logs, and refusals
//! of one address must not hide those of others.

use std::collections::HashMap;
use std::sync::Mutex;

use trellis_core::Seconds;
use trellis_core::audit::{self, RefusedCall};
use trellis_front::{Rate, Source};

use crate::link::Link;

/// Interval between two audit entries of the same kind of refusal; the others are counted.
const ENTRY_PAUSE_S: f64 = 60.0;
/// Maximum number of distinguished kinds.
const KINDS: usize = 4096;
/// Maximum number of addresses with a limit of their own.
const SOURCES: usize = 4096;
/// Log lines per address: burst, and interval after the burst.
const LINES: u32 = 20;
const LINE_INTERVAL_S: f64 = 3.0;
/// Audit entries per address, and in total.
const ENTRIES: u32 = 20;
const ENTRY_INTERVAL_S: f64 = 6.0;
const ALL_ENTRIES: u32 = 500;
const ALL_ENTRIES_INTERVAL_S: f64 = 1.0;

pub struct RefusalLog {
    lines: Rate<Source>,
    entries: Rate<Source>,
    all_entries: Rate<()>,
    kinds: Mutex<HashMap<String, Since>>,
}

struct Since {
    written_at: Seconds,
    unwritten: u64,
}

impl Default for RefusalLog {
    fn default() -> RefusalLog {
        RefusalLog {
            lines: Rate::new(LINES, LINE_INTERVAL_S, SOURCES),
            entries: Rate::new(ENTRIES, ENTRY_INTERVAL_S, SOURCES),
            all_entries: Rate::new(ALL_ENTRIES, ALL_ENTRIES_INTERVAL_S, 1),
            kinds: Mutex::default(),
        }
    }
}

impl RefusalLog {
    /// Returns the number of unlogged refusals from this source if this one may be logged.
    pub fn may_log(&self, source: Source, now: Seconds) -> Option<u64> {
        self.lines.admit(source, now)
    }

    /// Returns the number of unwritten refusals of this kind or source if this one may be written.
    fn admit(&self, kind: String, source: Source, now: Seconds) -> Option<u64> {
        let mut kinds = self.kinds.lock().expect("no holder panics");
        if kinds.len() >= KINDS {
            kinds.retain(|_, since| since.written_at + ENTRY_PAUSE_S > now);
        }
        if kinds.len() >= KINDS && !kinds.contains_key(&kind) {
            return None;
        }
        let since = kinds.entry(kind).or_insert(Since { written_at: f64::NEG_INFINITY, unwritten: 0 });
        since.unwritten += 1;
        if since.written_at + ENTRY_PAUSE_S > now {
            return None;
        }
        let of_source = self.entries.admit(source, now)?;
        let of_all = self.all_entries.admit((), now)?;
        since.written_at = now;
        let of_kind = std::mem::take(&mut since.unwritten) - 1;
        Some(of_kind.max(of_source).max(of_all))
    }
}

/// Records a refused call in the audit log if the rate limits allow it.
pub fn note(link: &Link, source: Source, mut call: RefusedCall) {
    let now = link.now();
    let kind = format!("{}|{}|{}|{}", call.identity, call.peer, call.call, call.reason);
    if let Some(unwritten) = link.refused.admit(kind, source, now) {
        call.unwritten = unwritten;
        link.submit(move |tx| audit::refused(tx, &call, now));
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn at(address: u32) -> Source {
        IpAddr::from(address.to_be_bytes()).into()
    }

    #[test]
    fn a_repeated_refusal_is_written_once_a_minute_with_a_count() {
        let log = RefusalLog::default();
        let admit = |kind: &str, now| log.admit(kind.to_owned(), at(1), now);
        assert_eq!(admit("a", 0.0), Some(0));
        assert_eq!((admit("a", 1.0), admit("a", 59.0)), (None, None));
        assert_eq!(admit("b", 1.0), Some(0), "another kind");
        assert_eq!(admit("a", 60.0), Some(2));
        assert_eq!(admit("a", 120.0), Some(0));
    }

    #[test]
    fn a_flood_from_one_address_is_limited_and_hides_no_other_address() {
        let log = RefusalLog::default();
        let mut kinds = 0..;
        let mut flood = |from, now| {
            (0..1000).filter_map(|_| log.admit(kinds.next().unwrap().to_string(), at(from), now)).count() as u32
        };
        assert_eq!(flood(1, 0.0), ENTRIES);
        assert_eq!(log.admit("of another".to_owned(), at(2), 0.0), Some(0));
        assert_eq!(flood(1, 60.0), (60.0 / ENTRY_INTERVAL_S) as u32, "after a minute");
    }

    #[test]
    fn a_flood_from_all_addresses_is_limited() {
        let log = RefusalLog::default();
        let written = (0..2 * KINDS as u32).filter(|n| log.admit(n.to_string(), at(*n), 0.0).is_some()).count();
        assert_eq!(written as u32, ALL_ENTRIES);
        assert!(log.admit("later".to_owned(), at(0), ENTRY_PAUSE_S).is_some_and(|unwritten| unwritten > 0));
        assert!(log.kinds.lock().unwrap().len() <= KINDS);
    }

    #[test]
    fn log_lines_about_one_address_are_limited() {
        let log = RefusalLog::default();
        let logged = (0..1000).filter(|_| log.may_log(at(1), 0.0).is_some()).count();
        assert_eq!((logged as u32, log.may_log(at(2), 0.0)), (LINES, Some(0)));
        assert_eq!(log.may_log(at(1), 100.0), Some(1000 - u64::from(LINES)));
    }
}

//! Refused calls for the audit log: a flood of refusals must not become a flood of entries.

use std::collections::HashMap;
use std::sync::Mutex;

use trellis_core::Seconds;
use trellis_core::audit::{self, RefusedCall};

use crate::link::Link;

/// Refusals of the same kind are written once in this time, the others are counted.
const PAUSE_S: f64 = 60.0;
/// Kinds of refusals told apart.
const KINDS: usize = 4096;

#[derive(Default)]
pub struct RefusalLog(Mutex<HashMap<String, Since>>);

struct Since {
    written_at: Seconds,
    unwritten: u64,
}

impl RefusalLog {
    /// How many refusals of this kind went unwritten, if this one is to be written.
    fn admit(&self, kind: String, now: Seconds) -> Option<u64> {
        let mut kinds = self.0.lock().expect("no holder panics");
        if kinds.len() >= KINDS {
            kinds.retain(|_, since| since.written_at + PAUSE_S > now);
        }
        if kinds.len() >= KINDS && !kinds.contains_key(&kind) {
            return None;
        }
        let since = kinds.entry(kind).or_insert(Since { written_at: f64::NEG_INFINITY, unwritten: 0 });
        if since.written_at + PAUSE_S > now {
            since.unwritten += 1;
            return None;
        }
        since.written_at = now;
        Some(std::mem::take(&mut since.unwritten))
    }
}

/// Notes a refused call, if it is time to.
pub fn note(link: &Link, mut call: RefusedCall) {
    let now = link.now();
    let kind = format!("{}|{}|{}|{}", call.identity, call.peer, call.call, call.reason);
    if let Some(unwritten) = link.refused.admit(kind, now) {
        call.unwritten = unwritten;
        link.write_unheard(move |tx| audit::refused(tx, &call, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_refusal_is_written_once_a_minute_with_a_count() {
        let log = RefusalLog::default();
        let admit = |kind: &str, now| log.admit(kind.to_owned(), now);
        assert_eq!(admit("a", 0.0), Some(0));
        assert_eq!((admit("a", 1.0), admit("a", 59.0)), (None, None));
        assert_eq!(admit("b", 1.0), Some(0), "another kind");
        assert_eq!(admit("a", 60.0), Some(2));
        assert_eq!(admit("a", 120.0), Some(0));
    }

    #[test]
    fn a_flood_of_kinds_is_held_back() {
        let log = RefusalLog::default();
        let written = (0..2 * KINDS).filter(|kind| log.admit(kind.to_string(), 0.0).is_some()).count();
        assert_eq!(written, KINDS);
        assert_eq!(log.admit("later".to_owned(), PAUSE_S), Some(0), "there is room again");
    }
}

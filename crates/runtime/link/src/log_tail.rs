//! The newest part of this process's log, in memory, for administrators who cannot read files on its machine. The log
//! of a process is one, so is its tail.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{LazyLock, Mutex, PoisonError};

use trellis_clock::now_ms;

const MAX_BYTES: usize = 256 << 10;
/// Of one answer.
const MAX_PART_BYTES: usize = 64 << 10;
/// Lines that a reader gets who names no place.
const LAST_LINES: usize = 200;

static TAIL: LazyLock<Mutex<Tail>> = LazyLock::new(|| Mutex::new(Tail::new(now_ms())));

/// Adds to the tail what is written to the log.
pub fn append(bytes: &[u8]) {
    TAIL.lock().unwrap_or_else(PoisonError::into_inner).append(bytes);
}

/// The log after a place, and where that part ends; without a place the last lines.
pub fn after(place: Option<Place>) -> (String, Place) {
    TAIL.lock().unwrap_or_else(PoisonError::into_inner).after(place)
}

/// A place in the log: which process, and how many bytes it had written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    started_ms: u64,
    offset: u64,
}

impl Place {
    pub fn parse(text: &str) -> Option<Place> {
        let (started_ms, offset) = text.split_once('-')?;
        Some(Place { started_ms: started_ms.parse().ok()?, offset: offset.parse().ok()? })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.started_ms, self.offset)
    }
}

struct Tail {
    started_ms: u64,
    bytes: VecDeque<u8>,
    /// Everything that was ever written.
    end: u64,
}

impl Tail {
    fn new(started_ms: u64) -> Tail {
        Tail { started_ms, bytes: VecDeque::new(), end: 0 }
    }

    fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.bytes.drain(..self.bytes.len().saturating_sub(MAX_BYTES));
        self.end += bytes.len() as u64;
    }

    fn after(&self, place: Option<Place>) -> (String, Place) {
        let begin = self.end - self.bytes.len() as u64;
        let from = match place {
            None => self.last_lines(),
            Some(place) if place.started_ms == self.started_ms && place.offset <= self.end => place.offset.max(begin),
            // It was restarted since: all that it has said.
            Some(_) => begin,
        };
        let skipped = (from - begin) as usize;
        let part: Vec<u8> = self.bytes.iter().skip(skipped).take(MAX_PART_BYTES).copied().collect();
        let offset = from + part.len() as u64;
        (String::from_utf8_lossy(&part).into_owned(), Place { started_ms: self.started_ms, offset })
    }

    /// Where the last lines begin.
    fn last_lines(&self) -> u64 {
        let newest = self.bytes.iter().rev().take(MAX_PART_BYTES).enumerate();
        // The newest byte ends the last line.
        let ends = newest.filter(|(index, byte)| *index > 0 && **byte == b'\n').map(|(index, _)| index as u64);
        let whole = self.bytes.len() as u64;
        let length = match ends.take(LAST_LINES).enumerate().last() {
            Some((count, length)) if count + 1 == LAST_LINES || whole > MAX_PART_BYTES as u64 => length,
            _ => whole.min(MAX_PART_BYTES as u64),
        };
        self.end - length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_follows_the_log_and_misses_only_what_is_too_old() {
        let mut tail = Tail::new(7);
        let (text, place) = tail.after(None);
        assert_eq!((text.as_str(), place.to_string().as_str()), ("", "7-0"));
        tail.append(b"one\n");
        tail.append(b"two\n");
        let (text, place) = tail.after(Some(place));
        assert_eq!(text, "one\ntwo\n");
        assert_eq!(tail.after(Some(place)), (String::new(), place));
        assert_eq!(Place::parse(&place.to_string()), Some(place));
        assert_eq!((Place::parse("7"), Place::parse("../7-1")), (None, None));
        assert_eq!(tail.after(Some(Place { started_ms: 6, offset: 5 })).0, "one\ntwo\n", "of the process before");
        for _ in 0..MAX_BYTES {
            tail.append(b"x\n");
        }
        let (text, next) = tail.after(Some(place));
        assert_eq!(text.len(), MAX_PART_BYTES);
        assert_eq!(next.offset, tail.end - (MAX_BYTES - MAX_PART_BYTES) as u64);
    }

    #[test]
    fn the_last_lines_come_first() {
        let mut tail = Tail::new(7);
        tail.append(b"first\nsecond\n");
        assert_eq!(tail.after(None).0, "first\nsecond\n");
        for line in 0..100_000 {
            tail.append(format!("{line}\n").as_bytes());
        }
        let (text, _) = tail.after(None);
        assert_eq!((text.lines().count(), text.lines().next()), (LAST_LINES, Some("99800")));
    }
}

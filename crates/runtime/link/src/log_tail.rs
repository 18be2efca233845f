//! The newest part of this process's log, in memory, for administrators without access to its machine. Global, like the
//! log.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{LazyLock, Mutex, PoisonError};

use trellis_clock::now_ms;

const MAX_BYTES: usize = 256 << 10;
/// Maximum size of an answer.
const MAX_PART_BYTES: usize = 64 << 10;
/// Number of lines for a reader without a position.
const LAST_LINES: usize = 200;

static TAIL: LazyLock<Mutex<Tail>> = LazyLock::new(|| Mutex::new(Tail::new(now_ms())));

/// Appends log output.
pub fn append(bytes: &[u8]) {
    TAIL.lock().unwrap_or_else(PoisonError::into_inner).append(bytes);
}

/// Returns the log after a position and the position after the returned part; without a position the last lines.
pub fn after(position: Option<Position>) -> (String, Position) {
    TAIL.lock().unwrap_or_else(PoisonError::into_inner).after(position)
}

/// A position in the log: the process, and the number of bytes that it had written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    started_ms: u64,
    offset: u64,
}

impl Position {
    /// Before everything that is stored.
    pub const BEGIN: Position = Position { started_ms: 0, offset: 0 };

    pub fn parse(text: &str) -> Option<Position> {
        let (started_ms, offset) = text.split_once('-')?;
        Some(Position { started_ms: started_ms.parse().ok()?, offset: offset.parse().ok()? })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.started_ms, self.offset)
    }
}

pub struct Tail {
    pub started_ms: u64,
    pub bytes: VecDeque<u8>,
    /// Total number of written bytes.
    pub end: u64,
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

    pub fn after(&self, position: Option<Position>) -> (String, Position) {
        let begin = self.end - self.bytes.len() as u64;
        let from = match position {
            None => self.last_lines(),
            Some(position) if position.started_ms == self.started_ms && position.offset <= self.end => {
                position.offset.max(begin)
            }
            // The process was restarted: return its whole log.
            Some(_) => begin,
        };
        let skipped = (from - begin) as usize;
        let mut part: Vec<u8> = self.bytes.iter().skip(skipped).take(MAX_PART_BYTES).copied().collect();
        // The next part has a character whole.
        if let Err(error) = str::from_utf8(&part)
            && error.error_len().is_none()
        {
            part.truncate(error.valid_up_to());
        }
        let offset = from + part.len() as u64;
        (String::from_utf8_lossy(&part).into_owned(), Position { started_ms: self.started_ms, offset })
    }

    /// Returns the offset of the last lines.
    fn last_lines(&self) -> u64 {
        let newest = self.bytes.iter().rev().take(MAX_PART_BYTES).enumerate();
        // The last byte ends the last line.
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
    fn a_reader_gets_all_lines_that_are_still_stored() {
        let mut tail = Tail::new(7);
        let (text, position) = tail.after(None);
        assert_eq!((text.as_str(), position.to_string().as_str()), ("", "7-0"));
        tail.append(b"one\n");
        tail.append(b"two\n");
        let (text, position) = tail.after(Some(position));
        assert_eq!(text, "one\ntwo\n");
        assert_eq!(tail.after(Some(position)), (String::new(), position));
        assert_eq!(Position::parse(&position.to_string()), Some(position));
        assert_eq!((Position::parse("7"), Position::parse("../7-1")), (None, None));
        assert_eq!(
            tail.after(Some(Position { started_ms: 6, offset: 5 })).0,
            "one\ntwo\n",
            "a position of another process"
        );
        for _ in 0..MAX_BYTES {
            tail.append(b"x\n");
        }
        let (text, next) = tail.after(Some(position));
        assert_eq!(text.len(), MAX_PART_BYTES);
        assert_eq!(next.offset, tail.end - (MAX_BYTES - MAX_PART_BYTES) as u64);
    }

    #[test]
    fn a_new_reader_gets_the_last_lines() {
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

//! The output of apps: logged line by line with a rate limit; the last part is kept to explain a crash. Knows nothing of
//! instructions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;
use trellis_core::id::RunId;

const TAIL_BYTES: usize = 8 << 10;
/// Longer lines are split.
const MAX_LINE_BYTES: usize = 4 << 10;
/// The burst and the steady rate of logged lines.
const BURST_LINES: f64 = 500.0;
const LINES_PER_SECOND: f64 = 50.0;

/// The output of a worker.
#[derive(Debug)]
pub struct Output {
    pid: u32,
    run: OnceLock<RunId>,
    tail: Mutex<VecDeque<u8>>,
}

impl Output {
    /// Reads until the worker and its child processes have closed the pipe.
    pub fn follow(pid: u32, from: impl AsyncRead + Unpin + Send + 'static) -> (Arc<Output>, JoinHandle<()>) {
        let output = Arc::new(Output { pid, run: OnceLock::new(), tail: Mutex::default() });
        let reading = tokio::spawn(output.clone().read(from));
        (output, reading)
    }

    /// Sets the run that the output belongs to.
    pub fn belongs_to(&self, run: RunId) {
        let _ = self.run.set(run);
    }

    async fn read(self: Arc<Self>, mut from: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 8 << 10];
        let mut lines = Lines::default();
        let mut pace = Pace::new(Instant::now());
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            self.keep(&buffer[..count]);
            lines.take(&buffer[..count], |line| self.log(&mut pace, line));
        }
        lines.rest(|line| self.log(&mut pace, line));
        self.log_left_out(&mut pace);
    }

    fn keep(&self, bytes: &[u8]) {
        let mut tail = self.tail.lock().expect("no holder panics");
        tail.extend(bytes);
        let excess = tail.len().saturating_sub(TAIL_BYTES);
        tail.drain(..excess);
    }

    fn log(&self, pace: &mut Pace, line: &[u8]) {
        if !pace.allows(Instant::now()) {
            return;
        }
        self.log_left_out(pace);
        let line = plain(line);
        match self.run.get() {
            Some(run) => tracing::info!(target: "trellis::app", %run, pid = self.pid, "{line}"),
            None => tracing::info!(target: "trellis::app", pid = self.pid, "{line}"),
        }
    }

    fn log_left_out(&self, pace: &mut Pace) {
        let lines = std::mem::take(&mut pace.left_out);
        if lines > 0 {
            let run = self.run.get().map(|run| run.0);
            tracing::warn!(target: "trellis::app", run, pid = self.pid, "{lines} lines above the rate limit are left out");
        }
    }

    /// The end of the output, from the start of a line, without colours.
    pub fn tail(&self, limit_bytes: usize) -> String {
        let tail = self.tail.lock().expect("no holder panics");
        let from = tail.len().saturating_sub(limit_bytes);
        let last: Vec<u8> = tail.range(from..).copied().collect();
        let cut = from > 0 || tail.len() == TAIL_BYTES;
        let start = if cut { last.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1) } else { 0 };
        let mut shown = Vec::new();
        let mut lines = Lines::default();
        lines.take(&last[start..], |line| shown.push(plain(line)));
        lines.rest(|line| shown.push(plain(line)));
        shown.join("\n")
    }
}

/// Splits chunks into lines. As on a terminal, a carriage return restarts the line: progress bars show their last state.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
    returned: bool,
}

impl Lines {
    fn take(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for byte in bytes {
            match byte {
                b'\n' => self.rest(&mut each),
                b'\r' => self.returned = true,
                _ => {
                    if std::mem::take(&mut self.returned) {
                        self.line.clear();
                    }
                    self.line.push(*byte);
                    if self.line.len() == MAX_LINE_BYTES {
                        self.rest(&mut each);
                    }
                }
            }
        }
    }

    /// The incomplete last line.
    fn rest(&mut self, mut each: impl FnMut(&[u8])) {
        self.returned = false;
        if !self.line.is_empty() {
            each(&self.line);
            self.line.clear();
        }
    }
}

/// A token bucket.
struct Pace {
    allowance: f64,
    seen: Instant,
    left_out: u64,
}

impl Pace {
    fn new(now: Instant) -> Pace {
        Pace { allowance: BURST_LINES, seen: now, left_out: 0 }
    }

    fn allows(&mut self, now: Instant) -> bool {
        let passed = now.duration_since(self.seen).as_secs_f64();
        self.seen = now;
        self.allowance = (self.allowance + passed * LINES_PER_SECOND).min(BURST_LINES);
        if self.allowance < 1.0 {
            self.left_out += 1;
            return false;
        }
        self.allowance -= 1.0;
        true
    }
}

/// Removes colours and other control sequences.
fn plain(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut shown = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\x1b' if characters.next_if_eq(&'[').is_some() => {
                // A control sequence ends with the first character in this range.
                characters.by_ref().find(|character| ('@'..='~').contains(character));
            }
            '\t' => shown.push(character),
            _ if character.is_control() => {}
            _ => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_are_complete_and_plain() {
        let mut lines_seen = Vec::new();
        let mut lines = Lines::default();
        let long = "x".repeat(MAX_LINE_BYTES + 1);
        let printed = format!(
            "one\r\n\ntw\u{1b}[92mo\u{1b}[0m\n 10%|#   |\r 20%|##  |\r100%|####|\n{long}\nbell\u{7}, tab\there\nhalf a li"
        );
        for piece in printed.as_bytes().chunks(7) {
            lines.take(piece, |line| lines_seen.push(plain(line)));
        }
        lines.rest(|line| lines_seen.push(plain(line)));
        let piece = &long[1..];
        assert_eq!(lines_seen, ["one", "two", "100%|####|", piece, "x", "bell, tab\there", "half a li"]);
    }

    #[tokio::test]
    async fn the_tail_starts_with_a_line_and_is_limited() {
        let printed: String = (0..10_000).map(|number| format!("line {number}\n")).collect();
        let (output, reading) = Output::follow(1, std::io::Cursor::new(printed.into_bytes()));
        reading.await.unwrap();
        assert_eq!(output.tail(25), "line 9998\nline 9999");
        let all = output.tail(usize::MAX);
        assert!(all.len() <= TAIL_BYTES && all.starts_with("line ") && all.ends_with("line 9999"), "{all}");
        let (output, reading) = Output::follow(1, std::io::Cursor::new(b"short"));
        reading.await.unwrap();
        assert_eq!(output.tail(2048), "short");
    }

    #[test]
    fn a_flood_is_limited_and_counted() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let allowed = (0..10_000).filter(|_| pace.allows(start)).count();
        assert_eq!((allowed, pace.left_out), (500, 9_500));
        assert!(pace.allows(start + Duration::from_millis(20)));
        assert!(!pace.allows(start + Duration::from_millis(21)));
        assert!((0..500).all(|_| pace.allows(start + Duration::from_secs(3600))));
    }
}

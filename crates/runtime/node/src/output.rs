//! The output of an app process: each line goes to the log of apps, with a rate limit; the last lines are kept to explain a
//! crash. Knows nothing of instructions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;
use trellis_core::id::RunId;
use trellis_front::Rate;

use crate::app_log::AppLog;

const TAIL_BYTES: usize = 8 << 10;
/// Longer lines are split.
const MAX_LINE_BYTES: usize = 4 << 10;
/// The burst of logged lines, and the interval between lines after it.
const BURST_LINES: u32 = 500;
const LINE_INTERVAL_S: f64 = 0.02;

/// The output of a process and its child processes.
#[derive(Debug)]
pub struct Output {
    pid: u32,
    log: AppLog,
    run: OnceLock<RunId>,
    tail: Mutex<Tail>,
}

#[derive(Debug, Default)]
struct Tail {
    /// With their ends.
    lines: VecDeque<String>,
    bytes: usize,
}

impl Output {
    /// Reads until all writers have closed the pipe.
    pub fn follow(
        pid: u32,
        from: impl AsyncRead + Unpin + Send + 'static,
        log: AppLog,
    ) -> (Arc<Output>, JoinHandle<()>) {
        let output = Arc::new(Output { pid, log, run: OnceLock::new(), tail: Mutex::default() });
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
        let mut pace = Pace { started: Instant::now(), rate: Rate::new(BURST_LINES, LINE_INTERVAL_S, 1), left_out: 0 };
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            lines.take(&buffer[..count], &self.log, |line| self.add(&mut pace, line));
        }
        lines.rest(&self.log, |line| self.add(&mut pace, line));
        self.note_left_out(&mut pace);
    }

    fn add(&self, pace: &mut Pace, line: String) {
        if pace.rate.admit((), pace.started.elapsed().as_secs_f64()).is_some() {
            self.note_left_out(pace);
            match self.run.get() {
                Some(run) => {
                    tracing::info!(target: "trellis::app", %run, pid = self.pid, "{line}");
                    self.log.add(*run, &line);
                }
                None => tracing::info!(target: "trellis::app", pid = self.pid, "{line}"),
            }
        } else {
            pace.left_out += 1;
        }
        let mut tail = self.tail.lock().expect("no holder panics");
        tail.bytes += line.len() + 1;
        tail.lines.push_back(line + "\n");
        while tail.bytes > TAIL_BYTES {
            tail.bytes -= tail.lines.pop_front().map_or(tail.bytes, |line| line.len());
        }
    }

    fn note_left_out(&self, pace: &mut Pace) {
        let lines = std::mem::take(&mut pace.left_out);
        if lines > 0 {
            let run = self.run.get();
            tracing::warn!(target: "trellis::app", run = run.map(|run| run.0), pid = self.pid, "{lines} lines above the rate limit are left out");
            if let Some(run) = run {
                self.log.add(*run, &format!("[{lines} lines above the rate limit are left out]"));
            }
        }
    }

    /// The last lines, without colours.
    pub fn tail(&self, limit_bytes: usize) -> String {
        let tail = self.tail.lock().expect("no holder panics");
        let mut left = limit_bytes + 1;
        let fits = |line: &&String| {
            let room = left.checked_sub(line.len());
            left = room.unwrap_or(0);
            room.is_some()
        };
        let shown: Vec<&str> = tail.lines.iter().rev().take_while(fits).map(String::as_str).collect();
        shown.into_iter().rev().collect::<String>().trim_end().to_owned()
    }
}

/// Splits chunks into masked lines. As on a terminal, a carriage return restarts the line: progress bars show their last state.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
    returned: bool,
}

impl Lines {
    fn take(&mut self, bytes: &[u8], log: &AppLog, mut each: impl FnMut(String)) {
        for byte in bytes {
            match byte {
                b'\n' => self.rest(log, &mut each),
                b'\r' => self.returned = true,
                _ => {
                    if std::mem::take(&mut self.returned) {
                        self.line.clear();
                    }
                    self.line.push(*byte);
                    if self.line.len() >= MAX_LINE_BYTES {
                        self.split(log, &mut each);
                    }
                }
            }
        }
    }

    /// Passes on the first half of a long line. The second half waits for its end: otherwise a secret could be split, and not
    /// be recognised.
    fn split(&mut self, log: &AppLog, mut each: impl FnMut(String)) {
        let text = log.mask(plain(&self.line));
        let half = (0..=MAX_LINE_BYTES / 2).rev().find(|at| text.is_char_boundary(*at));
        let (first, second) = text.split_at(half.unwrap_or_default());
        self.line = second.as_bytes().to_vec();
        each(first.to_owned());
    }

    /// The incomplete last line.
    fn rest(&mut self, log: &AppLog, mut each: impl FnMut(String)) {
        self.returned = false;
        if !self.line.is_empty() {
            each(log.mask(plain(&self.line)));
            self.line.clear();
        }
    }
}

/// The rate of logged lines.
struct Pace {
    started: Instant,
    rate: Rate<()>,
    left_out: u64,
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
    use super::*;

    #[test]
    fn lines_are_complete_and_plain() {
        let (mut lines_seen, log) = (Vec::new(), AppLog::default());
        let mut lines = Lines::default();
        let long = "x".repeat(MAX_LINE_BYTES + 1);
        let printed = format!(
            "one\r\n\ntw\u{1b}[92mo\u{1b}[0m\n 10%|#   |\r 20%|##  |\r100%|####|\n{long}\nbell\u{7}, tab\there\nhalf a li"
        );
        for piece in printed.as_bytes().chunks(7) {
            lines.take(piece, &log, |line| lines_seen.push(line));
        }
        lines.rest(&log, |line| lines_seen.push(line));
        let (half, rest) = long.split_at(MAX_LINE_BYTES / 2);
        assert_eq!(lines_seen, ["one", "two", "100%|####|", half, rest, "bell, tab\there", "half a li"]);
    }

    #[test]
    fn a_secret_is_masked_wherever_a_long_line_is_split() {
        let log = AppLog::new([("MY_TOKEN".into(), "s3cr3t-word".into())].into_iter(), true);
        for before in MAX_LINE_BYTES / 2 - 20..MAX_LINE_BYTES + 20 {
            let (mut seen, mut lines) = (String::new(), Lines::default());
            let printed = format!("{}s3cr3t-word{}\n", "x".repeat(before), "y".repeat(9000));
            lines.take(printed.as_bytes(), &log, |line| seen += &line);
            let masked = format!("{}********{}", "x".repeat(before), "y".repeat(9000));
            assert!(seen == masked, "after {before} characters");
        }
    }

    #[tokio::test]
    async fn the_tail_starts_with_a_line_and_is_limited() {
        let printed: String = (0..10_000).map(|number| format!("line {number}\n")).collect();
        let (output, reading) = Output::follow(1, std::io::Cursor::new(printed.into_bytes()), AppLog::default());
        reading.await.unwrap();
        assert_eq!(output.tail(25), "line 9998\nline 9999");
        let all = output.tail(usize::MAX - 1);
        assert!(all.len() <= TAIL_BYTES && all.starts_with("line ") && all.ends_with("line 9999"), "{all}");
        let (output, reading) = Output::follow(1, std::io::Cursor::new(b"short"), AppLog::default());
        reading.await.unwrap();
        assert_eq!(output.tail(2048), "short");
    }

    #[tokio::test]
    async fn a_flood_is_limited_and_counted() {
        let printed = "flood\n".repeat(10_000);
        let log = AppLog::new([].into_iter(), true);
        let (output, reading) = Output::follow(1, std::io::Cursor::new(printed.into_bytes()), log.clone());
        output.belongs_to(RunId(7));
        reading.await.unwrap();
        let (_, text) = log.take(usize::MAX).unwrap();
        let last = text.lines().last().unwrap();
        assert!((500..2000).contains(&text.lines().count()), "{} lines", text.lines().count());
        assert!(last.ends_with("lines above the rate limit are left out]"), "{last}");
    }
}

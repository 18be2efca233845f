//! The output of an app process: each line is logged, and the last part is kept to explain a failure.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

/// The size of the kept output.
const TAIL_BYTES: usize = 8 << 10;
/// Longer lines are split in the log.
const LINE_BYTES: usize = 8 << 10;
const READ_BYTES: usize = 16 << 10;

/// The output of a process.
pub struct Output {
    tail: Arc<Mutex<Tail>>,
    reading: JoinHandle<()>,
}

impl Output {
    /// Reads a pipe until all writers have closed it.
    pub fn follow(pipe: OwnedFd, run: u64) -> io::Result<Output> {
        let mut pipe = pipe::Receiver::from_owned_fd(pipe)?;
        let tail = Arc::new(Mutex::new(Tail::default()));
        let kept = Arc::clone(&tail);
        let reading = tokio::spawn(async move {
            let (mut block, mut lines) = (vec![0; READ_BYTES], Lines::default());
            while let Ok(read @ 1..) = pipe.read(&mut block).await {
                kept.lock().expect("no holder panics").push(&block[..read]);
                for line in lines.push(&block[..read]) {
                    tracing::info!(run, "app: {line}");
                }
            }
        });
        Ok(Output { tail, reading })
    }

    /// Waits for the end of the output.
    pub async fn ended(&mut self) {
        let _ = (&mut self.reading).await;
    }

    pub fn tail(&self) -> String {
        self.tail.lock().expect("no holder panics").text()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

#[derive(Default)]
struct Tail {
    bytes: VecDeque<u8>,
    is_cut: bool,
}

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let surplus = self.bytes.len().saturating_sub(TAIL_BYTES);
        self.bytes.drain(..surplus);
        self.is_cut |= surplus > 0;
    }

    /// The kept output, from the start of a line.
    fn text(&self) -> String {
        let (first, second) = self.bytes.as_slices();
        let text = String::from_utf8_lossy(&[first, second].concat()).into_owned();
        let text = match text.split_once('\n') {
            Some((_, rest)) if self.is_cut => rest,
            _ => &text,
        };
        plain(text.trim_end())
    }
}

/// Splits bytes into complete lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' => lines.push(self.take()),
                _ if self.0.len() == LINE_BYTES => {
                    lines.push(self.take());
                    self.0.push(*byte);
                }
                _ => self.0.push(*byte),
            }
        }
        lines.retain(|line| !line.is_empty());
        lines
    }

    fn take(&mut self) -> String {
        plain(String::from_utf8_lossy(&std::mem::take(&mut self.0)).trim_end())
    }
}

/// Removes colours, which Flower writes even without a terminal.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut parts = text.split("\x1b[");
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let code = part.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
        plain.push_str(part[code..].strip_prefix('m').unwrap_or(&part[code..]));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_starts_with_a_line_and_has_no_colours() {
        let mut tail = Tail::default();
        tail.push(b"\x1b[92mINFO \x1b[0m: start\n");
        assert_eq!(tail.text(), "INFO : start");
        for number in 0..2000 {
            tail.push(format!("line {number}\n").as_bytes());
        }
        let text = tail.text();
        assert!(text.len() <= TAIL_BYTES && text.ends_with("line 1999"), "{text}");
        assert!(
            text.lines().all(|line| line.strip_prefix("line ").is_some_and(|number| number.parse::<u32>().is_ok()))
        );
    }

    #[test]
    fn lines_are_returned_when_complete() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"one\ntw"), ["one"]);
        assert_eq!(lines.push(b"o\r\n\nthree"), ["two"]);
        assert_eq!(lines.push(&vec![b'x'; LINE_BYTES]).len(), 1, "an endless line is split");
    }
}

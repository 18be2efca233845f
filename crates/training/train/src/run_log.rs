//! The log of a training. Lines are sent to the SuperLink in batches, and optionally written to standard error. Their format is
//! that of Flower's logs.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use trellis_client::app::App;

/// The time between two batches, as in Flower's own apps.
const BATCH_INTERVAL: Duration = Duration::from_millis(200);
/// Lines that wait for the SuperLink; further lines are only written to standard error.
const MAX_UNSENT_LINES: usize = 10_000;
const MAX_BATCH_BYTES: usize = 256 << 10;

/// Clones write to the same log.
#[derive(Debug, Clone)]
pub struct RunLog {
    lines: mpsc::Sender<String>,
    is_echoed: bool,
}

/// The task that sends the lines, until all clones of the log are dropped.
pub struct LogWriter(JoinHandle<()>);

impl LogWriter {
    /// Waits until all lines are sent or the run has ended. All clones of the log must be dropped.
    pub async fn finish(self) {
        let _ = self.0.await;
    }
}

impl RunLog {
    /// With `is_echoed`, lines are also written to standard error.
    pub fn begin(app: App, is_echoed: bool) -> (RunLog, LogWriter) {
        let (lines, unsent) = mpsc::channel(MAX_UNSENT_LINES);
        (RunLog { lines, is_echoed }, LogWriter(tokio::spawn(send(app, unsent))))
    }

    pub fn info(&self, text: impl AsRef<str>) {
        self.write("INFO", text.as_ref());
    }

    pub fn warn(&self, text: impl AsRef<str>) {
        self.write("WARNING", text.as_ref());
    }

    pub fn error(&self, text: impl AsRef<str>) {
        self.write("ERROR", text.as_ref());
    }

    fn write(&self, level: &str, text: &str) {
        for line in if text.is_empty() { vec![""] } else { text.lines().collect() } {
            let line = format!("{level} :      {line}");
            if self.is_echoed {
                eprintln!("{line}");
            }
            // The queue is full if the SuperLink is unavailable, and closed after the end of the run.
            let _ = self.lines.try_send(line);
        }
    }
}

async fn send(app: App, mut unsent: mpsc::Receiver<String>) {
    while let Some(first) = unsent.recv().await {
        let mut batch = first + "\n";
        let gathered = tokio::time::sleep(BATCH_INTERVAL);
        tokio::pin!(gathered);
        while batch.len() < MAX_BATCH_BYTES {
            tokio::select! {
                biased;
                line = unsent.recv() => match line {
                    Some(line) => batch.extend([line.as_str(), "\n"]),
                    None => break,
                },
                () = &mut gathered => break,
            }
        }
        if app.push_logs(batch).await.is_err() {
            return;
        }
    }
}

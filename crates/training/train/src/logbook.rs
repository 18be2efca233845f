//! What a training says while it goes on: lines for the log of the run, a few at a time, and the same lines for whoever
//! looks at the process itself. The form is that of Flower's logs.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use trellis_client::app::App;

/// Lines are gathered for so long: Flower's own apps do the same.
const GATHERED_FOR: Duration = Duration::from_millis(200);
/// Lines that wait for the SuperLink; what is beyond is only echoed.
const UNSENT_LINES: usize = 10_000;
/// In one call.
const MAX_BATCH_BYTES: usize = 256 << 10;

/// Clones write into the same log.
#[derive(Debug, Clone)]
pub struct Logbook {
    lines: mpsc::Sender<String>,
    is_echoed: bool,
}

/// Sends the lines away, until nobody writes any more.
pub struct Writing(JoinHandle<()>);

impl Writing {
    /// Everything that was written is in the log, or the run is over. The last logbook must be gone.
    pub async fn finish(self) {
        let _ = self.0.await;
    }
}

impl Logbook {
    /// `is_echoed`: lines go to the standard error too.
    pub fn begin(app: App, is_echoed: bool) -> (Logbook, Writing) {
        let (lines, unsent) = mpsc::channel(UNSENT_LINES);
        (Logbook { lines, is_echoed }, Writing(tokio::spawn(send(app, unsent))))
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
            // After the end of the run nobody takes lines, and while the SuperLink is away only so many are kept.
            let _ = self.lines.try_send(line);
        }
    }
}

async fn send(app: App, mut unsent: mpsc::Receiver<String>) {
    while let Some(first) = unsent.recv().await {
        let mut batch = first + "\n";
        let gathered = tokio::time::sleep(GATHERED_FOR);
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

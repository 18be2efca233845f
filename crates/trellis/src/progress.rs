//! Progress of a federation on stderr: one line that is rewritten on a terminal, or a line per change in a pipe.

use std::io::{self, IsTerminal, Write};

use trellis_api::{FederationDetail, FederationSummary, State};

use trellis_terminal::clean;

const BAR_CHARS: usize = 20;
const CLEAR_LINE: &str = "\r\u{1b}[2K";

pub struct Progress {
    terminal: bool,
    /// The current line.
    shown: String,
}

impl Progress {
    pub fn new() -> Progress {
        Progress { terminal: io::stderr().is_terminal(), shown: String::new() }
    }

    /// Prints the progress of a federation.
    pub fn show(&mut self, detail: &FederationDetail) {
        let width = terminal_size::terminal_size_of(io::stderr()).map_or(usize::MAX, |(width, _)| width.0.into());
        let line = if self.terminal { bar(detail, width) } else { words(detail) };
        self.print(line);
    }

    pub fn print(&mut self, line: String) {
        if line == self.shown {
            return;
        }
        match self.terminal {
            true => write(&format!("{CLEAR_LINE}{line}")),
            false => write(&format!("{line}\n")),
        }
        self.shown = line;
    }

    /// Clears the line on a terminal.
    pub fn clear(&mut self) {
        if self.terminal && !self.shown.is_empty() {
            write(CLEAR_LINE);
        }
        self.shown.clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn write(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// The state of the parts, and the reason for waiting.
fn words(detail: &FederationDetail) -> String {
    let summary = &detail.summary;
    let coordinator = detail.status.as_ref().map_or("not observed yet", |status| &status.coordinator.phase);
    let nodes = &summary.nodes;
    let mut line =
        format!("{}: coordinator {coordinator}, {} of {} nodes ready", summary.name, nodes.ready, nodes.wanted);
    if let Some(why) = why(summary) {
        line += &format!("; {why}");
    }
    clean(&line)
}

fn bar(detail: &FederationDetail, width: usize) -> String {
    let nodes = &detail.summary.nodes;
    let coordinator = detail.status.as_ref().is_some_and(|status| status.coordinator.phase == "ready");
    let (done, all) = (nodes.ready as usize + usize::from(coordinator), nodes.wanted as usize + 1);
    let filled = (BAR_CHARS * done / all).min(BAR_CHARS);
    let line = format!("[{}{}] {}", "#".repeat(filled), ".".repeat(BAR_CHARS - filled), words(detail));
    // A wrapped line cannot be rewritten.
    line.chars().take(width.saturating_sub(1)).collect()
}

/// Why the federation is not ready.
fn why(summary: &FederationSummary) -> Option<&str> {
    (summary.state != State::Ready && !summary.message.is_empty()).then_some(summary.message.as_str())
}

#[cfg(test)]
mod tests {
    use trellis_api::NodeCounts;

    use super::*;

    fn detail(state: State, ready: u32) -> FederationDetail {
        FederationDetail {
            summary: FederationSummary {
                name: "local".to_owned(),
                state,
                message: "waits for clinic-1".to_owned(),
                revision: 1,
                runtime: "trellis".to_owned(),
                sites: 1,
                nodes: NodeCounts { wanted: 3, present: 3, ready, busy: 0, joined: 0 },
                active_runs: None,
                changed_at: 0.0,
            },
            document: String::new(),
            status: None,
        }
    }

    #[test]
    fn it_says_how_far_it_is_and_why_it_waits() {
        let waiting = "local: coordinator not observed yet, 2 of 3 nodes ready; waits for clinic-1";
        assert_eq!(words(&detail(State::Reconciling, 2)), waiting);
        assert_eq!(words(&detail(State::Ready, 3)), "local: coordinator not observed yet, 3 of 3 nodes ready");
        assert_eq!(
            bar(&detail(State::Ready, 2), 500),
            format!("[##########..........] {}", words(&detail(State::Ready, 2)))
        );
        assert_eq!(bar(&detail(State::Ready, 2), 30).chars().count(), 29);
    }
}

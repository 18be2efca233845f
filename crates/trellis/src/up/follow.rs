//! Prints events of a federation as lines: lost and recovered nodes, runs, rounds.

use trellis_api::{Client, Event, FederationSummary, Run, RunState, State};
use trellis_terminal::{clean, print};

use crate::process::StopSignals;
use crate::remote::CommandError;
use crate::run::show::round_line;
use crate::settle::Watch;

/// Prints events until a signal, or until the federation is deleted.
pub async fn follow(client: &Client, name: &str, signals: &mut StopSignals) -> Result<(), CommandError> {
    let mut watch = Watch::of(client, name);
    let mut seen = Seen::default();
    loop {
        let event = tokio::select! {
            event = watch.next() => event,
            _ = signals.next() => return Ok(()),
        };
        let gone = matches!(&event, Event::Gone { federation } if federation == name);
        for line in seen.lines(&event) {
            print(&format!("{}\n", clean(&line)));
        }
        if gone {
            return Ok(());
        }
    }
}

/// Printed states, to print changes only.
#[derive(Default)]
struct Seen {
    federation: String,
    run: Option<(String, RunState)>,
}

impl Seen {
    fn lines(&mut self, event: &Event) -> Vec<String> {
        let line = match event {
            Event::Resync => None,
            Event::Federation { federation } => {
                let line = federation_line(federation);
                // A federation that is ready from the beginning is no news.
                let news = line != self.federation && !(self.federation.is_empty() && federation.state == State::Ready);
                self.federation.clone_from(&line);
                news.then_some(line)
            }
            Event::Gone { federation } => Some(format!("{federation} was deleted")),
            Event::Run { run } => {
                let state = Some((run.id.clone(), run.state));
                let news = self.run != state;
                self.run = state;
                news.then(|| run_line(run))
            }
            Event::Round { run, report, .. } if report.kind == "round" => {
                Some(format!("run {run}: {}", round_line(report)))
            }
            Event::Round { .. } => None,
        };
        line.into_iter().collect()
    }
}

fn federation_line(federation: &FederationSummary) -> String {
    let FederationSummary { name, state, nodes, message, .. } = federation;
    let ready = format!("{} of {} nodes ready", nodes.ready, nodes.wanted);
    match state {
        State::Ready => format!("{name}: {ready}"),
        _ if message.is_empty() => format!("{name}: {ready}"),
        _ => format!("{name}: {ready}; {message}"),
    }
}

fn run_line(run: &Run) -> String {
    let state = match (run.state, &run.outcome) {
        (RunState::Pending, _) => "is waiting".to_owned(),
        (RunState::Starting, _) => "starts".to_owned(),
        (RunState::Running, _) => "runs".to_owned(),
        (RunState::Finished, Some(outcome)) if run.details.is_empty() => outcome.clone(),
        (RunState::Finished, Some(outcome)) => format!("{outcome}: {}", run.details),
        (RunState::Finished, None) => "is over".to_owned(),
    };
    format!("run {} ({}) {state}", run.id, run.app)
}

#[cfg(test)]
mod tests {
    use trellis_api::NodeCounts;

    use super::*;

    fn federation(state: State, ready: u32, message: &str) -> Event {
        let federation = FederationSummary {
            name: "local".to_owned(),
            state,
            message: message.to_owned(),
            revision: 1,
            runtime: "trellis".to_owned(),
            sites: 1,
            nodes: NodeCounts { wanted: 2, present: 2, ready, busy: 0, joined: 0 },
            active_runs: None,
            changed_at: 0.0,
        };
        Event::Federation { federation }
    }

    #[test]
    fn news_are_told_once() {
        let mut seen = Seen::default();
        let none: [&str; 0] = [];
        assert_eq!(seen.lines(&federation(State::Ready, 2, "all is well")), none);
        let lost = federation(State::Reconciling, 1, "nodes-0 is started again");
        assert_eq!(seen.lines(&lost), ["local: 1 of 2 nodes ready; nodes-0 is started again"]);
        assert_eq!(seen.lines(&lost), none);
        assert_eq!(seen.lines(&federation(State::Ready, 2, "all is well")), ["local: 2 of 2 nodes ready"]);
        assert_eq!(seen.lines(&Event::Gone { federation: "local".to_owned() }), ["local was deleted"]);
    }
}

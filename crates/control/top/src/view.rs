//! The state of `trellis top`: its data and the selection of the user. A state machine whose inputs are updates and keys.
//! Pure: no terminal, no network.

mod curve;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use trellis_api::{Event, FederationSummary, Node, Run, RunState, Why};

pub use curve::{Curve, bars};

/// Lines that Page Up and Page Down move.
const PAGE: usize = 10;

#[derive(Debug, Default)]
pub struct View {
    /// `host:port` of the server.
    pub endpoint: String,
    pub connection: Connection,
    /// By name.
    pub federations: Vec<FederationSummary>,
    /// The federation of the lower panes.
    pub chosen: Option<String>,
    pub details: Details,
    pub focus: Pane,
    /// The selected line of each pane; see [`View::line`].
    lines: [usize; Pane::ALL.len()],
    /// The lower panes are replaced by all fields of the selected line.
    pub detail: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Connection {
    #[default]
    Connecting,
    Live,
    /// The data is stale, and the reason.
    Lost(String),
}

/// All data of the chosen federation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Details {
    pub federation: String,
    pub nodes: Vec<Node>,
    /// Newest first.
    pub runs: Vec<Run>,
    /// By run.
    pub curves: BTreeMap<String, Curve>,
    pub why: Vec<Why>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pane {
    #[default]
    Federations,
    Nodes,
    Runs,
}

impl Pane {
    pub const ALL: [Pane; 3] = [Pane::Federations, Pane::Nodes, Pane::Runs];

    fn step(self, by: usize) -> Pane {
        Pane::ALL[(self as usize + by) % Pane::ALL.len()]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Next,
    Previous,
    Enter,
    Back,
    Quit,
}

/// An input other than a key.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)]
pub enum Update {
    Connection(Connection),
    Federations(Vec<FederationSummary>),
    Details(Details),
    Event(Event),
    /// A signal ends the program.
    Stop,
}

/// The output of a transition, which the caller carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Nothing,
    /// Load this federation, and its updates from now on.
    Show(String),
    Quit,
}

impl View {
    pub fn new(endpoint: String) -> View {
        View { endpoint, ..Default::default() }
    }

    /// The selected line of a pane; `None` if the pane is empty.
    pub fn line(&self, pane: Pane) -> Option<usize> {
        let count = self.count(pane);
        (count > 0).then(|| self.lines[pane as usize].min(count - 1))
    }

    fn count(&self, pane: Pane) -> usize {
        match pane {
            Pane::Federations => self.federations.len(),
            Pane::Nodes => self.details.nodes.len(),
            Pane::Runs => self.details.runs.len(),
        }
    }

    pub fn press(&mut self, key: Key) -> Request {
        match key {
            Key::Quit => return Request::Quit,
            Key::Back if self.detail => self.detail = false,
            Key::Back => self.focus = Pane::Federations,
            Key::Next => self.focus = self.focus.step(1),
            Key::Previous => self.focus = self.focus.step(Pane::ALL.len() - 1),
            Key::Enter => self.detail = !self.detail && self.line(self.focus).is_some(),
            Key::Up => return self.go(|line, _| line.saturating_sub(1)),
            Key::Down => return self.go(|line, last| (line + 1).min(last)),
            Key::PageUp => return self.go(|line, _| line.saturating_sub(PAGE)),
            Key::PageDown => return self.go(|line, last| (line + PAGE).min(last)),
            Key::First => return self.go(|_, _| 0),
            Key::Last => return self.go(|_, last| last),
        }
        Request::Nothing
    }

    fn go(&mut self, to: impl Fn(usize, usize) -> usize) -> Request {
        if let Some(line) = self.line(self.focus) {
            self.lines[self.focus as usize] = to(line, self.count(self.focus) - 1);
        }
        if self.focus == Pane::Federations { self.choose_by_line() } else { Request::Nothing }
    }

    fn choose_by_line(&mut self) -> Request {
        let wanted = self.line(Pane::Federations).map(|line| self.federations[line].name.clone());
        match wanted {
            Some(name) if self.chosen.as_ref() != Some(&name) => {
                self.details = Details { federation: name.clone(), ..Default::default() };
                self.lines[Pane::Nodes as usize] = 0;
                self.lines[Pane::Runs as usize] = 0;
                self.chosen = Some(name.clone());
                Request::Show(name)
            }
            Some(_) => Request::Nothing,
            None => {
                (self.chosen, self.details, self.detail) = (None, Details::default(), false);
                Request::Nothing
            }
        }
    }

    pub fn apply(&mut self, news: Update) -> Request {
        match news {
            Update::Stop => return Request::Quit,
            Update::Connection(connection) => self.connection = connection,
            Update::Federations(mut all) => {
                all.sort_by(|one, other| one.name.cmp(&other.name));
                self.federations = all;
                return self.follow_chosen();
            }
            Update::Details(details) if self.chosen.as_ref() == Some(&details.federation) => self.details = details,
            // The user has chosen another federation in the meantime.
            Update::Details(_) => {}
            Update::Event(event) => return self.handle(event),
        }
        Request::Nothing
    }

    /// Keeps the chosen federation selected when the list changes.
    fn follow_chosen(&mut self) -> Request {
        let place = |name: &String| self.federations.iter().position(|one| one.name == *name);
        if let Some(line) = self.chosen.as_ref().and_then(place) {
            self.lines[Pane::Federations as usize] = line;
        }
        self.choose_by_line()
    }

    fn handle(&mut self, event: Event) -> Request {
        match event {
            // The feed reloads everything and sends an update.
            Event::Resync => {}
            Event::Federation { federation } => {
                match self.federations.iter_mut().find(|one| one.name == federation.name) {
                    Some(known) => *known = federation,
                    None => self.federations.push(federation),
                }
                self.federations.sort_by(|one, other| one.name.cmp(&other.name));
                return self.follow_chosen();
            }
            Event::Gone { federation } => {
                self.federations.retain(|one| one.name != federation);
                return self.follow_chosen();
            }
            Event::Run { run } if run.federation == self.details.federation => {
                match self.details.runs.iter_mut().find(|known| known.id == run.id) {
                    Some(known) => *known = run,
                    None => self.details.runs.insert(0, run),
                }
            }
            Event::Round { federation, run, report } if federation == self.details.federation => {
                self.details.curves.entry(run.clone()).or_default().add(&report);
                let training = self.details.runs.iter_mut().find(|known| known.id == run);
                if let Some(training) = training.and_then(|run| run.training.as_mut()) {
                    training.round = training.round.max(report.round);
                }
            }
            Event::Run { .. } | Event::Round { .. } => {}
        }
        Request::Nothing
    }
}

/// The state of a run, or the outcome of a finished one.
pub fn state_of(run: &Run) -> &str {
    match run.state {
        RunState::Pending => "pending",
        RunState::Starting => "starting",
        RunState::Running => "running",
        RunState::Finished => run.outcome.as_deref().unwrap_or("finished"),
    }
}

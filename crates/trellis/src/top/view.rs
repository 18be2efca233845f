//! What `trellis top` shows and where its user is in it: a machine that hears news and keys. Pure: no terminal, no network.

mod curve;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use trellis_api::{Event, FederationSummary, Node, Run, RunState, Why};

pub use curve::{Curve, bars};

/// A key press moves so far in a list.
const PAGE: usize = 10;

#[derive(Debug, Default)]
pub struct View {
    /// `host:port` of the server.
    pub endpoint: String,
    pub contact: Contact,
    /// By name.
    pub federations: Vec<FederationSummary>,
    /// The federation that the lower panes are about.
    pub chosen: Option<String>,
    pub shown: Shown,
    pub focus: Pane,
    /// The line of the user in each pane; see [`View::line`].
    lines: [usize; Pane::ALL.len()],
    /// The line is shown alone, with all there is to say.
    pub detail: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Contact {
    #[default]
    Connecting,
    Live,
    /// What is shown is old; why.
    Lost(String),
}

/// All that is known of the chosen federation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shown {
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

/// What the outside told.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)]
pub enum News {
    Contact(Contact),
    Federations(Vec<FederationSummary>),
    Shown(Shown),
    Event(Event),
    /// The user, or the system, ends the program.
    Stop,
}

/// What the outside shall do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    Nothing,
    /// Tell all about this federation from now on.
    Show(String),
    Quit,
}

impl View {
    pub fn new(endpoint: String) -> View {
        View { endpoint, ..Default::default() }
    }

    /// The line of the user in a pane; `None`: there is none.
    pub fn line(&self, pane: Pane) -> Option<usize> {
        let count = self.count(pane);
        (count > 0).then(|| self.lines[pane as usize].min(count - 1))
    }

    fn count(&self, pane: Pane) -> usize {
        match pane {
            Pane::Federations => self.federations.len(),
            Pane::Nodes => self.shown.nodes.len(),
            Pane::Runs => self.shown.runs.len(),
        }
    }

    pub fn press(&mut self, key: Key) -> Wish {
        match key {
            Key::Quit => return Wish::Quit,
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
        Wish::Nothing
    }

    fn go(&mut self, to: impl Fn(usize, usize) -> usize) -> Wish {
        if let Some(line) = self.line(self.focus) {
            self.lines[self.focus as usize] = to(line, self.count(self.focus) - 1);
        }
        if self.focus == Pane::Federations { self.choose_by_line() } else { Wish::Nothing }
    }

    fn choose_by_line(&mut self) -> Wish {
        let wanted = self.line(Pane::Federations).map(|line| self.federations[line].name.clone());
        match wanted {
            Some(name) if self.chosen.as_ref() != Some(&name) => {
                self.shown = Shown { federation: name.clone(), ..Default::default() };
                self.lines[Pane::Nodes as usize] = 0;
                self.lines[Pane::Runs as usize] = 0;
                self.chosen = Some(name.clone());
                Wish::Show(name)
            }
            Some(_) => Wish::Nothing,
            None => {
                (self.chosen, self.shown, self.detail) = (None, Shown::default(), false);
                Wish::Nothing
            }
        }
    }

    pub fn hear(&mut self, news: News) -> Wish {
        match news {
            News::Stop => return Wish::Quit,
            News::Contact(contact) => self.contact = contact,
            News::Federations(mut all) => {
                all.sort_by(|one, other| one.name.cmp(&other.name));
                self.federations = all;
                return self.keep_chosen();
            }
            // An answer about one that is no longer looked at comes too late.
            News::Shown(shown) if self.chosen.as_ref() == Some(&shown.federation) => self.shown = shown,
            News::Shown(_) => {}
            News::Event(event) => return self.happen(event),
        }
        Wish::Nothing
    }

    /// The line follows the federation when others come and go.
    fn keep_chosen(&mut self) -> Wish {
        let place = |name: &String| self.federations.iter().position(|one| one.name == *name);
        if let Some(line) = self.chosen.as_ref().and_then(place) {
            self.lines[Pane::Federations as usize] = line;
        }
        self.choose_by_line()
    }

    fn happen(&mut self, event: Event) -> Wish {
        match event {
            // Whoever listens asks for everything anew, and tells that.
            Event::Resync => {}
            Event::Federation { federation } => {
                match self.federations.iter_mut().find(|one| one.name == federation.name) {
                    Some(known) => *known = federation,
                    None => self.federations.push(federation),
                }
                self.federations.sort_by(|one, other| one.name.cmp(&other.name));
                return self.keep_chosen();
            }
            Event::Gone { federation } => {
                self.federations.retain(|one| one.name != federation);
                return self.keep_chosen();
            }
            Event::Run { run } if run.federation == self.shown.federation => {
                match self.shown.runs.iter_mut().find(|known| known.id == run.id) {
                    Some(known) => *known = run,
                    None => self.shown.runs.insert(0, run),
                }
            }
            Event::Round { federation, run, report } if federation == self.shown.federation => {
                self.shown.curves.entry(run.clone()).or_default().add(&report);
                let training = self.shown.runs.iter_mut().find(|known| known.id == run);
                if let Some(training) = training.and_then(|run| run.training.as_mut()) {
                    training.round = training.round.max(report.round);
                }
            }
            Event::Run { .. } | Event::Round { .. } => {}
        }
        Wish::Nothing
    }
}

/// `running`, or how it ended.
pub fn state_of(run: &Run) -> &str {
    match run.state {
        RunState::Pending => "pending",
        RunState::Starting => "starting",
        RunState::Running => "running",
        RunState::Finished => run.outcome.as_deref().unwrap_or("finished"),
    }
}

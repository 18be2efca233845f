//! Renders the view: federations at the top, nodes and runs of the chosen one below, then the reasons of its plan. Pure: the
//! same view and size give the same characters.

mod detail;
mod tables;
#[cfg(test)]
mod tests;

use ratatui::Frame;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};
use ratatui::{Terminal, TerminalOptions, Viewport};
use trellis_api::{State, Weight};
use trellis_terminal::clean;

use crate::view::{Connection, Pane, View};

/// Lines of lists if not all fit; the rest of the space is for nodes.
const MAX_FEDERATIONS: usize = 4;
const MAX_RUNS: usize = 4;
const MAX_REASONS: usize = 3;
/// The rule above a list and its column titles.
const HEAD_LINES: usize = 2;
const HELP: &str = " tab pane  ↑↓ line  enter details  esc back  q quit";
/// Wide enough to show all columns in a pipe.
const PLAIN_COLUMNS: u16 = 160;
const MAX_PLAIN_LINES: usize = 10_000;

/// Styles, without colours if the terminal has none.
#[derive(Debug, Clone, Copy)]
pub struct Palette {
    pub colours: bool,
}

impl Palette {
    fn of(self, color: Color) -> Style {
        if self.colours { Style::new().fg(color) } else { Style::new() }
    }

    fn good(self) -> Style {
        self.of(Color::Green)
    }

    fn bad(self) -> Style {
        self.of(Color::Red)
    }

    fn pending(self) -> Style {
        self.of(Color::Yellow)
    }

    fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn phase(self, phase: &str) -> Style {
        match phase {
            "ready" | "running" | "completed" => self.good(),
            "failed" | "absent" | "stopped" => self.bad(),
            "starting" | "stopping" | "pending" | "unknown" => self.pending(),
            _ => Style::new(),
        }
    }

    fn state(self, state: State) -> Style {
        match state {
            State::Ready => self.good(),
            State::Stalled => self.bad(),
            State::New | State::Reconciling | State::Leaving => self.pending(),
        }
    }
}

pub fn draw(frame: &mut Frame<'_>, view: &View, palette: Palette) {
    let [title, federations, nodes, runs, why, help] = areas(frame.area(), view);
    frame.render_widget(title_line(view, palette), title);
    frame.render_widget(Line::styled(HELP, palette.dim()), help);
    tables::federations(frame, federations, view, palette);
    if view.detail {
        let whole = Rect { height: nodes.height + runs.height + why.height, ..nodes };
        return detail::draw(frame, whole, view, palette);
    }
    tables::nodes(frame, nodes, view, palette);
    tables::runs(frame, runs, view, palette);
    reasons(frame, why, view, palette);
}

fn areas(area: Rect, view: &View) -> [Rect; 6] {
    let lines = |count: usize, max: usize| count.clamp(1, max.max(1));
    let roomy = area.height as usize >= needed(view);
    let max = |limit: usize, all: usize| if roomy { all } else { limit };
    let length = |lines: usize| Constraint::Length(u16::try_from(lines).unwrap_or(u16::MAX));
    Layout::vertical([
        length(1),
        length(HEAD_LINES + lines(view.federations.len(), max(MAX_FEDERATIONS, view.federations.len()))),
        Constraint::Min(HEAD_LINES as u16 + 1),
        length(HEAD_LINES + lines(view.details.runs.len(), max(MAX_RUNS, view.details.runs.len()))),
        length(1 + lines(view.details.why.len(), max(MAX_REASONS, view.details.why.len()))),
        length(1),
    ])
    .areas(area)
}

/// The lines that all data needs.
fn needed(view: &View) -> usize {
    let lists = [view.federations.len(), view.details.nodes.len(), view.details.runs.len()];
    let lists: usize = lists.iter().map(|count| HEAD_LINES + count.max(&1)).sum();
    1 + lists + 1 + view.details.why.len().max(1) + 1
}

fn title_line(view: &View, palette: Palette) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let (word, style) = match &view.connection {
        Connection::Connecting => ("connecting".to_owned(), palette.pending()),
        Connection::Live => ("live".to_owned(), palette.good()),
        Connection::Lost(why) => (format!("no connection: {}", clean(why)), palette.bad()),
    };
    Line::from(vec![
        Span::styled(" trellis top ", bold),
        Span::raw(format!(" {}  ", clean(&view.endpoint))),
        Span::styled(word, style),
    ])
}

/// A rule with a title, bold for the focused pane.
fn block(title: String, is_focus: bool) -> Block<'static> {
    let style = if is_focus { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
    Block::new().borders(Borders::TOP).title(Span::styled(format!(" {title} "), style))
}

fn reasons(frame: &mut Frame<'_>, area: Rect, view: &View, palette: Palette) {
    let lines: Vec<Line<'_>> = match view.details.why.is_empty() {
        true => vec![Line::styled(" nothing waits", palette.dim())],
        false => view.details.why.iter().map(|why| reason(why, palette)).collect(),
    };
    let block = block("why not more is done".to_owned(), false);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn reason(why: &trellis_api::Why, palette: Palette) -> Line<'static> {
    let style = match why.weight {
        Weight::Stuck => palette.bad(),
        Weight::Waits => palette.pending(),
        Weight::Note => palette.dim(),
    };
    Line::from(vec![
        Span::styled(format!(" {:<6}", why.weight.word()), style),
        Span::raw(format!(" {}: {}", clean(&why.about), clean(&why.text))),
    ])
}

/// The complete view as text, for a pipe, without the help for keys.
pub fn plain(view: &View) -> String {
    let height = needed(view).min(MAX_PLAIN_LINES);
    let text = text(view, PLAIN_COLUMNS, u16::try_from(height).unwrap_or(u16::MAX));
    text.lines().take(height - 1).map(|line| format!("{line}\n")).collect()
}

fn text(view: &View, width: u16, height: u16) -> String {
    let viewport = Viewport::Fixed(Rect::new(0, 0, width, height));
    let made = Terminal::with_options(TestBackend::new(width, height), TerminalOptions { viewport });
    let Ok(mut terminal) = made;
    let Ok(_) = terminal.draw(|frame| draw(frame, view, Palette { colours: false }));
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).filter_map(|x| buffer.cell((x, y))).map(|cell| cell.symbol()).collect::<String>();
    (0..height).map(|y| format!("{}\n", line(y).trim_end())).collect()
}

/// The highlighted line of a list.
fn line_of(view: &View, pane: Pane) -> Option<usize> {
    view.line(pane).filter(|_| pane == view.focus || pane == Pane::Federations)
}

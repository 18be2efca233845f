//! The lists of federations, nodes and runs.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};
use trellis_api::{FederationSummary, Node, Run, State};
use trellis_terminal::clean;

use super::{Palette, block, line_of};
use crate::view::{Curve, Pane, View, bars, state_of};

/// Narrower terminals show the beginning of names and ids; the details show them in full.
const WIDE: u16 = 110;
const ID_CHARS: u16 = 20;
const SHORT_ID_CHARS: u16 = 8;
/// Bars per curve.
const BARS: usize = 8;

pub fn federations(frame: &mut Frame<'_>, area: Rect, view: &View, palette: Palette) {
    let rows = view.federations.iter().map(|one| federation(one, palette));
    let wide = area.width >= WIDE;
    let widths = [
        Constraint::Length(if wide { 20 } else { 14 }),
        Constraint::Length(11),
        Constraint::Length(7),
        Constraint::Length(4),
        Constraint::Length(4),
        Constraint::Length(if wide { 14 } else { 7 }),
        Constraint::Fill(1),
    ];
    let titles = ["NAME", "STATE", "NODES", "BUSY", "RUNS", "RUNTIME", "WHY"];
    let list =
        List { pane: Pane::Federations, title: format!("federations {}", view.federations.len()), titles: &titles };
    list.draw(frame, area, view, rows.collect(), widths.to_vec(), "no federation yet: trellis up, or trellis apply");
}

fn federation(one: &FederationSummary, palette: Palette) -> Row<'static> {
    let nodes = &one.nodes;
    Row::new(vec![
        Cell::new(clean(&one.name)),
        Cell::new(word(one.state)).style(palette.state(one.state)),
        Cell::new(format!("{}/{}", nodes.ready, nodes.wanted)),
        Cell::new(nodes.busy.to_string()),
        Cell::new(one.active_runs.map_or_else(|| "?".to_owned(), |runs| runs.to_string())),
        Cell::new(clean(&one.runtime)),
        Cell::new(clean(&one.message)),
    ])
}

pub fn word(state: State) -> &'static str {
    match state {
        State::New => "new",
        State::Ready => "ready",
        State::Reconciling => "reconciling",
        State::Stalled => "stalled",
        State::Leaving => "leaving",
    }
}

pub fn nodes(frame: &mut Frame<'_>, area: Rect, view: &View, palette: Palette) {
    let ready = view.details.nodes.iter().filter(|node| node.phase == "ready").count();
    let title = format!("nodes {ready} of {} ready", view.details.nodes.len());
    let rows = view.details.nodes.iter().map(|node| self::node(node, palette));
    let wide = area.width >= WIDE;
    let widths = [
        Constraint::Length(if wide { 20 } else { 14 }),
        Constraint::Length(if wide { 14 } else { 8 }),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Length(5),
        Constraint::Length(if wide { 14 } else { 9 }),
        Constraint::Fill(1),
    ];
    let titles = ["NODE", "SITE", "PHASE", "DOES", "SHARD", "VERSION", "WHY"];
    let list = List { pane: Pane::Nodes, title, titles: &titles };
    list.draw(frame, area, view, rows.collect(), widths.to_vec(), "no nodes");
}

fn node(node: &Node, palette: Palette) -> Row<'static> {
    Row::new(vec![
        Cell::new(clean(&node.name)),
        Cell::new(clean(&node.site)),
        Cell::new(clean(&node.phase)).style(palette.phase(&node.phase)),
        Cell::new(does(node)),
        Cell::new(node.shard.map_or_else(|| "-".to_owned(), |shard| shard.to_string())),
        Cell::new(node.version.as_deref().map_or_else(|| "-".to_owned(), clean)),
        Cell::new(node.why.as_deref().map(clean).unwrap_or_default()),
    ])
}

/// What a node does now, if the SuperLink reports it.
pub fn does(node: &Node) -> &'static str {
    match (node.draining, node.busy) {
        (true, _) => "drains",
        (_, Some(true)) => "works",
        (_, Some(false)) => "waits",
        (_, None) => "-",
    }
}

pub fn runs(frame: &mut Frame<'_>, area: Rect, view: &View, palette: Palette) {
    let none = Curve::default();
    let curve = |run: &Run| view.details.curves.get(&run.id).unwrap_or(&none);
    let rows = view.details.runs.iter().map(|one| run(one, curve(one), palette));
    let id = if area.width >= WIDE { ID_CHARS } else { SHORT_ID_CHARS };
    let widths = [
        Constraint::Length(id),
        Constraint::Fill(1),
        Constraint::Length(9),
        Constraint::Length(7),
        Constraint::Length(16),
        Constraint::Length(16),
    ];
    let titles = ["RUN", "APP", "STATE", "ROUND", "LOSS", "ACCURACY"];
    let list = List { pane: Pane::Runs, title: format!("runs {}", view.details.runs.len()), titles: &titles };
    list.draw(frame, area, view, rows.collect(), widths.to_vec(), "no runs yet: trellis run, or flwr run");
}

fn run(run: &Run, curve: &Curve, palette: Palette) -> Row<'static> {
    let state = state_of(run);
    Row::new(vec![
        Cell::new(clean(&run.id)),
        Cell::new(clean(&run.app)),
        Cell::new(clean(state)).style(palette.phase(state)),
        Cell::new(round(run)),
        Cell::new(measure(&curve.losses())),
        Cell::new(measure(&curve.accuracies())),
    ])
}

/// `3/10`, or `3` if the number of rounds is unknown.
pub fn round(run: &Run) -> String {
    match &run.training {
        Some(training) if training.rounds_planned > 0 => format!("{}/{}", training.round, training.rounds_planned),
        Some(training) if training.round > 0 => training.round.to_string(),
        _ => "-".to_owned(),
    }
}

fn measure(values: &[f64]) -> String {
    match values.last() {
        Some(last) => format!("{last:<7.4} {}", bars(values, BARS)),
        None => "-".to_owned(),
    }
}

struct List<'a> {
    pane: Pane,
    title: String,
    titles: &'a [&'static str],
}

impl List<'_> {
    fn draw(
        self,
        frame: &mut Frame<'_>,
        area: Rect,
        view: &View,
        rows: Vec<Row<'static>>,
        widths: Vec<Constraint>,
        nothing: &'static str,
    ) {
        let dim = Style::new().add_modifier(Modifier::DIM);
        let block = block(self.title, view.focus == self.pane);
        if rows.is_empty() {
            return frame.render_widget(Paragraph::new(format!(" {nothing}")).style(dim).block(block), area);
        }
        let mark = if view.focus == self.pane { Modifier::REVERSED } else { Modifier::BOLD };
        let table = Table::new(rows, widths)
            .header(Row::new(self.titles.to_vec()).style(dim))
            .block(block)
            .highlight_symbol("›")
            .highlight_spacing(ratatui::widgets::HighlightSpacing::Always)
            .row_highlight_style(Style::new().add_modifier(mark));
        let mut state = TableState::new().with_selected(line_of(view, self.pane));
        frame.render_stateful_widget(table, area, &mut state);
    }
}

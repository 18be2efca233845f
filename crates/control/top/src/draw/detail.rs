//! All fields of the selected line.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};
use trellis_api::{FederationSummary, Node, Run};
use trellis_terminal::{clean, moment};

use super::tables::{does, round, word};
use super::{Palette, block, reason};
use crate::view::{Curve, Pane, View, bars, state_of};

/// Width of the column of names.
const NAME_CHARS: usize = 12;

pub fn draw(frame: &mut Frame<'_>, area: Rect, view: &View, palette: Palette) {
    let line = view.line(view.focus);
    let width = usize::from(area.width).saturating_sub(NAME_CHARS + 2);
    let (title, lines) = match (view.focus, line) {
        (Pane::Federations, Some(line)) => federation(&view.federations[line], view, palette),
        (Pane::Nodes, Some(line)) => node(&view.details.nodes[line]),
        (Pane::Runs, Some(line)) => run(&view.details.runs[line], view, width),
        (_, None) => ("nothing to show".to_owned(), Vec::new()),
    };
    let text = Paragraph::new(lines).wrap(Wrap { trim: false }).block(block(title, true));
    frame.render_widget(text, area);
}

fn entry(name: &str, value: &str) -> Line<'static> {
    Line::raw(format!(" {name:<NAME_CHARS$} {}", clean(value)))
}

/// Omits unknown and empty values.
fn known(entries: &[(&str, Option<String>)]) -> Vec<Line<'static>> {
    let known = entries.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    known.filter(|(_, value)| !value.is_empty()).map(|(name, value)| entry(name, value)).collect()
}

fn federation(one: &FederationSummary, view: &View, palette: Palette) -> (String, Vec<Line<'static>>) {
    let nodes = one.nodes;
    let mut lines = known(&[
        ("state", Some(word(one.state).to_owned())),
        ("why", Some(one.message.clone())),
        ("runtime", Some(one.runtime.clone())),
        ("revision", Some(format!("{}, of {}", one.revision, moment(one.changed_at)))),
        ("sites", Some(one.sites.to_string())),
        (
            "nodes",
            Some(format!(
                "{} wanted, {} there, {} ready, {} at work",
                nodes.wanted, nodes.present, nodes.ready, nodes.busy
            )),
        ),
    ]);
    lines.push(Line::raw(""));
    lines.extend(view.details.why.iter().map(|why| reason(why, palette)));
    (format!("federation {}", clean(&one.name)), lines)
}

fn node(node: &Node) -> (String, Vec<Line<'static>>) {
    let lines = known(&[
        ("phase", Some(node.phase.clone())),
        ("why", node.why.clone()),
        ("does", Some(does(node).to_owned())),
        ("pool", Some(node.pool.clone())),
        ("site", Some(node.site.clone())),
        ("shard", node.shard.map(|shard| shard.to_string())),
        ("version", node.version.clone()),
        ("id", node.id.clone()),
        ("wanted", Some(if node.wanted { "yes" } else { "no: it leaves" }.to_owned())),
        ("up to date", Some(if node.updated { "yes" } else { "no: it is replaced when its turn comes" }.to_owned())),
        ("since", node.since_ms.map(|since| moment(since as f64 / 1e3))),
    ]);
    (format!("node {}", clean(&node.name)), lines)
}

fn run(run: &Run, view: &View, width: usize) -> (String, Vec<Line<'static>>) {
    let none = Curve::default();
    let curve = view.details.curves.get(&run.id).unwrap_or(&none);
    let training = run.training.as_ref();
    let measured = |values: Vec<f64>| {
        let last = values.last()?;
        Some(format!("{last:.4}  {}", bars(&values, width.saturating_sub(10))))
    };
    let metrics = training.map(|training| {
        let each = training.metrics.iter().map(|(name, value)| format!("{name} {value:.4}"));
        each.collect::<Vec<_>>().join(", ")
    });
    let lines = known(&[
        ("app", Some(format!("{} {}", run.app, run.version))),
        ("state", Some(state_of(run).to_owned())),
        ("why", Some(run.details.clone())),
        ("trained by", Some(if run.native { "Trellis itself" } else { "the ServerApp of the app" }.to_owned())),
        ("strategy", training.map(|training| training.strategy.clone())),
        ("round", Some(round(run))),
        ("loss", measured(curve.losses())),
        ("accuracy", measured(curve.accuracies())),
        ("metrics", metrics),
        ("model", training.and_then(|training| training.checkpoint.clone())),
        ("submitted", Some(moment(run.submitted_at))),
        ("started", run.started_at.map(moment)),
        ("finished", run.finished_at.map(moment)),
    ]);
    (format!("run {}", clean(&run.id)), lines)
}

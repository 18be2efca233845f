//! `trellis model ls`

use std::collections::BTreeMap;

use serde::Serialize;
use trellis_models::{Entry, Manifest, Metrics};
use trellis_terminal::size::rounded;
use trellis_terminal::{Cell, Column, Format, OutputArgs, Table, Tone, clean, explain, moment, remark};

use super::elsewhere::{self, Elsewhere};
use super::saved::{self, Saved};
use super::shelf::Shelves;
use super::{PlaceArgs, failure};
use crate::remote::CommandError;

/// How many metrics fit into a line.
const SHOWN_METRICS: usize = 3;

#[derive(Debug, Serialize)]
struct Listing {
    models: String,
    checkpoints: Vec<Line>,
    /// Checkpoints on other machines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    elsewhere: Vec<Elsewhere>,
    /// Files of ServerApps in Python.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    saved: Vec<Saved>,
}

/// A checkpoint, as described by its manifest.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(skip_serializing_if = "String::is_empty")]
    federation: String,
    run_id: String,
    round: u64,
    path: String,
    latest: bool,
    #[serde(flatten)]
    content: Content,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Content {
    Whole(Box<Summary>),
    Unusable { problem: String },
}

#[derive(Debug, Serialize)]
struct Summary {
    rounds_planned: u64,
    #[serde(rename = "final")]
    is_final: bool,
    strategy: String,
    saved_at: f64,
    bytes: u64,
    /// The numeric metrics.
    train: Metrics,
    evaluate: Metrics,
}

pub(super) fn run(
    run: Option<&str>,
    federation: Option<&str>,
    place: &PlaceArgs,
    output: &OutputArgs,
) -> Result<(), CommandError> {
    let Shelves { place: models, all: mut shelves } = Shelves::at(place)?;
    if let Some(name) = federation.filter(|name| !name.is_empty()) {
        shelves.retain(|shelf| shelf.federation == name);
    }
    let mut entries = Vec::new();
    for shelf in &shelves {
        let found = shelf.store.list().map_err(failure)?;
        entries.extend(found.into_iter().map(|entry| (shelf.federation.clone(), entry)));
    }
    if let Some(run) = run {
        entries.retain(|(_, entry)| entry.run_id.starts_with(run));
    }
    sort_by_age(&mut entries);
    let (mut elsewhere, mut saved) = match place.models {
        Some(_) => (Vec::new(), Vec::new()),
        None => (elsewhere::list(run)?, saved::list(run.unwrap_or_default())),
    };
    let is_meant = |of: &str| federation.is_none_or(|name| name.is_empty() || of == name);
    elsewhere.retain(|one| is_meant(&one.federation));
    saved.retain(|one| is_meant(&one.federation));
    let listing = Listing { checkpoints: entries.into_iter().map(Line::from).collect(), models, elsewhere, saved };
    output.print(&listing, || match (listing.checkpoints.as_slice(), run) {
        ([], _) if !listing.saved.is_empty() => {}
        ([], Some(run)) => remark(&format!("No checkpoints of run {run} in {}.", listing.models)),
        ([], None) => remark(&format!("No checkpoints in {}; select another directory with --models.", listing.models)),
        (lines, _) => table(lines).print(),
    });
    if output.format == Format::Table {
        listing.elsewhere.iter().for_each(|one| remark(&clean(&one.words())));
        listing.saved.iter().for_each(|one| remark(&clean(&one.words())));
    }
    Ok(())
}

/// Sorted by run, the most recently saved run last; within a run by round.
fn sort_by_age(entries: &mut [(String, Entry)]) {
    let saved_at = |entry: &Entry| entry.manifest.as_ref().map_or(0.0, |manifest| manifest.saved_at);
    let mut newest: BTreeMap<String, f64> = BTreeMap::new();
    for (_, entry) in entries.iter() {
        let time = newest.entry(entry.run_id.clone()).or_default();
        *time = time.max(saved_at(entry));
    }
    entries.sort_by(|(_, a), (_, b)| {
        let by_run = newest[&a.run_id].total_cmp(&newest[&b.run_id]).then_with(|| a.run_id.cmp(&b.run_id));
        by_run.then_with(|| a.round.cmp(&b.round))
    });
}

impl From<(String, Entry)> for Line {
    fn from((federation, entry): (String, Entry)) -> Line {
        let content = match entry.manifest {
            Ok(manifest) => Content::Whole(Box::new(manifest.into())),
            Err(error) => Content::Unusable { problem: explain(&error) },
        };
        let path = entry.path.display().to_string();
        Line { federation, run_id: entry.run_id, round: entry.round, path, latest: entry.latest, content }
    }
}

impl From<Manifest> for Summary {
    fn from(manifest: Manifest) -> Summary {
        let finite = |metrics: Metrics| metrics.into_iter().filter(|(_, number)| number.is_finite()).collect();
        Summary {
            bytes: manifest.bytes(),
            rounds_planned: manifest.rounds_planned,
            is_final: manifest.is_final,
            strategy: manifest.strategy,
            saved_at: manifest.saved_at,
            train: finite(manifest.metrics.train),
            evaluate: finite(manifest.metrics.evaluate),
        }
    }
}

fn table(lines: &[Line]) -> Table {
    let mut table = Table::new([
        Column::cut("FEDERATION"),
        Column::whole("RUN"),
        Column::whole("ROUND"),
        Column::cut("STRATEGY"),
        Column::whole("SAVED"),
        Column::whole("SIZE"),
        Column::whole("STATE"),
        Column::cut("METRICS"),
    ]);
    for line in lines {
        let cells: Vec<Cell> = match &line.content {
            Content::Unusable { problem } => vec![
                line.federation.as_str().into(),
                line.run_id.as_str().into(),
                line.round.to_string().into(),
                "".into(),
                "".into(),
                "".into(),
                Cell::new("damaged", Tone::Bad),
                problem.as_str().into(),
            ],
            Content::Whole(summary) => vec![
                line.federation.as_str().into(),
                line.run_id.as_str().into(),
                format!("{}/{}", line.round, summary.rounds_planned).into(),
                summary.strategy.as_str().into(),
                moment(summary.saved_at).into(),
                rounded(summary.bytes).into(),
                state(line.latest, summary.is_final),
                metrics(summary).into(),
            ],
        };
        table.row(cells);
    }
    table
}

fn state(latest: bool, is_final: bool) -> Cell {
    match (is_final, latest) {
        (true, _) => Cell::new("final", Tone::Good),
        (false, true) => Cell::new("latest", Tone::Plain),
        (false, false) => Cell::new("", Tone::Quiet),
    }
}

/// Metrics of the evaluation, or else of the training.
fn metrics(summary: &Summary) -> String {
    let metrics = if summary.evaluate.is_empty() { &summary.train } else { &summary.evaluate };
    let shown: Vec<String> =
        metrics.iter().take(SHOWN_METRICS).map(|(name, number)| format!("{name} {number:.4}")).collect();
    shown.join(", ")
}

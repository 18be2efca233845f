//! `trellis model ls`

use std::collections::BTreeMap;

use serde::Serialize;
use trellis_models::{Entry, Manifest, Metrics};

use super::elsewhere::{self, Elsewhere};
use super::shelf::Shelves;
use super::{PlaceArgs, trouble};
use crate::remote::{Cell, Column, Format, OutputArgs, Table, Tone, Trouble, clean, explain, moment, remark};
use crate::settings::size::rounded;

/// How many metrics fit into a line.
const SHOWN_METRICS: usize = 3;

#[derive(Debug, Serialize)]
struct Listing {
    models: String,
    checkpoints: Vec<Line>,
    /// Those that are not on this machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    elsewhere: Vec<Elsewhere>,
}

/// A checkpoint, as much as its manifest tells.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(skip_serializing_if = "String::is_empty")]
    federation: String,
    run_id: String,
    round: u64,
    path: String,
    latest: bool,
    #[serde(flatten)]
    told: Told,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Told {
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
    /// Those that are numbers.
    train: Metrics,
    evaluate: Metrics,
}

pub(super) fn run(
    run: Option<&str>,
    federation: Option<&str>,
    place: &PlaceArgs,
    output: &OutputArgs,
) -> Result<(), Trouble> {
    let Shelves { place: models, all: mut shelves } = Shelves::at(place)?;
    if let Some(name) = federation.filter(|name| !name.is_empty()) {
        shelves.retain(|shelf| shelf.federation == name);
    }
    let mut entries = Vec::new();
    for shelf in &shelves {
        let found = shelf.store.list().map_err(trouble)?;
        entries.extend(found.into_iter().map(|entry| (shelf.federation.clone(), entry)));
    }
    if let Some(run) = run {
        entries.retain(|(_, entry)| entry.run_id.starts_with(run));
    }
    sort_by_age(&mut entries);
    let mut elsewhere = if place.models.is_none() { elsewhere::list(run)? } else { Vec::new() };
    elsewhere.retain(|one| federation.is_none_or(|name| name.is_empty() || one.federation == name));
    let listing = Listing { checkpoints: entries.into_iter().map(Line::from).collect(), models, elsewhere };
    output.print(&listing, || match (listing.checkpoints.as_slice(), run) {
        ([], Some(run)) => remark(&format!("No checkpoints of run {run} in {}.", listing.models)),
        ([], None) => remark(&format!("No checkpoints in {}; --models names another directory.", listing.models)),
        (lines, _) => table(lines).print(),
    });
    if output.format == Format::Table {
        listing.elsewhere.iter().for_each(|one| remark(&clean(&one.words())));
    }
    Ok(())
}

/// By run, the one that saved last at the end; within a run by round.
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
        let told = match entry.manifest {
            Ok(manifest) => Told::Whole(Box::new(manifest.into())),
            Err(error) => Told::Unusable { problem: explain(&error) },
        };
        let path = entry.path.display().to_string();
        Line { federation, run_id: entry.run_id, round: entry.round, path, latest: entry.latest, told }
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
    let column = |title, may_be_cut| Column { title, may_be_cut };
    let mut table = Table::new([
        column("FEDERATION", true),
        column("RUN", false),
        column("ROUND", false),
        column("STRATEGY", true),
        column("SAVED", false),
        column("SIZE", false),
        column("STATE", false),
        column("METRICS", true),
    ]);
    for line in lines {
        let cells: Vec<Cell> = match &line.told {
            Told::Unusable { problem } => vec![
                line.federation.as_str().into(),
                line.run_id.as_str().into(),
                line.round.to_string().into(),
                "".into(),
                "".into(),
                "".into(),
                Cell::new("damaged", Tone::Bad),
                problem.as_str().into(),
            ],
            Told::Whole(summary) => vec![
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

/// Those of the evaluation, or of the training where there was none.
fn metrics(summary: &Summary) -> String {
    let metrics = if summary.evaluate.is_empty() { &summary.train } else { &summary.evaluate };
    let shown: Vec<String> =
        metrics.iter().take(SHOWN_METRICS).map(|(name, number)| format!("{name} {number:.4}")).collect();
    shown.join(", ")
}

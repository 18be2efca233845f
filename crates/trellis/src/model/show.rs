//! `trellis model show`

use serde::Serialize;
use trellis_models::{Checkpoint, Loaded, Manifest, Metrics, Origin};
use trellis_strategy::Slot;
use trellis_terminal::size::rounded;
use trellis_terminal::{Column, OutputArgs, Table, clean, explain, moment, print};

use super::{PlaceArgs, WhichArgs};
use crate::remote::CommandError;

#[derive(Debug, Serialize)]
struct Shown<'a> {
    path: String,
    /// All bytes were compared with the hashes of the manifest.
    verified: bool,
    #[serde(flatten)]
    manifest: &'a Manifest,
    elements: usize,
    arrays: Vec<Array<'a>>,
    /// Newer checkpoints that cannot be used.
    skipped: Vec<Unusable>,
}

#[derive(Debug, Serialize)]
struct Array<'a> {
    name: &'a str,
    dtype: &'static str,
    shape: &'a [usize],
    bytes: usize,
}

#[derive(Debug, Serialize)]
struct Unusable {
    path: String,
    problem: String,
}

pub(super) fn run(which: &WhichArgs, place: &PlaceArgs, output: &OutputArgs) -> Result<(), CommandError> {
    let Loaded { checkpoint, path, skipped } = which.open(place)?;
    let slots = &checkpoint.model.layout.0;
    let shown = Shown {
        path: path.display().to_string(),
        verified: true,
        manifest: &checkpoint.manifest,
        elements: slots.iter().map(Slot::elements).sum(),
        arrays: slots.iter().map(Array::from).collect(),
        skipped: skipped
            .iter()
            .map(|skipped| Unusable { path: skipped.path.display().to_string(), problem: explain(&skipped.error) })
            .collect(),
    };
    output.print(&shown, || {
        let lines = facts(&shown, &checkpoint);
        print(&lines.iter().map(|(title, text)| format!("{title:<12}{}\n", clean(text))).collect::<String>());
        print("\n");
        table(&shown.arrays).print();
    });
    Ok(())
}

impl<'a> From<&'a Slot> for Array<'a> {
    fn from(slot: &'a Slot) -> Array<'a> {
        Array { name: &slot.name, dtype: slot.dtype.name(), shape: &slot.shape, bytes: slot.bytes() }
    }
}

/// One line each.
fn facts(shown: &Shown<'_>, checkpoint: &Checkpoint) -> Vec<(&'static str, String)> {
    let manifest = shown.manifest;
    let end = if manifest.is_final { ", the last" } else { "" };
    let mut facts = vec![
        ("Run", manifest.run_id.clone()),
        ("Round", format!("{} of {}{end}", manifest.round, manifest.rounds_planned)),
        ("Strategy", format!("{}, seed {}", manifest.strategy, manifest.seed)),
        ("App", app(manifest)),
        ("Lineage", lineage(&manifest.lineage())),
        ("Training", metrics(&manifest.metrics.train)),
        ("Evaluation", metrics(&manifest.metrics.evaluate)),
        ("Remembers", remembered(checkpoint)),
        ("Saved", format!("{}, by trellis {}", moment(manifest.saved_at), manifest.trellis_version)),
        ("Path", shown.path.clone()),
    ];
    for (name, file) in &manifest.files {
        facts.push(("File", format!("{name}, {}, SHA-256 {} (verified)", rounded(file.bytes), file.sha256)));
    }
    let bytes: usize = shown.arrays.iter().map(|array| array.bytes).sum();
    let (arrays, elements) = (shown.arrays.len(), shown.elements);
    facts.push(("Model", format!("{arrays} arrays, {elements} elements, {}", rounded(bytes as u64))));
    facts
}

fn app(manifest: &Manifest) -> String {
    let app = &manifest.app;
    match app.fab_id.is_empty() {
        true => "-".to_owned(),
        false => format!("{} {} ({})", app.fab_id, app.fab_version, app.fab_hash),
    }
}

fn lineage(origins: &[&Origin]) -> String {
    let steps: Vec<String> = origins.iter().map(|origin| format!("{}@{}", origin.run, origin.round)).collect();
    match steps.is_empty() {
        true => "began with this run".to_owned(),
        false => format!("resumed from {}", steps.join(", that from ")),
    }
}

fn metrics(metrics: &Metrics) -> String {
    let shown: Vec<String> = metrics.iter().map(|(name, number)| format!("{name} {number}")).collect();
    if shown.is_empty() { "-".to_owned() } else { shown.join(", ") }
}

/// State with which the strategy can resume.
fn remembered(checkpoint: &Checkpoint) -> String {
    let state = &checkpoint.state;
    let models = state.models.keys().cloned();
    let numbers = state.numbers.iter().map(|(name, number)| format!("{name} {number}"));
    let all: Vec<String> = models.chain(numbers).collect();
    if all.is_empty() { "only the model".to_owned() } else { all.join(", ") }
}

fn table(arrays: &[Array<'_>]) -> Table {
    let mut table =
        Table::new([Column::cut("ARRAY"), Column::whole("TYPE"), Column::whole("SHAPE"), Column::whole("BYTES")]);
    for array in arrays {
        let shape: Vec<String> = array.shape.iter().map(usize::to_string).collect();
        let shape = if shape.is_empty() { "scalar".to_owned() } else { shape.join(" x ") };
        table.row([array.name.into(), array.dtype.into(), shape.into(), array.bytes.to_string().into()]);
    }
    table
}

//! Reports of plans for the API. Applies and stores nothing.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use similar::TextDiff;
use trellis_api::{PlanReport, PlannedAction, SiteTemplate, Weight, Why};
use trellis_clock::now_ms;
use trellis_plan::{Action, DesiredState, Ledger, Observed, Planned, Preview, Rendering, Verb, blueprints};
use trellis_spec::{Federation, Name, to_yaml};

use super::Refusal;
use super::difference::differences;
use super::document::Document;
use super::fleet::PreviewFleet;
use super::mask::mask;
use super::shared::Shared;
use super::view::View;

/// The changes that `apply` would make for a document. The report contains values of `env` only if `reveal` is set.
pub async fn plan(shared: &Shared, document: Document, reveal: bool) -> Result<PlanReport, Refusal> {
    let view = shared.views.get(&document.federation.name);
    if view.as_ref().is_some_and(|view| view.leaving) {
        return Err(Refusal::Conflict(format!("federation {} is being deleted", document.federation.name)));
    }
    let federation = Arc::new(document.federation);
    let before = view.as_ref().map(|view| view.document(reveal)).unwrap_or_default();
    let diff = diff(&before, &to_yaml(&shown(&federation, reveal)));
    let desired = DesiredState::Federation(Arc::clone(&federation));
    let mut report = preview(shared, &federation.name, desired, view, reveal).await?;
    report.report.sort();
    report.promises_lost = federation.promises_lost();
    report.warnings = document.warnings;
    report.diff = diff;
    Ok(with_text(report))
}

/// The current plan of a federation.
pub async fn current(shared: &Shared, view: View, reveal: bool) -> Result<PlanReport, Refusal> {
    let desired = match (&view.federation, view.leaving) {
        (Some(federation), false) => DesiredState::Federation(Arc::clone(federation)),
        _ => DesiredState::Deleted(view.name.clone()),
    };
    let mut report = preview(shared, &view.name.clone(), desired, Some(view.clone()), reveal).await?;
    report.promises_lost = view.federation.iter().flat_map(|federation| federation.promises_lost()).collect();
    Ok(with_text(report))
}

fn shown(federation: &Federation, reveal: bool) -> Cow<'_, Federation> {
    if reveal { Cow::Borrowed(federation) } else { Cow::Owned(mask(federation)) }
}

async fn preview(
    shared: &Shared,
    name: &Name,
    desired: DesiredState,
    view: Option<View>,
    reveal: bool,
) -> Result<PlanReport, Refusal> {
    let store = shared.registry.store(name);
    let ledger = match &view {
        Some(_) => {
            let stored = store.read().await;
            stored.map_err(|error| Refusal::Broken(error.to_string()))?.ledger
        }
        None => Ledger::default(),
    };
    let sites: BTreeSet<Name> = ledger.applied.keys().map(|id| id.site.clone()).collect();
    let federation = match &desired {
        DesiredState::Federation(federation) => Some(federation.as_ref()),
        DesiredState::Deleted(_) => None,
    };
    let remembered = shared.remember(name, federation, sites.clone()).await;
    let remembered = remembered.map_err(|error| Refusal::Broken(error.to_string()))?;
    let before = view.as_ref().and_then(|view| view.federation.as_deref());
    let (drivers, unobserved) = match federation {
        Some(federation) => shared.sites.preview_drivers(federation, before, &sites, &remembered),
        None => (shared.sites.drivers(None, &remembered), Vec::new()),
    };
    let fleet = Arc::new(PreviewFleet(view.as_ref().and_then(View::link_nodes)));
    let mut controller = shared.controller(name, store, Shared::clock(), fleet);
    controller.drivers = drivers;
    controller.settings.run_metrics = view.as_ref().map(|view| view.runs.run_metrics()).unwrap_or_default();
    let Preview { planned, observed } = controller.preview(&desired, &ledger).await;
    let renderings = federation
        .map(|federation| controller.render(&shown(federation, reveal), &observed, &ledger))
        .unwrap_or_default();
    let reasons = before.map(|before| reasons(before, &planned, &observed, &ledger, &controller.inventory()));
    let mut report = PlanReport {
        federation: name.to_string(),
        exists: view.is_some(),
        diff: String::new(),
        actions: planned.actions.iter().map(action).collect(),
        report: planned.report.iter().cloned().chain(reasons.into_iter().flatten()).chain(unobserved).collect(),
        promises_lost: Vec::new(),
        warnings: Vec::new(),
        templates: renderings.into_iter().map(|(site, rendering)| template(&site, rendering)).collect(),
        text: planned_text(&planned),
        status: planned.status,
    };
    report.report.sort();
    report.report.dedup();
    Ok(report)
}

/// The changed fields of each part that is replaced, if the previous spec is known.
fn reasons(
    before: &Federation,
    planned: &Planned,
    observed: &Observed,
    ledger: &Ledger,
    inventory: &trellis_plan::Inventory,
) -> Vec<Why> {
    let known = blueprints(before, observed, inventory, ledger, now_ms());
    let why = |action: &Action| {
        let Verb::Replace(desired) = &action.verb else { return None };
        let running = observed.presence(&desired.id).generation();
        let text = match known.get(&desired.id).filter(|known| Some(known.generation) == running) {
            Some(known) => {
                format!("replaced because of changes: {}", differences(&known.spec, &desired.spec).join(", "))
            }
            None => {
                "replaced: it was created from an earlier document or by another version of this program".to_owned()
            }
        };
        Some(Why { weight: Weight::Note, about: desired.id.part.name(), text })
    };
    planned.actions.iter().filter_map(why).collect()
}

fn template(site: &Name, Rendering { title, text }: Rendering) -> SiteTemplate {
    SiteTemplate { site: site.to_string(), title, text }
}

fn action(action: &Action) -> PlannedAction {
    let shard = match &action.verb {
        Verb::Create(desired) | Verb::Replace(desired) => desired.spec.shard(),
        Verb::Restart { .. } | Verb::Drain { .. } | Verb::Delete { .. } => None,
    };
    PlannedAction {
        verb: action.verb.word().to_owned(),
        what: action.id().part.name(),
        site: action.id().site.to_string(),
        shard,
    }
}

fn diff(before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    TextDiff::from_lines(before, after).unified_diff().header("now", "wanted").to_string()
}

/// The actions and the status, without the report.
fn planned_text(planned: &Planned) -> String {
    Planned { report: Vec::new(), ..planned.clone() }.to_string()
}

/// Adds the report as text.
fn with_text(report: PlanReport) -> PlanReport {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match (&report.diff, report.exists) {
        (diff, false) => writeln!(text, "federation {} is new\n\n{diff}", report.federation),
        (diff, true) if diff.is_empty() => {
            writeln!(text, "federation {}: its document does not change", report.federation)
        }
        (diff, true) => writeln!(text, "federation {}: its document changes\n\n{diff}", report.federation),
    };
    text += &report.text;
    let whys = report.report.iter().map(|why| format!("{}: {}: {}", why.weight.word(), why.about, why.text));
    section(&mut text, "report", whys.collect());
    section(&mut text, "guarantees that this runtime does not give", report.promises_lost.clone());
    section(&mut text, "warnings", report.warnings.clone());
    PlanReport { text, ..report }
}

fn section(text: &mut String, title: &str, lines: Vec<String>) {
    if !lines.is_empty() {
        let _ = writeln!(text, "{title}");
    }
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

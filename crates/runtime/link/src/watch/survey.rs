//! Reads the state for the watch: values at a scrape, trainings at the start, finished runs.

use std::collections::HashMap;

use trellis_core::Seconds;
use trellis_core::id::RunId;
use trellis_core::message::Envelope;
use trellis_core::object::{self, Scope};
use trellis_core::port::Read;
use trellis_core::refusal::Refusal;
use trellis_core::run::State;
use trellis_front::TlsSettings;

use super::metrics::{Certificate, Snapshot};
use super::{Facts, Instruction, Resumed, numbers, round_of};
use crate::api::{app, training};
use crate::link::Link;

/// Collects the values of a scrape.
pub fn snapshot(link: &Link) -> Snapshot {
    Snapshot {
        census: link.read(|view| view.census(link.now())).ok(),
        store_works: link.store().is_healthy(),
        store_queue_length: link.store().queue_length(),
        certificates: link.tls.iter().map(certificate).collect(),
    }
}

fn certificate(tls: &TlsSettings) -> Certificate {
    Certificate { role: "server", expires_at: tls.expires_at() as f64 }
}

/// Resumes the trainings that were running when the previous process ended.
pub fn resume(link: &Link) -> Result<(), Refusal> {
    let now = link.now();
    for run in link.read(|view| view.unfinished_runs())? {
        if *run.state() != State::Running {
            continue;
        }
        let (facts, (round, sent)) = link.read(|view| {
            let facts = view.fab(&run.fab_hash)?.map_or_else(Facts::default, |fab| app::facts(&run, &fab));
            Ok((facts, newest_round(view, run.id)?))
        })?;
        let awaited: Vec<_> = sent.iter().map(Instruction::of).collect();
        let since = run.running_at.unwrap_or(now);
        let round_since = sent.iter().map(|sent| sent.created_at).fold(now, Seconds::min);
        link.watch.run_resumed(run.id, facts, &Resumed { since, awaited: &awaited, round, round_since }, now);
    }
    Ok(())
}

/// Returns the instructions without a collected reply, except those of abandoned rounds.
fn newest_round(view: &dyn Read, run: RunId) -> Result<(Option<u64>, Vec<Envelope>), Refusal> {
    // The instructions of a round share their content: read it once.
    let (mut rounds, mut sent) = (HashMap::new(), Vec::new());
    let scope = Scope::of_app(run);
    for id in view.instructions_of_run(run)? {
        let Some(instruction) = view.instruction(id)? else { continue };
        let content = view.children(scope, id)?;
        let round = match rounds.get(&content) {
            Some(round) => *round,
            None => *rounds.entry(content).or_insert(round_of(&numbers(view, &object::tree(view, scope, id)?))),
        };
        sent.push((round, instruction.envelope));
    }
    let newest = sent.iter().filter_map(|(round, _)| *round).max();
    sent.retain(|(round, _)| round.is_none() || *round == newest);
    Ok((newest, sent.into_iter().map(|(_, envelope)| envelope).collect()))
}

/// Reports finished runs to the watch.
pub fn finished(link: &Link, runs: Vec<RunId>) {
    for id in runs {
        if let Ok(Some(run)) = link.read(|view| view.run(id))
            && let State::Finished { outcome, .. } = run.state()
        {
            link.watch.run_finished(id, *outcome, run.finished_at.unwrap_or_else(|| link.now()));
        }
    }
    training::store_observed(link);
}

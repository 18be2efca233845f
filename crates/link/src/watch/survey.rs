//! What the watch learns by looking at the state: how things stand at a scrape, where trainings stand at the start, which
//! runs have ended.

use std::collections::BTreeMap;

use trellis_core::id::RunId;
use trellis_core::refusal::Refusal;
use trellis_core::run::State;

use super::metrics::{Counts, NodeCount, Snapshot, Version};
use super::{Facts, Instruction, Resumed, numbers, round_of};
use crate::api::app;
use crate::front::TlsSettings;
use crate::link::Link;

/// How things stand now.
pub fn snapshot(link: &Link) -> Snapshot {
    Snapshot {
        counts: counts(link).ok(),
        store_works: link.store().works(),
        store_queue_length: link.store().queue_length(),
        certificates: link.tls.as_ref().map(TlsSettings::in_use).unwrap_or_default(),
    }
}

fn counts(link: &Link) -> Result<Counts, Refusal> {
    let now = link.now();
    let census = link.read(|view| view.census(now))?;
    let mut nodes = BTreeMap::new();
    for (client, count) in &census.nodes_online_by_client {
        let version = Version::announced(client.split_once(' ').map(|(_, version)| version));
        *nodes.entry(("online", version)).or_insert(0) += count;
    }
    nodes.insert(("offline", Version::Unknown), census.nodes_offline);
    nodes.insert(("registered", Version::Unknown), census.nodes_registered);
    let finished = census.runs_completed + census.runs_failed + census.runs_stopped;
    let (pending, starting, running) = (census.runs_pending, census.runs_starting, census.runs_running);
    Ok(Counts {
        nodes: nodes.into_iter().map(|((state, version), count)| NodeCount { state, version, count }).collect(),
        runs: vec![("pending", pending), ("starting", starting), ("running", running), ("finished", finished)],
        objects: census.objects,
        object_bytes: census.object_bytes,
    })
}

/// Picks up the trainings that were at work when the process before this one ended.
pub fn resume(link: &Link) -> Result<(), Refusal> {
    let now = link.now();
    for run in link.read(|view| view.unfinished_runs())? {
        if *run.state() != State::Running {
            continue;
        }
        let (facts, awaited, round, round_since) = link.read(|view| {
            let facts = view.fab(&run.fab_hash)?.map_or_else(Facts::default, |fab| app::facts(&run, &fab));
            let (mut awaited, mut round, mut since) = (Vec::new(), None, now);
            for id in view.instructions_of_run(run.id)? {
                let Some(instruction) = view.instruction(id)? else { continue };
                if view.reply_to(id)?.is_some_and(|reply| reply.ready) {
                    continue;
                }
                if round.is_none() {
                    round = round_of(&numbers(view, &trellis_core::object::tree(view, id)?));
                }
                since = f64::min(since, instruction.envelope.created_at);
                awaited.push(Instruction::of(&instruction.envelope));
            }
            Ok((facts, awaited, round, since))
        })?;
        let since = run.running_at.unwrap_or(now);
        link.watch.run_resumed(run.id, facts, &Resumed { since, awaited: &awaited, round, round_since }, now);
    }
    Ok(())
}

/// Tells the watch of runs that have ended.
pub fn finished(link: &Link, runs: Vec<RunId>) {
    for id in runs {
        if let Ok(Some(run)) = link.read(|view| view.run(id))
            && let State::Finished { outcome, .. } = run.state()
        {
            link.watch.run_finished(id, *outcome, run.finished_at.unwrap_or_else(|| link.now()));
        }
    }
}

//! Runs of a federation: started, stopped, and what they say. Lists come from memory, the rest from the SuperLink.

use std::time::Duration;

use trellis_api::{LogPart, NewRun, Run, RunState, TrainingReport, TrainingRounds};
use trellis_client::{Error, LogStream, SuperLink};
use trellis_spec::{Name, Runtime};
use trellis_wire::call::RunHistory;

use super::shared::Shared;
use super::superlink::{address, refusal, superlink};
use super::view::View;
use super::{Refusal, convert, submit};

/// A part of a log is at most so long, and a line more.
const MAX_LOG_PART_BYTES: usize = 256 << 10;
/// What is there already comes at once; after such a silence it has come.
const SILENCE: Duration = Duration::from_millis(100);
/// For the first of it, where nobody wants to wait for more.
const FIRST_WORD: Duration = Duration::from_millis(400);
/// How long somebody may wait for more.
pub const LONGEST_WAIT: Duration = Duration::from_secs(10);

pub fn list(view: &View) -> Result<Vec<Run>, Refusal> {
    if address(view).is_some() && !view.runs.complete {
        return Err(Refusal::NotNow(format!("the SuperLink of {} has not told of its runs yet", view.name)));
    }
    Ok(view.runs.newest())
}

/// The stored runs of a federation that is gone, newest first; none: it never was, or was purged.
pub async fn past(shared: &Shared, name: &Name) -> Result<Vec<Run>, Refusal> {
    let runs = shared.stored_runs(name).await?.into_iter();
    Ok(runs.map(|run| convert::ended(run, "stopped", "the federation was deleted")).collect())
}

pub async fn get(shared: &Shared, view: &View, id: &str) -> Result<Run, Refusal> {
    let number = number(view, id)?;
    match view.runs.get(id) {
        Some(run) => Ok(run.clone()),
        None => {
            let run = ask(view, &superlink(&shared.sites, view)?, number).await?;
            Ok(Run { started_by: shared.starters(&view.name).await.remove(id), ..run })
        }
    }
}

/// `by`: the name of the caller's token.
pub async fn start(shared: &Shared, view: &View, new: &NewRun, by: &str) -> Result<Run, Refusal> {
    let Some(federation) = view.federation.as_ref().filter(|_| !view.leaving) else {
        return Err(Refusal::Conflict(format!("federation {} is being deleted", view.name)));
    };
    let submission = submit::submission(federation, new)?;
    let superlink = superlink(&shared.sites, view)?;
    let id = superlink.start_run(submission.bundle.fab, submission.values).await.map_err(|error| refusal(&error))?;
    let run = Run { started_by: Some(by.to_owned()), ..ask(view, &superlink, id).await? };
    if let Err(error) = shared.registry.note_starter(&view.name, &run.id, by).await {
        // The run has started: to refuse now would make the caller start another one.
        tracing::error!(federation = %view.name, run = run.id, by, "who started the run cannot be stored: {error}");
    }
    shared.note_run(&view.name, run.clone()).await;
    Ok(run)
}

pub async fn stop(shared: &Shared, view: &View, id: &str) -> Result<Run, Refusal> {
    let number = number(view, id)?;
    if let Some(run) = view.runs.get(id).filter(|run| run.state == RunState::Finished) {
        return Ok(run.clone());
    }
    let superlink = superlink(&shared.sites, view)?;
    let run = ask(view, &superlink, number).await?;
    if run.state == RunState::Finished {
        return Ok(run);
    }
    let stopped = superlink.stop_run(number).await;
    let run = ask(view, &superlink, number).await?;
    // One that ended meanwhile cannot be stopped, and that is as good.
    if let (Err(error), true) = (stopped, run.state != RunState::Finished) {
        return Err(refusal(&error));
    }
    shared.note_run(&view.name, run.clone()).await;
    Ok(run)
}

pub async fn rounds(shared: &Shared, view: &View, id: &str, after: Option<u64>) -> Result<TrainingRounds, Refusal> {
    let number = number(view, id)?;
    let superlink = superlink(&shared.sites, view)?;
    if view.federation.as_ref().is_some_and(|federation| federation.runtime != Runtime::Trellis) {
        // Flower's own keep no rounds.
        ask(view, &superlink, number).await?;
        return Ok(TrainingRounds::default());
    }
    let history = superlink.call(&RunHistory { run_id: id.to_owned(), after_round: after }).await;
    let history = match history {
        Err(error) if error.is_unknown_call() => return Err(unknown(view, id)),
        history => history.map_err(|error| refusal(&error))?,
    };
    let reports = history.reports.iter().filter_map(|report| serde_json::from_str(report.get()).ok());
    let mut reports: Vec<TrainingReport> = reports.collect();
    if reports.is_empty() {
        // Also for a run that is not there.
        get(shared, view, id).await?;
    }
    reports.sort_by_key(|report| (report.round, report.kind != "round"));
    Ok(TrainingRounds { reports, more: history.more })
}

/// What the log of a run has after a place. `after` and `next` are moments, as the SuperLink counts them.
pub async fn log(shared: &Shared, view: &View, id: &str, after: &str, wait: bool) -> Result<LogPart, Refusal> {
    let number = number(view, id)?;
    let after_moment = match after {
        "" => 0.0,
        text => text.parse().ok().filter(|moment: &f64| moment.is_finite() && *moment >= 0.0).ok_or_else(|| {
            let detail = super::document::wrong(
                "after",
                format!("{text:?} is no place in a log"),
                "use `next` of the part before",
            );
            super::document::invalid("the log cannot be read there", vec![detail])
        })?,
    };
    let superlink = superlink(&shared.sites, view)?;
    // Its state before its log: of one that is over all has been written.
    let over = ask(view, &superlink, number).await?.state == RunState::Finished;
    let first = if wait { LONGEST_WAIT } else { FIRST_WORD };
    let mut stream = superlink.stream_logs(number, after_moment).await.map_err(|error| refusal(&error))?;
    let read = tokio::select! {
        read = read(&mut stream, first) => read.map_err(|error| refusal(&error))?,
        () = shared.stopped() => Read::default(),
    };
    let next = read.latest.map_or_else(|| after.to_owned(), |latest| latest.to_string());
    Ok(LogPart { text: read.text, next, ended: over && read.ended })
}

#[derive(Default)]
struct Read {
    text: String,
    latest: Option<f64>,
    /// There was no more.
    ended: bool,
}

/// Reads what is there, or comes within a while.
async fn read(stream: &mut LogStream, first: Duration) -> Result<Read, Error> {
    let mut read = Read::default();
    while read.text.len() < MAX_LOG_PART_BYTES {
        let limit = if read.latest.is_none() { first } else { SILENCE };
        match tokio::time::timeout(limit, stream.next()).await {
            Ok(part) => match part? {
                Some(part) => {
                    read.text += &part.text;
                    read.latest = Some(part.latest);
                }
                None => {
                    read.ended = true;
                    break;
                }
            },
            Err(_) => break,
        }
    }
    Ok(read)
}

async fn ask(view: &View, superlink: &SuperLink, id: u64) -> Result<Run, Refusal> {
    let found = match superlink.list_runs(Some(id)).await {
        Err(Error::Refused { status: 404, .. }) => None,
        found => found.map_err(|error| refusal(&error))?.into_iter().find(|run| run.run_id == id),
    };
    let run = found.ok_or_else(|| match view.runs.get(&id.to_string()) {
        Some(_) => without_log(view.name.as_str(), &id.to_string()),
        None => unknown(view, &id.to_string()),
    })?;
    let mut run = convert::run(view.name.as_str(), run);
    if let Some(known) = view.runs.get(&run.id) {
        run.training.clone_from(&known.training);
        run.started_by.clone_from(&known.started_by);
    }
    Ok(run)
}

fn number(view: &View, id: &str) -> Result<u64, Refusal> {
    // Only as it is told: otherwise one run had several names.
    id.parse().ok().filter(|number: &u64| number.to_string() == id).ok_or_else(|| unknown(view, id))
}

/// The SuperLink of a run that is known is gone.
pub fn without_log(federation: &str, id: &str) -> Refusal {
    Refusal::NotFound(format!(
        "run {id} was on an earlier SuperLink of {federation}: its log went with that SuperLink, its result is kept"
    ))
}

fn unknown(view: &View, id: &str) -> Refusal {
    Refusal::NotFound(format!("federation {} has no run {id}", view.name))
}

//! Runs of a federation: start, stop, rounds and logs. Lists are answered from memory, everything else from the SuperLink.

use std::time::Duration;

use trellis_api::{LogPart, NewRun, Run, RunState, TrainingReport, TrainingRounds};
use trellis_client::{Error, LogStream, SuperLink};
use trellis_spec::{Name, Runtime};
use trellis_wire::call::RunHistory;

use super::shared::Shared;
use super::superlink::{address, refusal, superlink};
use super::view::View;
use super::{Refusal, convert, submit};

/// Maximum size of a part of a log, plus one line.
const MAX_LOG_PART_BYTES: usize = 256 << 10;
/// After this time without data, the existing log has been read.
const IDLE_TIMEOUT: Duration = Duration::from_millis(100);
/// Timeout of the first data, if the caller does not wait for more.
const FIRST_TIMEOUT: Duration = Duration::from_millis(400);
/// Timeout of a caller that waits for more.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

pub fn list(view: &View) -> Result<Vec<Run>, Refusal> {
    if address(view).is_some() && !view.runs.complete {
        return Err(Refusal::NotNow(format!("the runs of the SuperLink of {} have not been read yet", view.name)));
    }
    Ok(view.runs.newest())
}

/// The stored runs of a deleted federation, newest first; empty if it never existed or was purged.
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
        // The run has started: an error would make the caller start another one.
        tracing::error!(federation = %view.name, run = run.id, by, "the user who started the run cannot be stored: {error}");
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
    // A run that ended in between needs no stop.
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
        // Flower's own SuperLinks store no rounds.
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
        // Fails if the run does not exist.
        get(shared, view, id).await?;
    }
    reports.sort_by_key(|report| (report.round, report.kind != "round"));
    Ok(TrainingRounds { reports, more: history.more })
}

/// The log of a run after a position. `after` and `next` are timestamps of the SuperLink.
pub async fn log(shared: &Shared, view: &View, id: &str, after: &str, wait: bool) -> Result<LogPart, Refusal> {
    let number = number(view, id)?;
    let after_moment = match after {
        "" => 0.0,
        text => text.parse().ok().filter(|moment: &f64| moment.is_finite() && *moment >= 0.0).ok_or_else(|| {
            let detail = super::document::wrong(
                "after",
                format!("{text:?} is not a position in a log"),
                "use `next` of the part before",
            );
            super::document::invalid("the log cannot be read there", vec![detail])
        })?,
    };
    let superlink = superlink(&shared.sites, view)?;
    // The state is read before the log: the log of a finished run is complete.
    let over = ask(view, &superlink, number).await?.state == RunState::Finished;
    let first = if wait { WAIT_TIMEOUT } else { FIRST_TIMEOUT };
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
    /// The stream ended.
    ended: bool,
}

/// Reads existing data and data that arrives before the timeout.
async fn read(stream: &mut LogStream, first: Duration) -> Result<Read, Error> {
    let mut read = Read::default();
    while read.text.len() < MAX_LOG_PART_BYTES {
        let limit = if read.latest.is_none() { first } else { IDLE_TIMEOUT };
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
    // Only the canonical form: a run has one name.
    id.parse().ok().filter(|number: &u64| number.to_string() == id).ok_or_else(|| unknown(view, id))
}

/// The SuperLink of a known run was deleted.
pub fn without_log(federation: &str, id: &str) -> Refusal {
    Refusal::NotFound(format!(
        "run {id} was on an earlier SuperLink of {federation}: its log was deleted with that SuperLink, its result is stored"
    ))
}

fn unknown(view: &View, id: &str) -> Refusal {
    Refusal::NotFound(format!("federation {} has no run {id}", view.name))
}

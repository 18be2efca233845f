//! Follows a run to its end: prints its reports as they arrive, or its log; handles Ctrl-C.
//!
//! The first signal asks the SuperLink to stop the run, and waits for its end; a second one exits without waiting.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use trellis_client::{Error, SuperLink};
use trellis_terminal::remark;
use trellis_wire::call::{RunHistory, Watch};
use trellis_wire::report::TrainingReport;

use super::show::{Ended, Show};
use crate::process::StopSignals;
use crate::remote::CommandError;

/// Minimum time between two polls. A round of a small model takes a few milliseconds; people read more slowly.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Poll interval of a SuperLink that does not notify.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// How long a SuperLink holds a call that waits for changes.
const HOLD_S: u64 = 25;
/// The SuperLink may be unreachable for this long: it may be restarting while the run continues.
const OUTAGE_LIMIT: Duration = Duration::from_secs(600);

/// How following ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Followed {
    /// With the run.
    ToTheEnd(Ended),
    /// With the run, which a signal (its number) stopped.
    Stopped(Ended, i32),
    /// A second signal: the run may still be ending.
    Left(i32),
}

pub struct Follower<'a> {
    superlink: &'a SuperLink,
    run: u64,
    signals: &'a mut StopSignals,
    /// The number of the signal that stopped the run.
    stopped: Option<i32>,
    /// Since when the SuperLink does not answer.
    away: Option<Instant>,
    /// Round and kind of the reports that were shown.
    shown: BTreeSet<(u64, String)>,
    /// End of the log that was shown.
    logged_until: f64,
    watching: Watching,
}

/// How changes are detected.
enum Watching {
    /// The SuperLink notifies, from this time on; `None` before the first call.
    From(Option<String>),
    /// The SuperLink does not have the call.
    NotServed,
}

impl<'a> Follower<'a> {
    pub fn new(superlink: &'a SuperLink, run: u64, signals: &'a mut StopSignals) -> Follower<'a> {
        Follower {
            superlink,
            run,
            signals,
            stopped: None,
            away: None,
            shown: BTreeSet::new(),
            logged_until: 0.0,
            watching: Watching::From(None),
        }
    }

    /// Shows a report for each round.
    pub async fn reports(mut self, show: &mut Show) -> Result<Followed, CommandError> {
        loop {
            // The status first: if it is final, all reports exist.
            let ended = self.state().await?;
            for report in self.new_reports().await? {
                show.report(&report);
            }
            if let Some(ended) = ended {
                return Ok(self.end(ended));
            }
            if let Some(left) = self.pause().await {
                return Ok(left);
            }
        }
    }

    /// Shows the log.
    pub async fn log(mut self, show: &mut Show) -> Result<Followed, CommandError> {
        loop {
            let ended = self.state().await?;
            let read = read_log(self.superlink, self.run, &mut self.logged_until, show);
            let interrupted = tokio::select! {
                read = read => {
                    self.forgive(read)?;
                    None
                }
                signal = self.signals.next() => stop(self.superlink, self.run, &mut self.stopped, signal).await,
            };
            if let Some(left) = interrupted {
                return Ok(left);
            }
            if let Some(ended) = ended {
                return Ok(self.end(ended));
            }
            if let Some(left) = self.pause().await {
                return Ok(left);
            }
        }
    }

    fn end(self, ended: Ended) -> Followed {
        match self.stopped {
            Some(signal) if !ended.is_completed() => Followed::Stopped(ended, signal),
            _ => Followed::ToTheEnd(ended),
        }
    }

    /// How the run ended; `None` while it has not, or if that is unknown.
    async fn state(&mut self) -> Result<Option<Ended>, CommandError> {
        let asked = self.superlink.list_runs(Some(self.run)).await;
        let Some(runs) = self.forgive(asked)? else { return Ok(None) };
        let status = runs.into_iter().next().and_then(|run| run.status).unwrap_or_default();
        Ok((status.status == "finished").then_some(Ended { status: status.sub_status, details: status.details }))
    }

    async fn new_reports(&mut self) -> Result<Vec<TrainingReport>, CommandError> {
        // The final report has the number of the last round, so that round is loaded again.
        let mut after_round = self.shown.last().and_then(|(round, _)| round.checked_sub(1));
        let mut new = Vec::new();
        loop {
            let asked = self.superlink.call(&RunHistory { run_id: self.run.to_string(), after_round }).await;
            let Some(history) = self.forgive(asked)? else { return Ok(new) };
            // Reports of newer ServerApps that cannot be parsed are not shown.
            let reports = history.reports.iter().filter_map(|report| serde_json::from_str(report.get()).ok());
            let reports: Vec<TrainingReport> = reports.collect();
            after_round = reports.last().map(|report| report.round);
            new.extend(reports.into_iter().filter(|report| self.shown.insert((report.round, report.kind.clone()))));
            if !history.more || after_round.is_none() {
                // The final report follows that of its round.
                new.sort_by_key(|report: &TrainingReport| (report.round, report.kind != "round"));
                return Ok(new);
            }
        }
    }

    /// Tolerates transient errors for a while.
    fn forgive<T>(&mut self, asked: Result<T, Error>) -> Result<Option<T>, CommandError> {
        match asked {
            Ok(answer) => {
                self.away = None;
                Ok(Some(answer))
            }
            Err(error) if error.may_pass() => {
                let since = *self.away.get_or_insert_with(|| {
                    remark(&format!("the SuperLink does not answer ({error}); the run continues, still waiting"));
                    Instant::now()
                });
                if since.elapsed() < OUTAGE_LIMIT { Ok(None) } else { Err(error.into()) }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Until there is something new to see.
    async fn pause(&mut self) -> Option<Followed> {
        let (run, watching) = (self.run.to_string(), &mut self.watching);
        tokio::select! {
            () = change(self.superlink, &run, watching) => None,
            signal = self.signals.next() => stop(self.superlink, self.run, &mut self.stopped, signal).await,
        }
    }
}

/// Waits for a change of the run, or for as long as one may wait without knowing.
async fn change(superlink: &SuperLink, run: &str, watching: &mut Watching) {
    tokio::time::sleep(MIN_POLL_INTERVAL).await;
    while let Watching::From(after) = watching {
        match superlink.call(&Watch { after: after.clone(), wait_s: Some(HOLD_S) }).await {
            Ok(changed) => {
                *after = Some(changed.at);
                if changed.runs.iter().any(|changed| changed == run) {
                    return;
                }
            }
            Err(error) if error.is_unknown_call() => *watching = Watching::NotServed,
            // The next poll reports the error.
            Err(_) => break,
        }
    }
    tokio::time::sleep(POLL_INTERVAL).await;
}

/// Prints new lines of the log until its end.
async fn read_log(superlink: &SuperLink, run: u64, until: &mut f64, show: &mut Show) -> Result<(), Error> {
    let mut log = superlink.stream_logs(run, *until).await?;
    while let Some(part) = log.next().await? {
        show.log(&part.text);
        *until = part.latest;
    }
    Ok(())
}

/// Stops the run, or exits if that was requested before.
async fn stop(
    superlink: &SuperLink,
    run: u64,
    stopped: &mut Option<i32>,
    (name, number): (&'static str, i32),
) -> Option<Followed> {
    if stopped.replace(number).is_some() {
        return Some(Followed::Left(number));
    }
    remark(&format!("{name}: stopping run {run}; once more leaves it to the SuperLink"));
    // A run that has ended cannot be stopped; the next poll reports how it ended.
    if let Err(error) = superlink.stop_run(run).await {
        remark(&format!("it was not stopped: {error}"));
    }
    None
}

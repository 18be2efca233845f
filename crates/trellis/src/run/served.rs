//! A run on a federation of a server: submitted, followed and stopped through its API.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trellis_api::{Bundle, Client, NewRun, Run, RunState, Scalar, TrainingReport};
use trellis_terminal::{clean, remark};
use trellis_train::submit::{NATIVE, Submission};
use trellis_wire::proto;
use trellis_wire::proto::scalar::Scalar as Value;

use super::follow::Followed;
use super::show::{Ended, Show};
use crate::process::StopSignals;
use crate::remote::CommandError;
use crate::settle::{Outage, Watch};

/// Poll interval without events.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The request.
pub fn new_run(plan: &Submission) -> NewRun {
    let settings = plan.values.iter().map(|(key, value)| (key.clone(), scalar(value))).collect::<BTreeMap<_, _>>();
    match &plan.built_in {
        Some(app) => NewRun { app: Some(format!("{NATIVE}{}", app.name)), bundle: None, settings },
        None => {
            let fab = &plan.bundle.fab;
            let bundle = Bundle { content: STANDARD.encode(&fab.content), sha256: fab.hash_str.clone() };
            NewRun { app: None, bundle: Some(bundle), settings }
        }
    }
}

pub fn scalar(value: &proto::Scalar) -> Scalar {
    match &value.scalar {
        Some(Value::Bool(truth)) => Scalar::Bool(*truth),
        Some(Value::Sint64(number)) => Scalar::Int(*number),
        Some(Value::Uint64(number)) => Scalar::Int(i64::try_from(*number).unwrap_or(i64::MAX)),
        Some(Value::Double(number)) => Scalar::Float(*number),
        Some(Value::String(text)) => Scalar::Text(text.clone()),
        Some(Value::Bytes(_)) | None => Scalar::Text(String::new()),
    }
}

/// Follows a run to its end, and stops it on a signal; a second one leaves it alone.
pub struct Follower<'a> {
    client: &'a Client,
    federation: &'a str,
    run: String,
    signals: &'a mut StopSignals,
    stopped: Option<i32>,
    outage: Outage,
    /// Round and kind of the reports that were shown.
    shown: BTreeSet<(u64, String)>,
    reports: Vec<TrainingReport>,
}

impl<'a> Follower<'a> {
    pub fn new(client: &'a Client, federation: &'a str, run: &Run, signals: &'a mut StopSignals) -> Follower<'a> {
        Follower {
            client,
            federation,
            run: run.id.clone(),
            signals,
            stopped: None,
            outage: Outage::default(),
            shown: BTreeSet::new(),
            reports: Vec::new(),
        }
    }

    /// Prints a report per round. The status is read first: if it is final, all reports exist.
    pub async fn reports(mut self, show: &mut Show) -> Result<(Followed, Vec<TrainingReport>), CommandError> {
        let mut watch = Watch::of(self.client, self.federation);
        loop {
            let ended = self.state().await?;
            self.show_new_reports(show).await?;
            if let Some(ended) = ended {
                return Ok((self.end(ended), self.reports));
            }
            let look = tokio::time::timeout(POLL_INTERVAL, watch.next());
            let signal = tokio::select! {
                _ = look => None,
                signal = self.signals.next() => Some(signal),
            };
            if let Some(left) = self.heed(signal).await {
                return Ok((left, self.reports));
            }
        }
    }

    /// Shows the log.
    pub async fn log(mut self, show: &mut Show) -> Result<Followed, CommandError> {
        let mut after: Option<String> = None;
        loop {
            let asking = self.client.run_log(self.federation, &self.run, after.as_deref(), true);
            let (part, signal) = tokio::select! {
                part = asking => (Some(part), None),
                signal = self.signals.next() => (None, Some(signal)),
            };
            let part = part.map(|part| self.outage.tolerate(part)).transpose()?.flatten();
            if let Some(part) = &part {
                show.log(&part.text);
                after = Some(part.next.clone());
            }
            if let Some(left) = self.heed(signal).await {
                return Ok(left);
            }
            if part.is_some_and(|part| part.ended)
                && let Some(ended) = self.state().await?
            {
                return Ok(self.end(ended));
            }
        }
    }

    fn end(&self, ended: Ended) -> Followed {
        match self.stopped {
            Some(signal) if !ended.is_completed() => Followed::Stopped(ended, signal),
            _ => Followed::ToTheEnd(ended),
        }
    }

    /// How the run ended; `None` while it has not, or if that is unknown.
    async fn state(&mut self) -> Result<Option<Ended>, CommandError> {
        let asked = self.client.run(self.federation, &self.run).await;
        let Some(run) = self.outage.tolerate(asked)? else { return Ok(None) };
        let ended = || Ended { status: run.outcome.clone().unwrap_or_default(), details: run.details.clone() };
        Ok((run.state == RunState::Finished).then(ended))
    }

    async fn show_new_reports(&mut self, show: &mut Show) -> Result<(), CommandError> {
        // The final report has the number of the last round, so that round is loaded again.
        let mut after = self.shown.last().and_then(|(round, _)| round.checked_sub(1));
        let mut new = Vec::new();
        loop {
            let asked = self.client.rounds(self.federation, &self.run, after).await;
            let Some(rounds) = self.outage.tolerate(asked)? else { break };
            let last = rounds.reports.last().map(|report| report.round);
            new.extend(rounds.reports.into_iter().filter(|it| self.shown.insert((it.round, it.kind.clone()))));
            match (rounds.more, last) {
                (true, Some(last)) => after = Some(last),
                _ => break,
            }
        }
        // The final report follows that of its round.
        new.sort_by_key(|report: &TrainingReport| (report.round, report.kind != "round"));
        new.iter().for_each(|report| show.report(report));
        self.reports.extend(new);
        Ok(())
    }

    /// Stops the run, or exits if that was requested before.
    async fn heed(&mut self, signal: Option<(&'static str, i32)>) -> Option<Followed> {
        let (name, number) = signal?;
        if self.stopped.replace(number).is_some() {
            return Some(Followed::Left(number));
        }
        let run = clean(&self.run);
        remark(&format!("{name}: stopping run {run}; once more leaves it to the server"));
        // A run that has ended cannot be stopped; the next poll reports how it ended.
        if let Err(error) = self.client.stop_run(self.federation, &self.run).await {
            remark(&format!("it was not stopped: {error}"));
        }
        None
    }
}

//! Training reports of native ServerApps, as JSON. Reports are stored and returned unchanged; only the head is parsed,
//! for the log.

use std::collections::HashSet;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use trellis_core::id::RunId;
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::report::{self, TrainingReport};
use trellis_wire::call::{Done, History, RunHistory};
use trellis_wire::report::TrainingReport as Round;

use super::account::CallerAccount;
use crate::dialect::app::Caller;
use crate::link::Link;

/// Approximate maximum size of an answer; a round is never split.
const HISTORY_BYTES: usize = 4 << 20;
/// Longer texts of a report are truncated in the log.
const MAX_LOGGED_CHARS: usize = 500;

/// The part of a report that the SuperLink parses.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
struct Head {
    round: u64,
    #[serde(default = "whole_round")]
    kind: String,
    #[serde(default)]
    checkpoint: Option<Checkpoint>,
    #[serde(default)]
    findings: Vec<Finding>,
}

/// The default kind of a report.
fn whole_round() -> String {
    trellis_core::report::ROUND.to_owned()
}

/// A saved checkpoint: its path, and its size if known.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Checkpoint {
    Path(String),
    Saved { path: String, size_bytes: Option<u64> },
}

#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
struct Finding {
    severity: String,
    code: String,
    #[serde(default)]
    what: String,
}

impl Finding {
    fn is_warning(&self) -> bool {
        ["warning", "critical"].iter().any(|severe| self.severity.eq_ignore_ascii_case(severe))
    }
}

/// Stores a report, which replaces an earlier one of the same round and kind, and logs what is new in it.
pub async fn report_training(link: &Link, caller: &Caller, body: &Bytes) -> Result<Done, Refusal> {
    let unreadable =
        |why: &dyn std::fmt::Display| Refusal::new(Kind::Invalid, format!("the report cannot be read: {why}"));
    let body = str::from_utf8(body).map_err(|error| unreadable(&error))?;
    let head: Head = serde_json::from_str(body).map_err(|error| unreadable(&error))?;
    let run = caller.run(0);
    let reported = TrainingReport { run, round: head.round, kind: head.kind.clone(), body: body.to_owned() };
    let before = link.write(move |tx| report::store(tx, &reported)).await?;
    let before = before.and_then(|before| serde_json::from_str(&before.body).ok()).unwrap_or_default();
    log_news(link, run, &head, &before);
    Ok(Done {})
}

/// Stores observations of rounds whose ServerApps do not report, without waiting for the commit.
pub fn store_observed(link: &Link) {
    for (run, observed) in link.watch.take_reports() {
        let round = observed.report.round;
        link.submit(move |tx| {
            let before = tx.report(run, round, &observed.report.kind)?;
            let before = before.and_then(|before| serde_json::from_str(&before.body).ok());
            let report = completed(observed.report.clone(), observed.is_rest, before);
            let body = serde_json::to_string(&report)
                .map_err(|error| Refusal::transient("A report could not be encoded.", error))?;
            report::store_observed(tx, &TrainingReport { run, round, kind: report.kind, body })
        });
    }
}

/// Adds the phases of an earlier report that this report lacks, or of which it has only the rest.
fn completed(report: Round, is_rest: bool, before: Option<Round>) -> Round {
    let Some(before) = before else { return report };
    let choose = |now: Option<_>, before: Option<_>| if is_rest { before.or(now) } else { now.or(before) };
    Round {
        train: choose(report.train, before.train),
        evaluate: choose(report.evaluate, before.evaluate),
        started_at: report.started_at.min(before.started_at),
        ..report
    }
}

/// Logs what the previous version of the report did not have: a report may be retried or completed later.
fn log_news(link: &Link, run: RunId, head: &Head, before: &Head) {
    if let Some(saved) = head.checkpoint.clone().filter(|saved| before.checkpoint.as_ref() != Some(saved)) {
        let (path, size_bytes) = match saved {
            Checkpoint::Path(path) => (path, None),
            Checkpoint::Saved { path, size_bytes } => (path, size_bytes),
        };
        link.watch.checkpoint_saved(run, head.round, path, size_bytes);
    }
    let known: HashSet<&Finding> = before.findings.iter().collect();
    for finding in head.findings.iter().filter(|finding| finding.is_warning() && !known.contains(finding)) {
        let Finding { code, what, .. } = finding;
        tracing::warn!(run = run.0, round = head.round, code = cut(code), "{}", cut(what));
    }
}

fn cut(text: &str) -> &str {
    text.char_indices().nth(MAX_LOGGED_CHARS).map_or(text, |(end, _)| &text[..end])
}

/// Returns the reports of a run by round.
pub async fn run_history(link: &Link, _: &CallerAccount, asked: RunHistory) -> Result<History, Refusal> {
    let not_found = || Refusal::new(Kind::NotFound, format!("There is no run '{:.40}'.", asked.run_id));
    let run = asked.run_id.parse().map(RunId).map_err(|_| not_found())?;
    let (reports, more) = link.read(|view| {
        view.run(run)?.ok_or_else(not_found)?;
        let reports = view.reports_after(run, asked.after_round, HISTORY_BYTES)?;
        let more = match reports.last() {
            Some(last) => !view.reports_after(run, Some(last.round), 0)?.is_empty(),
            None => false,
        };
        Ok((reports, more))
    })?;
    let raw = |report: TrainingReport| RawValue::from_string(report.body);
    let reports = reports.into_iter().map(raw).collect::<Result<_, _>>();
    let damaged = |error| Refusal::transient("A report in the state is damaged.", error);
    Ok(History { reports: reports.map_err(damaged)?, more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_report_is_parsed_and_the_rest_ignored() {
        let head: Head = serde_json::from_str(
            r#"{"round": 3, "clients": [{"node": "7"}], "checkpoint": "a/b",
                "findings": [{"severity": "Warning", "code": "drift", "what": "x", "advice": "y"}]}"#,
        )
        .unwrap();
        assert_eq!((head.round, head.kind.as_str()), (3, "round"));
        assert_eq!(head.checkpoint, Some(Checkpoint::Path("a/b".to_owned())));
        let severe =
            |severity: &str| Finding { severity: severity.to_owned(), code: String::new(), what: String::new() };
        assert!(head.findings[0].is_warning() && severe("critical").is_warning() && !severe("notice").is_warning());
        let head: Head = serde_json::from_str(r#"{"round": 0, "kind": "end", "checkpoint": {"path": "c"}}"#).unwrap();
        assert_eq!(head.checkpoint, Some(Checkpoint::Saved { path: "c".to_owned(), size_bytes: None }));
        assert!(serde_json::from_str::<Head>("{}").is_err(), "the round is required");
        assert_eq!(cut(&"ä".repeat(MAX_LOGGED_CHARS + 1)).chars().count(), MAX_LOGGED_CHARS);
    }
}

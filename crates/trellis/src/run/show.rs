//! Prints the progress of a run: a line per round, with a progress bar below on a terminal; or lines of JSON.

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal, Write as _};

use serde::Serialize;
use serde_json::json;
use trellis_terminal::{Format, clean, entry, remark};
use trellis_tracking::Delivery;
use trellis_wire::report::{FindingReport, MetricReport, PhaseReport, TrainingReport};

use super::plan::counted;

const BAR_CHARS: usize = 30;
/// Metrics in a line, if none is a loss or an accuracy.
const MAX_OTHERS: usize = 3;
/// Nodes that are named in a line.
const MAX_NAMED: usize = 3;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// `completed`, `failed` or `stopped`.
    pub status: String,
    pub details: String,
}

impl Ended {
    pub fn is_completed(&self) -> bool {
        self.status == "completed"
    }
}

/// A line of JSON, or a document of YAML.
#[derive(Serialize)]
struct Event<'a, T> {
    event: &'a str,
    #[serde(flatten)]
    body: T,
}

pub struct Show {
    format: Format,
    /// The bar is there, and must be wiped before the next line.
    bar: bool,
    terminal: bool,
    /// The path of the last saved model.
    model: Option<String>,
    /// Strategy and rounds are not printed yet.
    settings_due: bool,
    rounds: u64,
    /// Code and severity of the printed findings. Most apply to many rounds, and are printed once.
    printed: BTreeSet<(String, String)>,
}

impl Show {
    pub fn new(format: Format) -> Show {
        Show {
            format,
            bar: false,
            terminal: io::stdout().is_terminal(),
            model: None,
            rounds: 0,
            settings_due: false,
            printed: BTreeSet::new(),
        }
    }

    pub fn started(&mut self, run: impl Display, what: &str) {
        match self.format {
            Format::Json | Format::Yaml => self.event("started", json!({ "run_id": run.to_string(), "app": what })),
            Format::Table => self.line(&format!("run {run} started: {what}")),
        }
    }

    /// Prints the settings with the first report, which includes defaults of the SuperLink.
    pub fn print_settings(&mut self, native: bool) {
        self.settings_due = native;
    }

    pub fn report(&mut self, report: &TrainingReport) {
        if std::mem::take(&mut self.settings_due) && self.format == Format::Table {
            self.line(&format!("{}, {}", clean(&report.strategy), counted(report.rounds_planned, "round")));
        }
        if let Some(checkpoint) = &report.checkpoint {
            self.model = Some(checkpoint.path.clone());
        }
        self.rounds = self.rounds.max(report.round);
        match self.format {
            Format::Json | Format::Yaml => self.event("report", report),
            Format::Table if report.kind == "round" => {
                self.line(&round_line(report));
                failures(report).into_iter().for_each(|line| self.line(&line));
                for finding in &report.findings {
                    if self.printed.insert((finding.code.clone(), finding.severity.clone())) {
                        self.line(&finding_lines(finding));
                    }
                }
                self.draw_bar(report.round, report.rounds_planned);
            }
            Format::Table => {
                if !report.note.is_empty() {
                    self.line(&clean(&report.note));
                }
            }
        }
    }

    /// A piece of a log, as it is.
    pub fn log(&mut self, text: &str) {
        match self.format {
            Format::Json | Format::Yaml => self.event("log", json!({ "text": text })),
            Format::Table => self.write(text),
        }
    }

    /// `place` is printed if the model is on another machine.
    pub fn ended(&mut self, run: impl Display, ended: &Ended, place: &str) {
        let model = self.model.take();
        if self.format != Format::Table {
            let Ended { status, details } = ended;
            self.event(
                "ended",
                json!({ "run_id": run.to_string(), "status": status, "details": details, "model": model }),
            );
            return;
        }
        self.line(&match self.rounds {
            0 => format!("run {run} {}", ended.status),
            rounds => format!("run {run} {} after {}", ended.status, counted(rounds, "round")),
        });
        if let Some(model) = model {
            self.line(&format!("model{place}: {}", clean(&model)));
        }
    }

    /// What a tracker has got of the run.
    pub fn tracked(&mut self, delivery: &Delivery) {
        match (self.format, delivery.is_complete()) {
            (Format::Table, true) => self.line(&clean(&delivery.to_string())),
            (Format::Table, false) => remark(&clean(&delivery.to_string())),
            _ => self.event("tracked", delivery),
        }
    }

    fn event(&mut self, event: &str, body: impl Serialize) {
        self.write(&entry(self.format, &Event { event, body }));
    }

    fn line(&mut self, line: &str) {
        let wipe = if std::mem::take(&mut self.bar) { "\r\u{1b}[2K" } else { "" };
        self.write(&format!("{wipe}{line}\n"));
    }

    fn draw_bar(&mut self, round: u64, planned: u64) {
        if self.terminal && round < planned {
            self.write(&bar(round, planned));
            self.bar = true;
        }
    }

    /// A closed pipe is not an error.
    fn write(&self, text: &str) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(text.as_bytes());
        let _ = out.flush();
    }
}

fn bar(round: u64, planned: u64) -> String {
    let done = (BAR_CHARS as u64 * round / planned.max(1)).min(BAR_CHARS as u64) as usize;
    format!("[{}{}] {round} of {planned} rounds", "#".repeat(done), ".".repeat(BAR_CHARS - done))
}

pub fn round_line(report: &TrainingReport) -> String {
    let digits = report.rounds_planned.to_string().len();
    let seconds: f64 = [&report.train, &report.evaluate].into_iter().flatten().map(|phase| phase.seconds).sum();
    let mut line = format!("round {:>digits$}/{}  {seconds:.2} s", report.round, report.rounds_planned);
    // Writing to a String cannot fail.
    if let Some(phase) = report.train.as_ref().or(report.evaluate.as_ref()) {
        let _ = write!(line, "  {}/{} nodes", phase.answered, phase.asked);
    }
    for (name, value) in headline(report) {
        let _ = write!(line, "  {} {value:.4}", clean(name));
    }
    if let Some(epsilon) = report.epsilon {
        let _ = write!(line, "  epsilon {epsilon:.3}");
    }
    if !report.note.is_empty() {
        let _ = write!(line, "  ({})", clean(&report.note));
    }
    line
}

/// Losses and accuracies, or else the first metrics: of the evaluation, or else of the training.
fn headline(report: &TrainingReport) -> Vec<(&str, f64)> {
    let has_metrics = |phase: &&PhaseReport| !phase.metrics.is_empty();
    let Some(phase) = report.evaluate.as_ref().filter(has_metrics).or(report.train.as_ref().filter(has_metrics)) else {
        return Vec::new();
    };
    let numbers: Vec<(&str, f64)> = phase
        .metrics
        .iter()
        .filter_map(|(name, value)| match value {
            MetricReport::Number(number) => Some((name.as_str(), *number)),
            MetricReport::Text(text) => Some((name.as_str(), text.parse().ok()?)),
            MetricReport::Numbers(_) => None,
        })
        .collect();
    let called = |part: &str| numbers.iter().find(|(name, _)| name.to_lowercase().contains(part)).copied();
    let known: Vec<(&str, f64)> = [called("loss"), called("acc")].into_iter().flatten().collect();
    if known.is_empty() { numbers.into_iter().take(MAX_OTHERS).collect() } else { known }
}

/// Missing nodes and the reasons. Nodes that were selected in reserve are not failures.
fn failures(report: &TrainingReport) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, phase) in [("train", &report.train), ("evaluate", &report.evaluate)] {
        let failed: Vec<_> =
            phase.iter().flat_map(|phase| &phase.failed).filter(|it| it.kind != "not-needed").collect();
        for node in failed.iter().take(MAX_NAMED) {
            lines.push(format!("  {name}: node {} {}: {}", clean(&node.node), node.kind, clean(&node.reason)));
        }
        if failed.len() > MAX_NAMED {
            lines.push(format!("  {name}: and {} more nodes", failed.len() - MAX_NAMED));
        }
    }
    lines
}

fn finding_lines(finding: &FindingReport) -> String {
    let FindingReport { code, severity, what, advice, .. } = finding;
    let mut lines = format!("  {severity}: {} ({code})", clean(what));
    if !advice.is_empty() {
        let _ = write!(lines, "\n    to do: {}", clean(advice));
    }
    lines
}

#[cfg(test)]
mod tests {
    use trellis_wire::report::FailedNode;

    use super::*;

    fn phase(metrics: &[(&str, MetricReport)]) -> PhaseReport {
        PhaseReport {
            seconds: 0.5,
            asked: 5,
            answered: 4,
            metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            ..Default::default()
        }
    }

    fn report(train: &[(&str, MetricReport)], evaluate: &[(&str, MetricReport)]) -> TrainingReport {
        TrainingReport {
            round: 3,
            kind: "round".to_owned(),
            rounds_planned: 10,
            train: Some(phase(train)),
            evaluate: Some(phase(evaluate)),
            ..Default::default()
        }
    }

    #[test]
    fn a_round_is_a_line() {
        let number = MetricReport::number;
        let head = "round  3/10  1.00 s  4/5 nodes";
        for (train, evaluate, expected) in [
            (&[][..], &[][..], ""),
            (&[("train_loss", number(1.5))], &[], "  train_loss 1.5000"),
            (
                &[("train_loss", number(1.5))],
                &[("eval_acc", number(0.9)), ("eval_loss", number(0.25)), ("other", number(1.0))],
                "  eval_loss 0.2500  eval_acc 0.9000",
            ),
            (&[], &[("loss", number(f64::NAN))], "  loss NaN"),
            (&[], &[("f1", number(0.5)), ("curve", MetricReport::Numbers(vec![1.0]))], "  f1 0.5000"),
        ] {
            assert_eq!(round_line(&report(train, evaluate)), format!("{head}{expected}"));
        }
        let noted = TrainingReport { note: "skipped\u{1b}".to_owned(), epsilon: Some(1.23456), ..report(&[], &[]) };
        assert_eq!(round_line(&noted), format!("{head}  epsilon 1.235  (skipped\u{fffd})"));
    }

    #[test]
    fn who_failed_is_named_and_who_was_not_needed_is_not() {
        let node =
            |kind: &str, id: u64| FailedNode { node: id.to_string(), kind: kind.to_owned(), reason: "x".to_owned() };
        let mut report = report(&[], &[]);
        report.train.as_mut().unwrap().failed = (0..5).map(|id| node("late", id)).collect();
        report.evaluate.as_mut().unwrap().failed = vec![node("not-needed", 7)];
        let lines = failures(&report);
        assert_eq!((lines[0].as_str(), lines.len()), ("  train: node 0 late: x", 4));
        assert_eq!(lines[3], "  train: and 2 more nodes");
    }

    #[test]
    fn the_bar_fills() {
        assert_eq!(bar(0, 4), format!("[{}] 0 of 4 rounds", ".".repeat(30)));
        assert_eq!(bar(2, 4), format!("[{}{}] 2 of 4 rounds", "#".repeat(15), ".".repeat(15)));
        assert_eq!(bar(9, 4).matches('.').count(), 0);
    }
}

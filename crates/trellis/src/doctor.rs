//! `trellis doctor`: looks at everything that a federation on this machine depends on, and says what to do about what is not
//! as it should be. Looking (`look`), judging (`judge`) and telling are apart.

mod check;
mod facts;
mod gpu;
mod judge;
mod look;
mod opennebula;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

use self::check::{Check, Verdict};
use crate::home::Home;
use crate::remote::{self, OutputArgs, Tone, Trouble, clean, colours, painted, print};

const CALLED: &str = "trellis doctor";

const AFTER_HELP: &str = "\
Examples:
  trellis doctor
  trellis doctor gpu --host       GPUs that are to be passed through to VMs
  trellis doctor opennebula -f federation.yaml    the OpenNebula sites of a document
  trellis doctor -o json | jq -r '.checks[] | select(.verdict != \"ok\") | .fix'

It changes nothing. Exit codes: 0 all is well, or there are warnings; 1 there are problems.
";

/// Check this machine: ports, disk, clock, Python and flwr, TLS, GPU, the server; with a fix for what is wrong
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DoctorArgs {
    #[command(subcommand)]
    part: Option<Part>,

    #[command(flatten)]
    output: OutputArgs,
}

/// What is looked at more closely.
#[derive(Debug, Subcommand)]
enum Part {
    Gpu(gpu::GpuArgs),
    #[command(name = "opennebula")]
    OpenNebula(opennebula::OpenNebulaArgs),
}

#[derive(Debug, Serialize)]
struct Report {
    problems: usize,
    warnings: usize,
    checks: Vec<Check>,
}

impl Report {
    fn new(checks: Vec<Check>) -> Report {
        let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
        Report { problems: count(Verdict::Problem), warnings: count(Verdict::Warning), checks }
    }

    /// A line for each check, and what to do below those that need it.
    fn text(&self, colours: bool) -> String {
        let width = |length: fn(&Check) -> usize| self.checks.iter().map(length).max().unwrap_or(0);
        let (verdicts, names) = (width(|check| check.verdict.name().len()), width(|check| check.name.len()));
        let mut text = String::new();
        for Check { name, verdict, found, fix } in &self.checks {
            let tone = match verdict {
                Verdict::Ok => Tone::Good,
                Verdict::Warning => Tone::Plain,
                Verdict::Problem => Tone::Bad,
            };
            let word = format!("{:<verdicts$}", verdict.name());
            let word = if colours { painted(&word, tone) } else { word };
            text += &format!("{word}  {name:<names$}  {}\n", clean(found));
            if let Some(fix) = fix {
                text += &format!("{:verdicts$}  {:names$}  to do: {}\n", "", "", clean(fix));
            }
        }
        text + &format!("\n{}\n", self.summary())
    }

    fn summary(&self) -> String {
        let counted = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        match (self.problems, self.warnings) {
            (0, 0) => "All is well.".to_owned(),
            (0, warnings) => format!("{}, no problems.", counted(warnings, "warning")),
            (problems, 0) => format!("{}.", counted(problems, "problem")),
            (problems, warnings) => format!("{}, {}.", counted(problems, "problem"), counted(warnings, "warning")),
        }
    }
}

pub fn run(args: &DoctorArgs) -> ExitCode {
    match &args.part {
        Some(Part::Gpu(args)) => return gpu::run(args),
        Some(Part::OpenNebula(args)) => return opennebula::run(args),
        None => {}
    }
    let home = Home::find(None);
    let mut problems = 0;
    let told = remote::run(CALLED, async {
        let report = Report::new(judge::judge(&look::look(home.as_ref()).await));
        problems = report.problems;
        args.output.print(&report, || print(&report.text(colours())));
        Ok::<(), Trouble>(())
    });
    if problems > 0 { ExitCode::FAILURE } else { told }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_like_a_list() {
        let report = Report::new(vec![
            Check::ok("clock", "2026-11-15T09:00:00Z"),
            Check::warning("ports", "8000 is taken by x\u{1b}[2J, pid 4", "end it"),
            Check::problem("home", "/x cannot be written to", "chmod it"),
        ]);
        let expected = "\
ok       clock  2026-11-15T09:00:00Z
warning  ports  8000 is taken by x\u{fffd}[2J, pid 4
                to do: end it
problem  home   /x cannot be written to
                to do: chmod it

1 problem, 1 warning.
";
        assert_eq!(report.text(false), expected);
        assert_eq!(Report::new(vec![Check::ok("a", "b")]).summary(), "All is well.");
        assert_eq!(Report::new(vec![Check::warning("a", "b", "c")]).summary(), "1 warning, no problems.");
    }

    #[test]
    fn programs_read_it_too() {
        let report = Report::new(vec![Check::ok("a", "b"), Check::problem("c", "d", "e")]);
        let expected = serde_json::json!({
            "problems": 1,
            "warnings": 0,
            "checks": [
                { "name": "a", "verdict": "ok", "found": "b" },
                { "name": "c", "verdict": "problem", "found": "d", "fix": "e" },
            ],
        });
        assert_eq!(serde_json::to_value(&report).unwrap(), expected);
    }
}

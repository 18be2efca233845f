//! The checks of one run, as text for people and as data for programs.

use serde::Serialize;
use trellis_terminal::{Tone, clean, painted};

use crate::check::{Check, Verdict};

#[derive(Debug, Serialize)]
pub struct Report {
    pub problems: usize,
    pub warnings: usize,
    pub checks: Vec<Check>,
}

impl Report {
    pub fn new(checks: Vec<Check>) -> Report {
        let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
        Report { problems: count(Verdict::Problem), warnings: count(Verdict::Warning), checks }
    }

    /// A line per check, followed by its fix, and a summary.
    pub fn text(&self, colours: bool) -> String {
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
            (0, 0) => "No problems.".to_owned(),
            (0, warnings) => format!("{}, no problems.", counted(warnings, "warning")),
            (problems, 0) => format!("{}.", counted(problems, "problem")),
            (problems, warnings) => format!("{}, {}.", counted(problems, "problem"), counted(warnings, "warning")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_lists_checks_and_fixes() {
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
        assert_eq!(Report::new(vec![Check::ok("a", "b")]).summary(), "No problems.");
        assert_eq!(Report::new(vec![Check::warning("a", "b", "c")]).summary(), "1 warning, no problems.");
    }

    #[test]
    fn a_report_as_json() {
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

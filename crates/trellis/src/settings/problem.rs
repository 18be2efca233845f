//! The sources of settings, and the report of problems with them. Knows no flags.

use std::fmt;
use std::path::PathBuf;

use trellis_diagnostic::{Diagnostic, numbered};

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    CommandLine,
    Environment(String),
    File { path: PathBuf, line: usize },
    Default,
}

impl Source {
    /// This source, with the name of the setting there.
    pub fn locate(&self, name: &str) -> String {
        match self {
            Self::CommandLine => format!("command line, --{name}"),
            Self::File { .. } => format!("{self}, {name}"),
            Self::Environment(_) => self.to_string(),
            Self::Default => format!("default of --{name}"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommandLine => f.write_str("command line"),
            Self::Environment(variable) => write!(f, "environment variable {variable}"),
            Self::File { path, line } => write!(f, "{} line {line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// All problems as one numbered list.
pub fn report(called: &str, problems: &[Diagnostic]) -> String {
    let count = match problems.len() {
        1 => "1 problem".to_owned(),
        many => format!("{many} problems"),
    };
    let list = numbered(problems);
    format!("{called}: {count} with the arguments, nothing was started\n{list}\nAll flags: {called} --help\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_as_a_list() {
        let place = Source::File { path: "link.toml".into(), line: 3 }.locate("database");
        let problems = [
            Diagnostic::error(Source::CommandLine.to_string(), "unknown flag --x", "remove it"),
            Diagnostic::error(place, "--database has no value", "give one"),
        ];
        let expected = "\
trellis superlink: 2 problems with the arguments, nothing was started

  1. unknown flag --x
     where: command line
     to do: remove it

  2. --database has no value
     where: link.toml line 3, database
     to do: give one

All flags: trellis superlink --help
";
        assert_eq!(report("trellis superlink", &problems), expected);
    }
}

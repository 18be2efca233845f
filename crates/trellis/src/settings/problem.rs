//! A reason not to start, as told to the user: what is wrong, where it came from, what to do. Knows no flags.

use std::fmt::{self, Write};
use std::path::PathBuf;

/// The place that set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    CommandLine,
    Environment(String),
    File { path: PathBuf, line: usize },
    Default,
}

impl Source {
    /// This place and what the setting `name` is called there.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub what: String,
    pub place: String,
    pub advice: String,
}

impl Problem {
    pub fn new(what: impl Into<String>, place: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what: what.into(), place: place.into(), advice: advice.into() }
    }
}

/// All problems as one numbered list.
pub fn report(called: &str, problems: &[Problem]) -> String {
    let count = match problems.len() {
        1 => "1 problem".to_owned(),
        many => format!("{many} problems"),
    };
    let mut text = format!("{called}: {count} with the arguments, nothing was started\n");
    for (index, Problem { what, place, advice }) in problems.iter().enumerate() {
        let number = index + 1;
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{number:>3}. {what}\n     where: {place}\n     to do: {advice}\n");
    }
    let _ = write!(text, "\nAll flags: {called} --help\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_as_a_list() {
        let place = Source::File { path: "link.toml".into(), line: 3 }.locate("database");
        let problems = [
            Problem::new("unknown flag --x", Source::CommandLine.to_string(), "remove it"),
            Problem::new("--database has no value", place, "give one"),
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

//! What is wrong with files or wishes, as told to an operator: where, what, and what to do. Knows no certificates.

use std::fmt;
use std::path::Path;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It cannot be used like this.
    Error,
    /// It can be used, and an operator should know.
    Warning,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub severity: Severity,
    /// The file, or the flag.
    pub place: String,
    pub what: String,
    pub advice: String,
}

impl Problem {
    pub fn error(place: impl Into<String>, what: impl Into<String>, advice: impl Into<String>) -> Problem {
        Problem { severity: Severity::Error, place: place.into(), what: what.into(), advice: advice.into() }
    }

    pub fn warning(place: impl Into<String>, what: impl Into<String>, advice: impl Into<String>) -> Problem {
        Problem { severity: Severity::Warning, ..Problem::error(place, what, advice) }
    }

    pub(crate) fn in_file(path: &Path, what: impl Into<String>, advice: impl Into<String>) -> Problem {
        Problem::error(path.display().to_string(), what, advice)
    }
}

/// One line, for a log.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (to do: {})", self.place, self.what, self.advice)
    }
}

//! The result of one check: verdict, finding, fix.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Ok,
    /// It works, but with restrictions, or not for much longer.
    Warning,
    /// Something does not work.
    Problem,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Problem => "problem",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub verdict: Verdict,
    pub found: String,
    /// The advice. Present unless the verdict is ok.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Check {
    pub fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Ok, found: found.into(), fix: None }
    }

    pub fn warning(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Warning, found: found.into(), fix: Some(fix.into()) }
    }

    pub fn problem(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Problem, found: found.into(), fix: Some(fix.into()) }
    }
}

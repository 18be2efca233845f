//! Prepares a submission: turns a request into a bundle and the values of its run, or returns all errors. Reads the app and
//! makes no calls; it does not know whether the request came from a command line or an API.

mod draft;
mod source;
mod value;

use std::collections::{BTreeMap, HashMap};

use trellis_diagnostic::Diagnostic;
use trellis_wire::fab::Bundle;
use trellis_wire::proto;

use crate::settings::Settings;
use draft::Draft;
pub use source::{NATIVE, ServerAppChoice, Source};
pub use value::to_toml;

const STRATEGY: &str = "strategy";
const ROUNDS: &str = "num-server-rounds";

/// A requested run.
#[derive(Debug)]
pub struct Request {
    pub source: Source,
    pub given: Vec<Given>,
    /// Defaults for keys that were not given. Keys that neither the app nor the training has are ignored.
    pub defaults: BTreeMap<String, String>,
    pub location: Location,
}

/// A given value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The name that the user typed: `--rounds`.
    pub written: String,
    pub key: String,
    pub text: String,
}

/// Where the run executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// In this process, with this many nodes.
    InProcess { nodes: usize },
    /// On a SuperLink, with this many nodes if the number is known.
    SuperLink { nodes: Option<usize> },
}

/// The submitted bundle and values.
#[derive(Debug)]
pub struct Submission {
    pub bundle: Bundle,
    /// Values that override those of the app.
    pub values: HashMap<String, proto::Scalar>,
    /// The settings of the training; `None` if the app's own ServerApp trains.
    pub training: Option<Settings>,
    /// The ClientApp, if our SuperNodes contain it.
    pub built_in: Option<BuiltIn>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltIn {
    pub name: String,
    pub settings: BTreeMap<String, String>,
}

/// Prepares a submission; returns all errors at once.
pub fn prepare(request: Request) -> Result<Submission, Vec<Diagnostic>> {
    let mut errors = Vec::new();
    let draft = Draft::fill(request, &mut errors);
    match draft.finish(&mut errors) {
        Some(submission) if errors.is_empty() => Ok(submission),
        _ => Err(errors),
    }
}

impl Submission {
    /// A description of the run without the SuperLink's defaults, which apply to values that were not given.
    pub fn sent(&self) -> String {
        let metadata = &self.bundle.metadata;
        let app = format!("{} {}", metadata.id(), metadata.version);
        let Some(training) = &self.training else { return format!("{app}, with its own ServerApp") };
        let is_given = |key: &str| self.values.contains_key(key);
        let strategy = is_given(STRATEGY).then(|| training.strategy.name().to_owned());
        let rounds = is_given(ROUNDS).then(|| rounds(training.rounds));
        [Some(app), strategy, rounds].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// A short description.
    pub fn summary(&self) -> String {
        let metadata = &self.bundle.metadata;
        let app = format!("{} {}", metadata.id(), metadata.version);
        match &self.training {
            Some(training) => {
                format!("{app}, {}, {}", training.strategy.name(), rounds(training.rounds))
            }
            None => format!("{app}, with its own ServerApp"),
        }
    }
}

fn rounds(number: u64) -> String {
    format!("{number} round{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;

//! From what was asked for to what is sent: a bundle and the values of its run; or everything that is wrong with it. Reads the
//! app, and calls nobody; how somebody asked, by a command line or a call, is not known here.

mod draft;
mod source;
mod value;

use std::collections::{BTreeMap, HashMap};

use trellis_wire::fab::Bundle;
use trellis_wire::proto;

use crate::settings::{Problem, Settings};
use draft::Draft;
pub use source::{NATIVE, ServerAppChoice, Source};
pub use value::to_toml;

const STRATEGY: &str = "strategy";
const ROUNDS: &str = "num-server-rounds";

/// What is wanted.
#[derive(Debug)]
pub struct Request {
    pub source: Source,
    pub given: Vec<Given>,
    /// Keys and values for what was not given. Those that neither the app nor the training has are left out.
    pub defaults: BTreeMap<String, String>,
    pub place: Place,
}

/// One value that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// As whoever gave it calls it: `--rounds`.
    pub written: String,
    pub key: String,
    pub text: String,
}

/// Where the run will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In this process, with so many nodes.
    Here { nodes: usize },
    /// On a SuperLink; with so many nodes, where that is known.
    There { nodes: Option<usize> },
}

/// What is sent.
#[derive(Debug)]
pub struct Submission {
    pub bundle: Bundle,
    /// Of the run, in place of those that the app has.
    pub values: HashMap<String, proto::Scalar>,
    /// How it is trained; `None`: the app's own ServerApp knows.
    pub training: Option<Settings>,
    /// The ClientApp, where it is part of our SuperNodes.
    pub built_in: Option<BuiltIn>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltIn {
    pub name: String,
    pub settings: BTreeMap<String, String>,
}

/// Makes of a request what is sent, or tells everything that is wrong with it.
pub fn prepare(request: Request) -> Result<Submission, Vec<Problem>> {
    let mut problems = Vec::new();
    let draft = Draft::fill(request, &mut problems);
    match draft.finish(&mut problems) {
        Some(submission) if problems.is_empty() => Ok(submission),
        _ => Err(problems),
    }
}

impl Submission {
    /// What is known of the run before a SuperLink has it, whose defaults count for everything that was not given.
    pub fn sent(&self) -> String {
        let metadata = &self.bundle.metadata;
        let app = format!("{} {}", metadata.id(), metadata.version);
        let Some(training) = &self.training else { return format!("{app}, with its own ServerApp") };
        let is_given = |key: &str| self.values.contains_key(key);
        let strategy = is_given(STRATEGY).then(|| training.strategy.name().to_owned());
        let rounds = is_given(ROUNDS).then(|| rounds(training.rounds));
        [Some(app), strategy, rounds].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// In a few words.
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

//! Federations and their runs, as the API offers them: a controller for each federation, someone who watches its SuperLink,
//! and what changes told to whoever listens. Knows nothing of HTTP.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::broadcast;
use trellis_api::{
    Apps, Connection, Detail, Event, FederationDetail, FederationSummary, LogPart, NewRun, Node, PlanReport, Run,
    TrainingRounds,
};
use trellis_registry::Registry;

#[derive(Debug, Clone)]
pub struct PlatformSettings {
    /// The registry, and what the local driver keeps, are in it.
    pub directory: PathBuf,
    /// Our own program, which the local driver starts.
    pub program: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {}

/// Why something was not done. The HTTP side makes a problem document of it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// There is no such federation, node or run.
    #[error("{0}")]
    NotFound(String),
    /// What was sent cannot be used; everything that is wrong with it.
    #[error("{what}")]
    Invalid { what: String, problems: Vec<Detail> },
    /// It does not fit what is there now: another revision, being deleted.
    #[error("{0}")]
    Conflict(String),
    /// It may work later: the SuperLink does not answer yet.
    #[error("{0}")]
    NotNow(String),
    /// The SuperLink said no.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Broken(String),
}

pub struct Applied {
    pub detail: FederationDetail,
    pub created: bool,
    pub changed: bool,
    /// Of the document.
    pub warnings: Vec<String>,
}

pub struct Platform;

impl Platform {
    /// Goes on with every federation in the registry.
    pub async fn start(_settings: PlatformSettings) -> Result<Arc<Platform>, StartError> {
        unimplemented!()
    }

    /// Lets controllers go. What they made goes on.
    pub async fn stop(&self) {
        unimplemented!()
    }

    /// For tokens.
    pub fn registry(&self) -> &Registry {
        unimplemented!()
    }

    /// What happens from now on. A receiver that lags has missed something.
    pub fn events(&self) -> broadcast::Receiver<Arc<Event>> {
        unimplemented!()
    }

    /// By name. From memory: nobody is asked.
    pub fn federations(&self) -> Vec<Arc<FederationSummary>> {
        unimplemented!()
    }

    pub fn federation(&self, _name: &str) -> Result<FederationDetail, Refusal> {
        unimplemented!()
    }

    /// By name. From memory.
    pub fn nodes(&self, _name: &str) -> Result<Vec<Node>, Refusal> {
        unimplemented!()
    }

    /// What `apply` would do with this document. `file` is named in problems.
    pub async fn plan(&self, _text: &str, _file: &str) -> Result<PlanReport, Refusal> {
        unimplemented!()
    }

    /// What is to be done now for a federation as it is, and why not more.
    pub async fn current_plan(&self, _name: &str) -> Result<PlanReport, Refusal> {
        unimplemented!()
    }

    /// Keeps a document with exactly one federation of this name. `expected`: only if its revision is this (0: only if new).
    pub async fn apply(&self, _name: &str, _text: &str, _expected: Option<u64>) -> Result<Applied, Refusal> {
        unimplemented!()
    }

    /// Changes the count of a pool, as a change of the document.
    pub async fn scale(&self, _name: &str, _pool: &str, _count: u32) -> Result<Applied, Refusal> {
        unimplemented!()
    }

    /// Nothing of it is to be left. Repeated: the same.
    pub async fn delete(&self, _name: &str) -> Result<(), Refusal> {
        unimplemented!()
    }

    pub async fn connection(&self, _name: &str) -> Result<Connection, Refusal> {
        unimplemented!()
    }

    /// Newest first.
    pub async fn runs(&self, _name: &str) -> Result<Vec<Run>, Refusal> {
        unimplemented!()
    }

    pub async fn run(&self, _name: &str, _run: &str) -> Result<Run, Refusal> {
        unimplemented!()
    }

    pub async fn start_run(&self, _name: &str, _new: &NewRun) -> Result<Run, Refusal> {
        unimplemented!()
    }

    /// One that is over: the same, and it is said how it ended.
    pub async fn stop_run(&self, _name: &str, _run: &str) -> Result<Run, Refusal> {
        unimplemented!()
    }

    /// Reports after a round.
    pub async fn rounds(&self, _name: &str, _run: &str, _after: Option<u64>) -> Result<TrainingRounds, Refusal> {
        unimplemented!()
    }

    /// What the log of a run has after a place (empty: from the beginning). With `wait` it waits a while for more.
    pub async fn run_log(&self, _name: &str, _run: &str, _after: &str, _wait: bool) -> Result<LogPart, Refusal> {
        unimplemented!()
    }

    /// The same for the program of the coordinator or a node: `coordinator`, or its name. Without `after`: the last lines.
    pub async fn part_log(
        &self,
        _name: &str,
        _part: &str,
        _after: Option<&str>,
        _wait: bool,
    ) -> Result<LogPart, Refusal> {
        unimplemented!()
    }

    /// What can be run without bringing an app.
    pub fn apps(&self) -> Apps {
        unimplemented!()
    }
}

//! The run that is tracked, as every sink sees it, and where its reports come from.

use std::collections::BTreeMap;
use std::future::Future;

use serde_json::Value;
use trellis_wire::report::TrainingReport;

/// Settings by name: truth values, numbers and texts.
pub type Parameters = BTreeMap<String, Value>;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunFacts {
    /// Digits.
    pub id: String,
    /// `publisher/name`.
    pub app: String,
    pub version: String,
    /// Empty: the SuperLink belongs to no federation of a server.
    pub federation: String,
    /// Trellis aggregates, not a ServerApp in Python.
    pub native: bool,
    /// The settings of this run, as far as they are known.
    pub parameters: Parameters,
    /// Seconds since 1970.
    pub submitted_at: f64,
    /// `None`: the run has not finished.
    pub ended: Option<Ended>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ended {
    /// `completed`, `failed` or `stopped`.
    pub status: String,
    pub details: String,
    /// Seconds since 1970.
    pub at: f64,
}

/// Tells of one run. An error is its reason, for people; the tracker asks again.
pub trait Source: Send + 'static {
    fn facts(&mut self) -> impl Future<Output = Result<RunFacts, String>> + Send;

    /// Reports of the rounds after this one (`None`: of all rounds), and whether there are more of them.
    fn reports(
        &mut self,
        after_round: Option<u64>,
    ) -> impl Future<Output = Result<(Vec<TrainingReport>, bool), String>> + Send;
}

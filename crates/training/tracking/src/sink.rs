//! What takes points, and what became of them.

use std::fmt;
use std::future::Future;

use serde::Serialize;

use crate::mlflow::{Mlflow, Model};
use crate::point::Point;
use crate::run::RunFacts;
use crate::tensorboard::TensorBoard;

/// Why a sink did not take what it was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The same call may succeed later.
    #[error("{0}")]
    Passing(String),
    /// The sink refuses this; it may take other things.
    #[error("{0}")]
    Refused(String),
    /// The sink will take nothing.
    #[error("{0}")]
    Final(String),
}

/// A run in one tracker. A call that failed may be repeated: a point never counts twice.
pub trait Sink: Send + 'static {
    /// In the results of commands.
    const KIND: &'static str;
    /// For people.
    const TITLE: &'static str;
    /// Points of one call.
    const MAX_POINTS: usize;
    /// It keeps models.
    const TAKES_MODELS: bool;

    fn place(&self) -> String;

    fn deliver(&mut self, run: &RunFacts, points: &[Point]) -> impl Future<Output = Result<(), Failure>> + Send;

    /// The run is over, or not tracked any longer. With all that is known of it.
    fn end(&mut self, run: &RunFacts) -> impl Future<Output = Result<(), Failure>> + Send;

    fn keep(&mut self, run: &RunFacts, model: &Model) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Where the points of a run go.
#[derive(Debug, Default)]
pub struct Sinks {
    pub tensorboard: Option<TensorBoard>,
    pub mlflow: Option<Mlflow>,
}

/// What a sink has taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Delivery {
    /// `tensorboard` or `mlflow`.
    pub sink: &'static str,
    #[serde(skip)]
    pub title: &'static str,
    pub place: String,
    pub delivered: u64,
    pub not_delivered: u64,
    pub model: bool,
    /// What is missing, and why.
    pub problems: Vec<String>,
}

impl Delivery {
    pub fn is_complete(&self) -> bool {
        self.problems.is_empty()
    }
}

/// One line: `MLflow at http://127.0.0.1:5000: 12 of 120 points not delivered: connection refused`.
impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Delivery { title, place, delivered, problems, .. } = self;
        match problems.as_slice() {
            [] => {
                let model = if self.model { " and the model" } else { "" };
                write!(f, "{title} {place}: {delivered} points{model} delivered")
            }
            problems => write!(f, "{title} {place}: {}", problems.join("; ")),
        }
    }
}

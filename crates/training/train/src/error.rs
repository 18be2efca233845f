//! Why a training ended before its end.

use std::io;

use trellis_client::app::AppError;
use trellis_core::id::NodeId;
use trellis_models::ModelError;
use trellis_strategy::Fault;

use crate::settings::Problem;
use crate::spool::SpoolError;

#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The SuperLink, or the end of the run.
    #[error(transparent)]
    App(#[from] AppError),
    #[error("the app of the run cannot be used: {0}")]
    Fab(#[from] trellis_wire::fab::BadFab),
    #[error("the settings of the training are wrong:{}", list(.0))]
    Settings(Vec<Problem>),
    #[error("there is no model to begin with: {0}")]
    NoFirstModel(String),
    #[error("the training cannot go on from the checkpoint: {0}")]
    Resume(String),
    #[error("a model cannot be read or kept")]
    Models(#[from] ModelError),
    #[error("node {node} sent a reply that is not to be used: {why} (non-finite = \"fail\" ends the run then)")]
    NotFinite { node: NodeId, why: String },
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error("the replies of round {round} cannot be aggregated")]
    Aggregation { round: u64, source: Fault },
    #[error("nothing was learned, in none of the rounds ({rounds}): {why}")]
    InVain { rounds: u64, why: String },
    #[error("the directory for replies, {path}, cannot be made")]
    SpoolDirectory { path: String, source: io::Error },
    #[error("a part of the program broke: {0}")]
    Broken(String),
}

impl TrainError {
    /// Whether somebody has ended the run: then it is no failure of the training.
    pub fn is_run_over(&self) -> bool {
        matches!(self, TrainError::App(AppError::RunOver { .. }))
    }

    /// With everything that caused it, in one line.
    pub fn told(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let told = error.to_string();
            // Some errors tell their cause themselves.
            if !text.ends_with(&told) {
                text = format!("{text}: {told}");
            }
            cause = error.source();
        }
        text
    }
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}

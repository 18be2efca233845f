//! Why a training failed.

use std::io;

use trellis_client::app::AppError;
use trellis_core::id::NodeId;
use trellis_diagnostic::{Diagnostic, joined};
use trellis_models::ModelError;
use trellis_strategy::AggregateError;

use crate::spool::SpoolError;

#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The SuperLink failed, or the run has ended.
    #[error(transparent)]
    App(#[from] AppError),
    #[error("the app of the run cannot be used: {0}")]
    Fab(#[from] trellis_wire::fab::BadFab),
    #[error("the settings of the training are invalid:\n  {}", joined(.0, "\n  "))]
    Settings(Vec<Diagnostic>),
    #[error("there is no initial model: {0}")]
    NoInitialModel(String),
    #[error("the training cannot resume from the checkpoint: {0}")]
    Resume(String),
    #[error("a model cannot be read or saved")]
    Models(#[from] ModelError),
    #[error("node {node} sent an unusable reply: {reason} (non-finite = \"fail\" ends the run)")]
    NonFinite { node: NodeId, reason: String },
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error("the replies of round {round} cannot be aggregated")]
    Aggregation { round: u64, source: AggregateError },
    #[error("no round ({rounds} in total) produced a new model: {reason}")]
    Failed { rounds: u64, reason: String },
    #[error("the spool directory {path} cannot be created")]
    SpoolDirectory { path: String, source: io::Error },
    #[error("internal error: {0}")]
    Internal(String),
}

impl TrainError {
    /// Whether the run was stopped or has ended, which is not a failure of the training.
    pub fn is_run_over(&self) -> bool {
        matches!(self, TrainError::App(AppError::RunOver { .. }))
    }

    /// The error with its causes, in one line.
    pub fn explain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let cause_text = error.to_string();
            // Some errors include their cause in their text.
            if !text.ends_with(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            cause = error.source();
        }
        text
    }
}

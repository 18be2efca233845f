//! Why a model cannot be saved or read, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("cannot {action} {}", path.display())]
    Disk { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{run:?} is not a valid run id: a run id names a directory, so it is one word without / that begins with a letter or a digit"
    )]
    RunId { run: String },
    #[error("run {run} has no checkpoints in {}; `trellis model ls` lists all checkpoints", root.display())]
    NoRun { run: String, root: PathBuf },
    #[error("run {run} has no checkpoint of round {round}; it has checkpoints of {}", rounds(present))]
    NoRound { run: String, round: u64, present: Vec<u64> },
    #[error("{} contains no checkpoint; give the directory of a checkpoint (round-...), or of a run", path.display())]
    NoCheckpoint { path: PathBuf },
    #[error("the checkpoint {} is damaged: {}; resume from another one, or restore it from a backup", path.display(), errors.join("; "))]
    Damaged { path: PathBuf, errors: Vec<String> },
    #[error("{} was written by a newer Trellis (checkpoint format {found}; this one reads up to {known}); use the newer Trellis", path.display())]
    TooNew { path: PathBuf, found: u32, known: u32 },
    #[error("no checkpoint in {} can be read: {}", path.display(), explain_all(skipped))]
    AllUnusable { path: PathBuf, skipped: Vec<ModelError> },
    #[error("another process is saving checkpoints in {} and does not finish; stop it, or use another directory", path.display())]
    InUse { path: PathBuf },
    #[error("the model cannot be written: {}", errors.join("; "))]
    Unfit { errors: Vec<String> },
    #[error("{} cannot be read as a model: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("{} exists; choose another file, or allow to overwrite it", path.display())]
    Exists { path: PathBuf },
}

impl ModelError {
    pub(crate) fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ModelError {
        let path = path.to_owned();
        move |source| ModelError::Disk { action, path, source }
    }

    pub(crate) fn damaged(path: &Path, error: impl Into<String>) -> ModelError {
        ModelError::Damaged { path: path.to_owned(), errors: vec![error.into()] }
    }

    pub(crate) fn unreadable(path: &Path, reason: impl Into<String>) -> ModelError {
        ModelError::Unreadable { path: path.to_owned(), reason: reason.into() }
    }

    /// Whether an older checkpoint may replace this one: its content is lost, not merely unavailable.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, ModelError::Damaged { .. })
    }
}

fn rounds(present: &[u64]) -> String {
    let rounds: Vec<String> = present.iter().map(u64::to_string).collect();
    if rounds.len() == 1 { format!("round {}", rounds[0]) } else { format!("rounds {}", rounds.join(", ")) }
}

fn explain_all(skipped: &[ModelError]) -> String {
    let with_cause = |error: &ModelError| match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    skipped.iter().map(with_cause).collect::<Vec<_>>().join("; ")
}

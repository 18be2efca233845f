//! Why a model cannot be kept or read, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("cannot {action} {}", path.display())]
    Disk { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{run:?} cannot be the id of a run: it names a directory, so it is one word without / that begins with a letter or a digit"
    )]
    RunId { run: String },
    #[error("there are no checkpoints of run {run} in {}; `trellis model ls` shows what is there", root.display())]
    NoRun { run: String, root: PathBuf },
    #[error("run {run} has no checkpoint of round {round}; there are those of {}", rounds(present))]
    NoRound { run: String, round: u64, present: Vec<u64> },
    #[error("{} holds no checkpoint; give the directory of one (round-...), or that of a run", path.display())]
    NoCheckpoint { path: PathBuf },
    #[error("the checkpoint {} is damaged: {}; resume from another one, or restore it from a backup", path.display(), problems.join("; "))]
    Damaged { path: PathBuf, problems: Vec<String> },
    #[error("{} was written by a newer Trellis (checkpoint format {found}, this one knows {known}); use that one", path.display())]
    TooNew { path: PathBuf, found: u32, known: u32 },
    #[error("no checkpoint in {} can be read: {}", path.display(), problems(skipped))]
    AllUnusable { path: PathBuf, skipped: Vec<ModelError> },
    #[error("another process is saving checkpoints in {} and does not end; stop it, or use another directory", path.display())]
    InUse { path: PathBuf },
    #[error("the model cannot be written: {}", problems.join("; "))]
    Unfit { problems: Vec<String> },
    #[error("{} cannot be read as a model: {why}", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("{} exists; name another file, or say that it may be overwritten", path.display())]
    Exists { path: PathBuf },
}

impl ModelError {
    pub(crate) fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ModelError {
        let path = path.to_owned();
        move |source| ModelError::Disk { action, path, source }
    }

    pub(crate) fn damaged(path: &Path, problem: impl Into<String>) -> ModelError {
        ModelError::Damaged { path: path.to_owned(), problems: vec![problem.into()] }
    }

    pub(crate) fn unreadable(path: &Path, why: impl Into<String>) -> ModelError {
        ModelError::Unreadable { path: path.to_owned(), why: why.into() }
    }

    /// Whether an older checkpoint may be taken instead: this one is lost, not merely out of reach.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, ModelError::Damaged { .. })
    }
}

fn rounds(present: &[u64]) -> String {
    let rounds: Vec<String> = present.iter().map(u64::to_string).collect();
    if rounds.len() == 1 { format!("round {}", rounds[0]) } else { format!("rounds {}", rounds.join(", ")) }
}

fn problems(skipped: &[ModelError]) -> String {
    let with_cause = |error: &ModelError| match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    skipped.iter().map(with_cause).collect::<Vec<_>>().join("; ")
}

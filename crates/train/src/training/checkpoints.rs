//! Checkpoints of a training: when, what is in them, and what was in the one that it goes on from.

use std::path::{Path, PathBuf};

use serde_json::Value;
use trellis_models::{App as AppFacts, Checkpoint, Manifest, Measured, ModelStore};
use trellis_strategy::State;
use trellis_wire::proto::scalar::Scalar;

use super::{Training, now_s};
use crate::error::TrainError;
use crate::exchange::Speech;
use crate::receive::blocking;
use crate::settings::Checkpoints;

/// Names in what is remembered beside the strategy: those of privacy begin so.
const PRIVACY: &str = "dp-";
/// Rounds whose noise the model has.
pub const PRIVATE_ROUNDS: &str = "dp-rounds";
/// Turns of nodes.
const TURNS: &str = "cyclic-order";
/// The app has a `client_fn`.
const LEGACY: &str = "app-client-fn";

/// Keeps checkpoints.
pub struct Keeper {
    settings: Checkpoints,
    directory: PathBuf,
    /// The newest one.
    pub last: Option<PathBuf>,
}

impl Keeper {
    pub fn new(settings: Checkpoints, models_dir: &Path) -> Keeper {
        let directory = match &settings.directory {
            Some(directory) => models_dir.join(directory),
            None => models_dir.to_owned(),
        };
        Keeper { settings, directory, last: None }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn is_due(&self, round: u64, is_last: bool) -> bool {
        is_last || round.is_multiple_of(self.settings.every)
    }
}

impl Training {
    /// Keeps a checkpoint, if one is due. One on the way that cannot be kept is told of; without the last one the training
    /// was for nothing.
    pub(super) async fn save(&mut self, is_last: bool) -> Result<Option<PathBuf>, TrainError> {
        let Some(keeper) = self.keeper.as_ref().filter(|keeper| keeper.is_due(self.round, is_last)) else {
            return Ok(None);
        };
        let (store, keep) = (ModelStore::new(&keeper.directory), keeper.settings.keep);
        let checkpoint = self.checkpoint(is_last);
        let saved = blocking(move || {
            let path = store.save(&checkpoint)?;
            // What cannot be removed is in nobody's way today.
            let removed = store.retain(&checkpoint.manifest.run_id, keep);
            Ok::<_, trellis_models::ModelError>((path, removed.err()))
        });
        match saved.await? {
            Ok((path, trouble)) => {
                if let Some(trouble) = trouble {
                    self.book.warn(format!("old checkpoints cannot be removed: {}", TrainError::from(trouble).told()));
                }
                self.keeper.as_mut().expect("it was here").last = Some(path.clone());
                Ok(Some(path))
            }
            Err(error) if is_last => Err(error.into()),
            Err(error) => {
                self.book.warn(format!("no checkpoint of round {}: {}", self.round, TrainError::from(error).told()));
                Ok(None)
            }
        }
    }

    fn checkpoint(&self, is_final: bool) -> Checkpoint {
        let state = self.server.state();
        let mut all = state.clone();
        all.numbers.extend(self.memory.numbers.clone());
        all.models.extend(self.memory.models.clone());
        if self.speech == Speech::Legacy {
            all.numbers.insert(LEGACY.to_owned(), 1.0);
        }
        let metrics = self.progress.measured.last().filter(|measured| measured.round == self.round).cloned();
        let manifest = Manifest {
            run_id: self.facts.run_id.to_string(),
            round: self.round,
            rounds_planned: self.settings.rounds,
            is_final,
            strategy: self.settings.strategy.name().to_owned(),
            seed: self.seed,
            run_config: self
                .facts
                .run_config
                .iter()
                .map(|(name, value)| (name.clone(), json(value.scalar.as_ref())))
                .collect(),
            metrics: metrics.unwrap_or(Measured { round: self.round, ..Measured::default() }),
            history: self.progress.measured.clone(),
            state_numbers: all.numbers.clone(),
            app: AppFacts {
                fab_id: self.facts.fab_id.clone(),
                fab_version: self.facts.fab_version.clone(),
                fab_hash: self.facts.fab_hash.clone(),
            },
            resumed_from: self.origin.clone(),
            saved_at: now_s(),
            ..Manifest::default()
        };
        Checkpoint { manifest, model: (*self.model).clone(), state: all }
    }
}

/// What belongs to the strategy, and what is remembered beside it.
pub fn split(state: State) -> (State, State) {
    let is_ours = |name: &str| name.starts_with(PRIVACY) || name == LEGACY;
    let (ours, numbers) = state.numbers.into_iter().partition(|(name, _)| is_ours(name));
    let (our_models, models) = state.models.into_iter().partition(|(name, _)| name == TURNS);
    (State { models, numbers }, State { models: our_models, numbers: ours })
}

pub fn is_legacy(memory: &State) -> bool {
    memory.numbers.contains_key(LEGACY)
}

fn json(scalar: Option<&Scalar>) -> Value {
    match scalar {
        Some(Scalar::Bool(on)) => Value::from(*on),
        Some(Scalar::Sint64(number)) => Value::from(*number),
        Some(Scalar::Uint64(number)) => Value::from(*number),
        Some(Scalar::Double(number)) => Value::from(*number),
        Some(Scalar::String(text)) => Value::from(text.as_str()),
        Some(Scalar::Bytes(_)) | None => Value::Null,
    }
}

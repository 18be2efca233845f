//! Checkpoints of a training: when they are saved, their content, and the state of the one that a training resumes from.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use trellis_models::{App as AppFacts, Checkpoint, Manifest, Measured, ModelStore};
use trellis_strategy::State;
use trellis_wire::proto::scalar::Scalar;

use super::{Training, now_s};
use crate::error::TrainError;
use crate::exchange::MessageFormat;
use crate::receive::blocking;
use crate::settings::Checkpoints;

/// The prefix of privacy's keys in the extra state.
const PRIVACY: &str = "dp-";
/// The key of the order of turns.
const TURNS: &str = "cyclic-order";
/// The key for apps with a `client_fn`.
const LEGACY: &str = "app-client-fn";

/// Between requested checkpoints, a temporary one is saved after a round that took this many times longer than saving: an
/// interrupted training repeats no round that was worth more.
const WORTH_SAVES: u32 = 10;

/// Saves checkpoints.
pub struct Checkpointer {
    settings: Checkpoints,
    directory: PathBuf,
    /// The newest requested checkpoint.
    pub last: Option<PathBuf>,
    /// The round of the temporary checkpoint, which is removed after the next save.
    temporary: Option<u64>,
    /// The duration of the last save.
    cost: Duration,
}

/// Why a checkpoint is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The settings request it.
    Requested,
    /// To resume from until the next save.
    Temporary,
}

impl Checkpointer {
    pub fn new(settings: Checkpoints, models_dir: &Path) -> Checkpointer {
        let directory = match &settings.directory {
            Some(directory) => models_dir.join(directory),
            None => models_dir.to_owned(),
        };
        Checkpointer { settings, directory, last: None, temporary: None, cost: Duration::ZERO }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The run resumes from the checkpoint of this round.
    pub fn resumed_from(&mut self, round: u64, is_final: bool) {
        self.temporary = (!self.is_requested(round, is_final)).then_some(round);
    }

    fn is_requested(&self, round: u64, is_last: bool) -> bool {
        is_last || round.is_multiple_of(self.settings.every)
    }

    fn purpose(&self, round: u64, is_last: bool, took: Duration) -> Option<Purpose> {
        if self.is_requested(round, is_last) {
            return Some(Purpose::Requested);
        }
        (self.cost * WORTH_SAVES <= took).then_some(Purpose::Temporary)
    }
}

impl Training {
    /// Saves a checkpoint of the round, which took this long, if one is requested or worthwhile; returns the path of a requested
    /// one. Only a failure to save the last checkpoint is an error; others are logged.
    pub(super) async fn save(&mut self, is_last: bool, took: Duration) -> Result<Option<PathBuf>, TrainError> {
        let purpose =
            self.checkpointer.as_ref().and_then(|checkpointer| checkpointer.purpose(self.round, is_last, took));
        let (Some(checkpointer), Some(purpose)) = (&self.checkpointer, purpose) else { return Ok(None) };
        let (store, temporary) =
            (ModelStore::new(&checkpointer.directory), checkpointer.temporary.filter(|round| *round != self.round));
        let keep = checkpointer.settings.keep + usize::from(purpose == Purpose::Temporary);
        let checkpoint = self.checkpoint(is_last);
        let began = Instant::now();
        let saved = blocking(move || {
            let path = store.save(&checkpoint)?;
            let run = &checkpoint.manifest.run_id;
            // A failure to remove old checkpoints does not affect the training.
            let removed = temporary.map_or(Ok(()), |round| store.remove(run, round));
            Ok::<_, trellis_models::ModelError>((path, removed.and_then(|()| store.retain(run, keep)).err()))
        });
        match saved.await? {
            Ok((path, error)) => {
                if let Some(error) = error {
                    self.log.warn(format!("old checkpoints cannot be removed: {}", TrainError::from(error).explain()));
                }
                let checkpointer = self.checkpointer.as_mut().expect("set above");
                checkpointer.cost = began.elapsed();
                checkpointer.temporary = (purpose == Purpose::Temporary).then_some(self.round);
                let kept = (purpose == Purpose::Requested).then_some(path);
                checkpointer.last = kept.clone().or(checkpointer.last.take());
                Ok(kept)
            }
            Err(error) if is_last => Err(error.into()),
            Err(error) => {
                self.log.warn(format!("no checkpoint of round {}: {}", self.round, TrainError::from(error).explain()));
                Ok(None)
            }
        }
    }

    fn checkpoint(&self, is_final: bool) -> Checkpoint {
        let state = self.server.state();
        let mut all = state.clone();
        all.numbers.extend(self.extra_state.numbers.clone());
        all.models.extend(self.extra_state.models.clone());
        if self.message_format == MessageFormat::Legacy {
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

/// Splits a state into that of the strategy and the extra state.
pub fn split(state: State) -> (State, State) {
    let is_ours = |name: &str| name.starts_with(PRIVACY) || name == LEGACY;
    let (ours, numbers) = state.numbers.into_iter().partition(|(name, _)| is_ours(name));
    let (our_models, models) = state.models.into_iter().partition(|(name, _)| name == TURNS);
    (State { models, numbers }, State { models: our_models, numbers: ours })
}

pub fn is_legacy(extra_state: &State) -> bool {
    extra_state.numbers.contains_key(LEGACY)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_checkpoint_is_saved_if_the_round_was_worth_it() {
        let settings = Checkpoints { directory: None, every: 5, keep: 3 };
        let mut checkpointer = Checkpointer::new(settings, Path::new("models"));
        checkpointer.cost = Duration::from_millis(20);
        let (short, long) = (Duration::from_millis(199), Duration::from_millis(200));
        for (round, is_last, took, expected) in [
            (5, false, short, Some(Purpose::Requested)),
            (6, false, short, None),
            (6, false, long, Some(Purpose::Temporary)),
            (7, true, short, Some(Purpose::Requested)),
        ] {
            assert_eq!(checkpointer.purpose(round, is_last, took), expected, "round {round} of {took:?}");
        }
        checkpointer.resumed_from(6, false);
        assert_eq!(checkpointer.temporary, Some(6), "the next save removes it");
        checkpointer.resumed_from(10, false);
        assert_eq!(checkpointer.temporary, None);
    }
}

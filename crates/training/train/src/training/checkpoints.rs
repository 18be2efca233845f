//! Checkpoints of a training: when, what is in them, and what was in the one that it goes on from.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
/// Turns of nodes.
const TURNS: &str = "cyclic-order";
/// The app has a `client_fn`.
const LEGACY: &str = "app-client-fn";

/// Between two checkpoints that were asked for, one is kept after a round that took so many times longer than a save does: a
/// training that is broken off repeats no round that was worth more than that.
const WORTH_SAVES: u32 = 10;

/// Keeps checkpoints.
pub struct Keeper {
    settings: Checkpoints,
    directory: PathBuf,
    /// The newest one that was asked for.
    pub last: Option<PathBuf>,
    /// The round of one that nobody asked for: it goes as soon as there is a newer one.
    passing: Option<u64>,
    /// How long the last save took.
    cost: Duration,
}

/// Why a checkpoint is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// It was asked for.
    Kept,
    /// To go on from, until there is a newer one.
    Passing,
}

impl Keeper {
    pub fn new(settings: Checkpoints, models_dir: &Path) -> Keeper {
        let directory = match &settings.directory {
            Some(directory) => models_dir.join(directory),
            None => models_dir.to_owned(),
        };
        Keeper { settings, directory, last: None, passing: None, cost: Duration::ZERO }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The run goes on from the checkpoint of this round.
    pub fn taken_up(&mut self, round: u64, is_final: bool) {
        self.passing = (!self.is_asked_for(round, is_final)).then_some(round);
    }

    fn is_asked_for(&self, round: u64, is_last: bool) -> bool {
        is_last || round.is_multiple_of(self.settings.every)
    }

    fn purpose(&self, round: u64, is_last: bool, took: Duration) -> Option<Purpose> {
        if self.is_asked_for(round, is_last) {
            return Some(Purpose::Kept);
        }
        (self.cost * WORTH_SAVES <= took).then_some(Purpose::Passing)
    }
}

impl Training {
    /// Keeps a checkpoint of the round, which took so long, if one is due or worth it; gives the path of one that was asked for.
    /// One on the way that cannot be kept is told of; without the last one the training was for nothing.
    pub(super) async fn save(&mut self, is_last: bool, took: Duration) -> Result<Option<PathBuf>, TrainError> {
        let purpose = self.keeper.as_ref().and_then(|keeper| keeper.purpose(self.round, is_last, took));
        let (Some(keeper), Some(purpose)) = (&self.keeper, purpose) else { return Ok(None) };
        let (store, passing) =
            (ModelStore::new(&keeper.directory), keeper.passing.filter(|round| *round != self.round));
        let keep = keeper.settings.keep + usize::from(purpose == Purpose::Passing);
        let checkpoint = self.checkpoint(is_last);
        let began = Instant::now();
        let saved = blocking(move || {
            let path = store.save(&checkpoint)?;
            let run = &checkpoint.manifest.run_id;
            // What cannot be removed is in nobody's way today.
            let removed = passing.map_or(Ok(()), |round| store.remove(run, round));
            Ok::<_, trellis_models::ModelError>((path, removed.and_then(|()| store.retain(run, keep)).err()))
        });
        match saved.await? {
            Ok((path, trouble)) => {
                if let Some(trouble) = trouble {
                    self.book.warn(format!("old checkpoints cannot be removed: {}", TrainError::from(trouble).told()));
                }
                let keeper = self.keeper.as_mut().expect("it was here");
                keeper.cost = began.elapsed();
                keeper.passing = (purpose == Purpose::Passing).then_some(self.round);
                let kept = (purpose == Purpose::Kept).then_some(path);
                keeper.last = kept.clone().or(keeper.last.take());
                Ok(kept)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_those_that_were_asked_for_a_round_is_kept_if_it_was_worth_it() {
        let settings = Checkpoints { directory: None, every: 5, keep: 3 };
        let mut keeper = Keeper::new(settings, Path::new("models"));
        keeper.cost = Duration::from_millis(20);
        let (short, long) = (Duration::from_millis(199), Duration::from_millis(200));
        for (round, is_last, took, expected) in [
            (5, false, short, Some(Purpose::Kept)),
            (6, false, short, None),
            (6, false, long, Some(Purpose::Passing)),
            (7, true, short, Some(Purpose::Kept)),
        ] {
            assert_eq!(keeper.purpose(round, is_last, took), expected, "round {round} of {took:?}");
        }
        keeper.taken_up(6, false);
        assert_eq!(keeper.passing, Some(6), "it goes with the next one");
        keeper.taken_up(10, false);
        assert_eq!(keeper.passing, None);
    }
}

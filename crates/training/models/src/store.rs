//! The directory of all checkpoints: `ROOT/RUN/round-000005/{model.safetensors,state.safetensors,manifest.json}`, and in each
//! run's directory a link `latest` to the checkpoint that was saved last.
//!
//! A checkpoint is written under another name, fsynced and renamed, so it exists completely or not at all. Writers hold the
//! lock of the run's directory and remove unfinished entries of earlier writers. Readers find the newest checkpoint by its
//! number, not by `latest`: the link is for people and scripts.

mod reading;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::{Path, PathBuf};

use trellis_strategy::{Model, State};

use crate::disk::{self, Disk};
use crate::error::ModelError;
use crate::manifest::{MANIFEST_FORMAT, Manifest};
use crate::model_file::{model_errors, tensors};
use crate::{safetensors, state};

/// The name of the link to the checkpoint that was saved last.
pub const LATEST: &str = "latest";
const ROUND: &str = "round-";
pub const MODEL_FILE: &str = "model.safetensors";
const STATE_FILE: &str = "state.safetensors";
const MANIFEST_FILE: &str = "manifest.json";

/// Everything that a run needs to resume.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    pub manifest: Manifest,
    pub model: Model,
    pub state: State,
}

/// A verified checkpoint.
#[derive(Debug)]
pub struct Loaded {
    pub checkpoint: Checkpoint,
    pub path: PathBuf,
    /// Newer checkpoints that are damaged.
    pub skipped: Vec<Skipped>,
}

#[derive(Debug)]
pub struct Skipped {
    pub path: PathBuf,
    pub error: ModelError,
}

/// A checkpoint in a listing. Only its manifest was read.
#[derive(Debug)]
pub struct Entry {
    pub run_id: String,
    pub round: u64,
    pub path: PathBuf,
    /// Whether the link `latest` of its run points to this checkpoint.
    pub latest: bool,
    pub manifest: Result<Manifest, ModelError>,
}

impl Entry {
    /// The path of its model, relative to the root of the store.
    pub fn model_path(&self) -> String {
        format!("{}/{}/{MODEL_FILE}", self.run_id, round_name(self.round))
    }
}

#[derive(Debug)]
pub struct ModelStore {
    root: PathBuf,
    disk: Disk,
}

impl ModelStore {
    pub fn new(root: impl Into<PathBuf>) -> ModelStore {
        ModelStore { root: root.into(), disk: Disk::default() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Saves a checkpoint durably. It replaces an existing one of the same run and round.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<PathBuf, ModelError> {
        let manifest = &checkpoint.manifest;
        let errors = checkpoint.model_errors();
        if !errors.is_empty() {
            return Err(ModelError::Unfit { errors });
        }
        let run = self.run_dir(&manifest.run_id)?;
        self.disk.make_dir(&run)?;
        let _lock = self.disk.lock(&run)?;
        self.disk.sweep(&run)?;
        self.sweep_others(&run);
        let name = round_name(manifest.round);
        let place = run.join(&name);
        let new = self.disk.create_unfinished_dir(&place)?;
        let saved = self.fill(&new, checkpoint).and_then(|()| self.disk.publish_dir(&new, &place));
        if let Err(error) = saved {
            // The disk may be full: free the space of the unusable content.
            let _ = self.disk.remove(&new);
            return Err(error);
        }
        self.disk.point_link(&run.join(LATEST), &name)?;
        Ok(place)
    }

    fn fill(&self, directory: &Path, checkpoint: &Checkpoint) -> Result<(), ModelError> {
        let Checkpoint { manifest, model, state } = checkpoint;
        let model_facts =
            self.disk.write_hashed(&directory.join(MODEL_FILE), |out| safetensors::write(out, &tensors(model), &[]))?;
        let numbers = state::NumberBytes::of(state);
        let state_facts = self.disk.write_hashed(&directory.join(STATE_FILE), |out| {
            safetensors::write(out, &state::tensors(state, &numbers), &state::metadata(state))
        })?;
        let manifest = Manifest {
            format: MANIFEST_FORMAT,
            trellis_version: env!("CARGO_PKG_VERSION").to_owned(),
            state_numbers: state.numbers.clone(),
            files: [(MODEL_FILE.to_owned(), model_facts), (STATE_FILE.to_owned(), state_facts)].into(),
            ..manifest.clone()
        };
        self.disk.write_hashed(&directory.join(MANIFEST_FILE), |out| {
            serde_json::to_writer_pretty(&mut *out, &manifest)?;
            out.write_all(b"\n")
        })?;
        Ok(())
    }

    /// Removes all but the newest `keep` (at least one) complete checkpoints; returns the removed ones. A damaged checkpoint
    /// that is newer than those remains for inspection.
    pub fn retain(&self, run: &str, keep: usize) -> Result<Vec<PathBuf>, ModelError> {
        let directory = self.run_dir(run)?;
        if !directory.is_dir() {
            return Ok(Vec::new());
        }
        let _lock = self.disk.lock(&directory)?;
        self.disk.sweep(&directory)?;
        let mut kept = 0;
        let mut removed = Vec::new();
        for (_, name) in rounds(&directory)?.into_iter().rev() {
            let path = directory.join(&name);
            if kept < keep.max(1) {
                kept += usize::from(reading::has_all_files(&path));
            } else if !is_latest(&directory, &name) {
                self.disk.remove_dir_atomically(&path)?;
                removed.push(path);
            }
        }
        Ok(removed)
    }

    /// Removes the checkpoint of a round, if it exists, and points `latest` to the newest remaining one.
    pub fn remove(&self, run: &str, round: u64) -> Result<(), ModelError> {
        let directory = self.run_dir(run)?;
        let place = directory.join(round_name(round));
        if !place.is_dir() {
            return Ok(());
        }
        let _lock = self.disk.lock(&directory)?;
        self.disk.remove_dir_atomically(&place)?;
        match rounds(&directory)?.last() {
            Some((_, newest)) if is_latest(&directory, &round_name(round)) => {
                self.disk.point_link(&directory.join(LATEST), newest)
            }
            Some(_) => Ok(()),
            None => self.disk.remove(&directory.join(LATEST)),
        }
    }

    /// Removes a run with all its checkpoints; returns their rounds.
    pub fn remove_run(&self, run: &str) -> Result<Vec<u64>, ModelError> {
        let directory = self.run_dir(run)?;
        let present: Vec<u64> = rounds(&directory)?.into_iter().map(|(round, _)| round).collect();
        if directory.is_dir() {
            let _lock = self.disk.lock(&directory)?;
            // A removal that was killed may have left an entry in the root.
            self.disk.sweep(&self.root)?;
            self.disk.remove_dir_atomically(&directory)?;
        }
        Ok(present)
    }

    /// The runs that have checkpoints.
    pub fn runs(&self) -> Result<Vec<String>, ModelError> {
        let mut runs = disk::names(&self.root)?;
        // Links are skipped: they may lead out of the root.
        runs.retain(|run| is_run_id(run) && self.root.join(run).symlink_metadata().is_ok_and(|found| found.is_dir()));
        Ok(runs)
    }

    /// Opens a model by its path, as [`Entry::model_path`] returns it; `None` if there is no such model. Links are not
    /// followed, so nothing outside the root is read.
    pub fn open_model(&self, path: &str) -> Result<Option<File>, ModelError> {
        let Some((run, round)) = path.strip_suffix(MODEL_FILE).and_then(|path| path.strip_suffix('/')?.split_once('/'))
        else {
            return Ok(None);
        };
        let number: Option<u64> = round.strip_prefix(ROUND).and_then(|number| number.parse().ok());
        if !is_run_id(run) || number.is_none_or(|number| round_name(number) != round) {
            return Ok(None);
        }
        disk::open_beneath(&self.root, &[run, round, MODEL_FILE])
    }

    /// All checkpoints, sorted by run and round.
    pub fn list(&self) -> Result<Vec<Entry>, ModelError> {
        let mut entries = Vec::new();
        for run_id in self.runs()? {
            let run = self.root.join(&run_id);
            for (round, name) in rounds(&run)? {
                let path = run.join(&name);
                let manifest = reading::manifest(&path);
                entries.push(Entry { run_id: run_id.clone(), round, latest: is_latest(&run, &name), path, manifest });
            }
        }
        Ok(entries)
    }

    /// Loads the checkpoint of a round, or the newest undamaged one. [`ModelStore::open`] also returns what was skipped.
    pub fn load(&self, run: &str, round: Option<u64>) -> Result<Checkpoint, ModelError> {
        self.open(run, round).map(|loaded| loaded.checkpoint)
    }

    /// Like [`ModelStore::load`], with the checkpoint's path and the damaged newer checkpoints.
    pub fn open(&self, run: &str, round: Option<u64>) -> Result<Loaded, ModelError> {
        match round {
            Some(round) => reading::checkpoint(self.present(run, round)?),
            None => reading::newest(&self.run_dir(run)?).map_err(|error| match error {
                ModelError::NoCheckpoint { .. } => ModelError::NoRun { run: run.to_owned(), root: self.root.clone() },
                error => error,
            }),
        }
    }

    /// The directory of a round's checkpoint, or an error that lists the existing rounds.
    pub fn present(&self, run: &str, round: u64) -> Result<PathBuf, ModelError> {
        let directory = self.run_dir(run)?;
        let present = rounds(&directory)?;
        match present.iter().find(|(present, _)| *present == round) {
            Some((_, name)) => Ok(directory.join(name)),
            None if present.is_empty() => Err(ModelError::NoRun { run: run.to_owned(), root: self.root.clone() }),
            None => {
                let present = present.into_iter().map(|(round, _)| round).collect();
                Err(ModelError::NoRound { run: run.to_owned(), round, present })
            }
        }
    }

    /// Loads the checkpoint in a directory, or the newest one of a run's directory.
    pub fn load_path(path: &Path) -> Result<Checkpoint, ModelError> {
        ModelStore::open_path(path).map(|loaded| loaded.checkpoint)
    }

    /// Like [`ModelStore::load_path`], with the checkpoint's path and the damaged newer checkpoints.
    pub fn open_path(path: &Path) -> Result<Loaded, ModelError> {
        if path.join(MANIFEST_FILE).exists() {
            return reading::checkpoint(path.to_owned());
        }
        reading::newest(path)
    }

    fn run_dir(&self, run: &str) -> Result<PathBuf, ModelError> {
        match is_run_id(run) {
            true => Ok(self.root.join(run)),
            false => Err(ModelError::RunId { run: run.to_owned() }),
        }
    }

    /// Removes unfinished entries of other runs: a killed run does not return to remove its own. Errors are ignored.
    fn sweep_others(&self, own: &Path) {
        for run in disk::names(&self.root).unwrap_or_default() {
            let directory = self.root.join(&run);
            if !is_run_id(&run) || directory == own || !directory.is_dir() {
                continue;
            }
            let left = disk::names(&directory).is_ok_and(|names| names.iter().any(|name| disk::is_unfinished(name)));
            // The lock shows that no writer is active; it is held until the sweep is done.
            if left && let Ok(Some(_lock)) = self.disk.try_lock(&directory) {
                let _ = self.disk.sweep(&directory);
            }
        }
    }
}

impl Checkpoint {
    fn model_errors(&self) -> Vec<String> {
        let mut errors = model_errors("the model", &self.model);
        for (name, model) in &self.state.models {
            errors.extend(model_errors(&format!("{name:?} of the state"), model));
        }
        errors
    }
}

/// `round-000005`
fn round_name(round: u64) -> String {
    format!("{ROUND}{round:06}")
}

/// The rounds that have a checkpoint, and the names of their directories, oldest first.
fn rounds(run: &Path) -> Result<Vec<(u64, String)>, ModelError> {
    let names = disk::names(run)?;
    let round = |name: String| Some((name.strip_prefix(ROUND)?.parse().ok()?, name));
    let mut found: Vec<(u64, String)> = names.into_iter().filter_map(round).collect();
    found.retain(|(round, name)| *name == round_name(*round));
    found.sort();
    Ok(found)
}

fn is_latest(run: &Path, name: &str) -> bool {
    std::fs::read_link(run.join(LATEST)).is_ok_and(|target| target == Path::new(name))
}

/// Whether a text is a safe directory name: one word without separators.
pub fn is_run_id(run: &str) -> bool {
    let fits = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
    run.chars().all(fits) && run.starts_with(|char: char| char.is_ascii_alphanumeric()) && run.len() <= 128
}

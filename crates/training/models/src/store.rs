//! The directory of all checkpoints: `ROOT/RUN/round-000005/{model.safetensors,state.safetensors,manifest.json}`, and in each
//! run's directory a link `latest` to what was saved last.
//!
//! A checkpoint is filled under another name, flushed and renamed, so it is there as a whole or not at all. Who writes holds
//! the lock of the run's directory, and takes away what those before left unfinished. The newest one is found by its number,
//! not by `latest`: the link is for people and scripts.

mod reading;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::{Path, PathBuf};

use trellis_strategy::{Model, State};

use crate::disk::{self, Disk};
use crate::error::ModelError;
use crate::manifest::{MANIFEST_FORMAT, Manifest};
use crate::model_file::{objections, tensors};
use crate::{safetensors, state};

/// The link to the checkpoint that was saved last.
pub const LATEST: &str = "latest";
const ROUND: &str = "round-";
pub const MODEL_FILE: &str = "model.safetensors";
const STATE_FILE: &str = "state.safetensors";
const MANIFEST_FILE: &str = "manifest.json";

/// Everything that a run needs to go on.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    pub manifest: Manifest,
    pub model: Model,
    pub state: State,
}

/// A checkpoint that was read and found whole.
#[derive(Debug)]
pub struct Loaded {
    pub checkpoint: Checkpoint,
    pub path: PathBuf,
    /// Newer ones that could not be used.
    pub skipped: Vec<Skipped>,
}

#[derive(Debug)]
pub struct Skipped {
    pub path: PathBuf,
    pub why: ModelError,
}

/// A checkpoint that is there, by its manifest; its other files were not looked at.
#[derive(Debug)]
pub struct Entry {
    pub run_id: String,
    pub round: u64,
    pub path: PathBuf,
    /// Whether the link `latest` of its run points to it.
    pub latest: bool,
    pub manifest: Result<Manifest, ModelError>,
}

impl Entry {
    /// Its model, below the root of the store.
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

    /// Keeps a checkpoint; when this returns, a crash of the machine does not lose it. One of the same run and round is
    /// replaced.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<PathBuf, ModelError> {
        let manifest = &checkpoint.manifest;
        let problems = checkpoint.objections();
        if !problems.is_empty() {
            return Err(ModelError::Unfit { problems });
        }
        let run = self.run_dir(&manifest.run_id)?;
        self.disk.make_dir(&run)?;
        let _lock = self.disk.lock(&run)?;
        self.disk.sweep(&run)?;
        self.sweep_others(&run);
        let name = round_name(manifest.round);
        let place = run.join(&name);
        let new = self.disk.begin_dir(&place)?;
        let saved = self.fill(&new, checkpoint).and_then(|()| self.disk.place_dir(&new, &place));
        if let Err(error) = saved {
            // As on a full disk: what was written is of no use, and its space is.
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

    /// Removes all but the newest `keep` (at least one) that are whole; gives what it removed. What is newer than those is
    /// left alone even if it is damaged: somebody may want to look at it.
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
                kept += usize::from(reading::seems_whole(&path));
            } else if !is_latest(&directory, &name) {
                self.disk.withdraw_dir(&path)?;
                removed.push(path);
            }
        }
        Ok(removed)
    }

    /// Removes the checkpoint of a round, if it is there. `latest` then points to the newest that is left.
    pub fn remove(&self, run: &str, round: u64) -> Result<(), ModelError> {
        let directory = self.run_dir(run)?;
        let place = directory.join(round_name(round));
        if !place.is_dir() {
            return Ok(());
        }
        let _lock = self.disk.lock(&directory)?;
        self.disk.withdraw_dir(&place)?;
        match rounds(&directory)?.last() {
            Some((_, newest)) if is_latest(&directory, &round_name(round)) => {
                self.disk.point_link(&directory.join(LATEST), newest)
            }
            Some(_) => Ok(()),
            None => self.disk.remove(&directory.join(LATEST)),
        }
    }

    /// Removes a run with all its checkpoints; gives the rounds that it had.
    pub fn remove_run(&self, run: &str) -> Result<Vec<u64>, ModelError> {
        let directory = self.run_dir(run)?;
        let present: Vec<u64> = rounds(&directory)?.into_iter().map(|(round, _)| round).collect();
        if directory.is_dir() {
            let _lock = self.disk.lock(&directory)?;
            // What a crash left of another removal.
            self.disk.sweep(&self.root)?;
            self.disk.withdraw_dir(&directory)?;
        }
        Ok(present)
    }

    /// The runs that have checkpoints here.
    pub fn runs(&self) -> Result<Vec<String>, ModelError> {
        let mut runs = disk::names(&self.root)?;
        // A link may lead out of this directory.
        runs.retain(|run| is_run_id(run) && self.root.join(run).symlink_metadata().is_ok_and(|found| found.is_dir()));
        Ok(runs)
    }

    /// Opens the model of a checkpoint by its path below the root, as [`Entry::model_path`] gives it; `None`: there is no such
    /// model. No link is followed, so that nothing outside the root is read.
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

    /// All checkpoints of all runs, by run and round.
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

    /// A checkpoint of a run: that of a round, or the newest that is whole. Use [`ModelStore::open`] to learn what was
    /// skipped.
    pub fn load(&self, run: &str, round: Option<u64>) -> Result<Checkpoint, ModelError> {
        self.open(run, round).map(|loaded| loaded.checkpoint)
    }

    /// As [`ModelStore::load`], with where it is and which newer ones are damaged.
    pub fn open(&self, run: &str, round: Option<u64>) -> Result<Loaded, ModelError> {
        match round {
            Some(round) => reading::checkpoint(self.present(run, round)?),
            None => reading::newest(&self.run_dir(run)?).map_err(|error| match error {
                ModelError::NoCheckpoint { .. } => ModelError::NoRun { run: run.to_owned(), root: self.root.clone() },
                error => error,
            }),
        }
    }

    /// The directory of a round's checkpoint, or an error with the rounds that have one.
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

    /// The checkpoint in a directory, or the newest one in that of a run.
    pub fn load_path(path: &Path) -> Result<Checkpoint, ModelError> {
        ModelStore::open_path(path).map(|loaded| loaded.checkpoint)
    }

    /// As [`ModelStore::load_path`], with where it is and which newer ones are damaged.
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

    /// Runs that were killed do not come back to sweep; whoever saves next does it for them. Not worth an error.
    fn sweep_others(&self, own: &Path) {
        for run in disk::names(&self.root).unwrap_or_default() {
            let directory = self.root.join(&run);
            if !is_run_id(&run) || directory == own || !directory.is_dir() {
                continue;
            }
            let left = disk::names(&directory).is_ok_and(|names| names.iter().any(|name| disk::is_unfinished(name)));
            // Whoever holds the lock is at work there. It is kept until all is swept.
            if left && let Ok(Some(_lock)) = self.disk.try_lock(&directory) {
                let _ = self.disk.sweep(&directory);
            }
        }
    }
}

impl Checkpoint {
    fn objections(&self) -> Vec<String> {
        let mut problems = objections("the model", &self.model);
        for (name, model) in &self.state.models {
            problems.extend(objections(&format!("{name:?} of the state"), model));
        }
        problems
    }
}

/// `round-000005`
fn round_name(round: u64) -> String {
    format!("{ROUND}{round:06}")
}

/// The rounds of which there is a checkpoint, and the names of their directories, oldest first.
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

/// A word that cannot lead elsewhere.
pub fn is_run_id(run: &str) -> bool {
    let fits = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
    run.chars().all(fits) && run.starts_with(|char: char| char.is_ascii_alphanumeric()) && run.len() <= 128
}

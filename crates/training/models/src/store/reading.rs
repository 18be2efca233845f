//! Reads checkpoints, and verifies their files against the manifest.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::Deserialize;
use trellis_digest::sha256_hex;

use super::{Checkpoint, Loaded, MANIFEST_FILE, MODEL_FILE, STATE_FILE, Skipped, rounds};
use crate::disk;
use crate::error::ModelError;
use crate::manifest::{FileFacts, MANIFEST_FORMAT, Manifest};
use crate::safetensors::{self, Content};
use crate::{model_file, state};

/// A manifest contains the metrics of all rounds; a larger file is not a manifest.
const MAX_MANIFEST_BYTES: u64 = 256 << 20;

/// The newest undamaged checkpoint of a run.
pub fn newest(run: &Path) -> Result<Loaded, ModelError> {
    let mut skipped = Vec::new();
    for (_, name) in rounds(run)?.into_iter().rev() {
        let path = run.join(name);
        match checkpoint(path.clone()) {
            Ok(loaded) => return Ok(Loaded { skipped, ..loaded }),
            Err(error) if error.is_lost() => skipped.push(Skipped { path, error }),
            Err(error) => return Err(error),
        }
    }
    match skipped.is_empty() {
        true => Err(ModelError::NoCheckpoint { path: run.to_owned() }),
        false => {
            let skipped = skipped.into_iter().map(|skipped| skipped.error).collect();
            Err(ModelError::AllUnusable { path: run.to_owned(), skipped })
        }
    }
}

pub fn checkpoint(path: PathBuf) -> Result<Loaded, ModelError> {
    let manifest = manifest(&path)?;
    let (model, state) = match (content(&path, &manifest, MODEL_FILE)?, content(&path, &manifest, STATE_FILE)?) {
        (Ok(model), Ok(state)) => (model, state),
        (model, state) => {
            let errors = [model.err(), state.err()].into_iter().flatten().collect();
            return Err(ModelError::Damaged { path, errors });
        }
    };
    let state = state::read(state).map_err(|reason| ModelError::damaged(&path, format!("{STATE_FILE}: {reason}")))?;
    let model = model_file::model(model.tensors);
    Ok(Loaded { checkpoint: Checkpoint { manifest, model, state }, path, skipped: Vec::new() })
}

/// The version is read before the other fields, which another version may have changed.
#[derive(Deserialize)]
struct Versioned {
    format: u32,
}

pub fn manifest(path: &Path) -> Result<Manifest, ModelError> {
    let Some(file) = disk::open_beneath(path, &[MANIFEST_FILE])? else {
        return Err(ModelError::damaged(path, format!("{MANIFEST_FILE} is missing")));
    };
    let mut text = Vec::new();
    let read = file.take(MAX_MANIFEST_BYTES).read_to_end(&mut text);
    read.map_err(ModelError::disk("read", &path.join(MANIFEST_FILE)))?;
    let unreadable = |error| ModelError::damaged(path, format!("{MANIFEST_FILE} cannot be read: {error}"));
    let Versioned { format } = serde_json::from_slice(&text).map_err(unreadable)?;
    if format > MANIFEST_FORMAT {
        return Err(ModelError::TooNew { path: path.to_owned(), found: format, known: MANIFEST_FORMAT });
    }
    serde_json::from_slice(&text).map_err(unreadable)
}

/// Whether all files exist with the right sizes. Their content is not read.
pub fn has_all_files(path: &Path) -> bool {
    let sizes_fit = |manifest: Manifest| {
        [MODEL_FILE, STATE_FILE].iter().all(|name| {
            let bytes = path.join(name).metadata().map(|metadata| metadata.len()).ok();
            bytes.is_some() && bytes == manifest.files.get(*name).map(|facts| facts.bytes)
        })
    };
    manifest(path).is_ok_and(sizes_fit)
}

/// A verified file of a checkpoint. The inner error describes wrong content, the outer one a failure of the disk.
fn content(path: &Path, manifest: &Manifest, name: &str) -> Result<Result<Content, String>, ModelError> {
    let Some(facts) = manifest.files.get(name) else {
        return Ok(Err(format!("{MANIFEST_FILE} does not list {name}")));
    };
    let checked = match read_checked(&path.join(name), facts) {
        Ok(checked) => checked,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err("it is missing".to_owned()),
        Err(error) => return Err(ModelError::disk("read", &path.join(name))(error)),
    };
    Ok(checked.and_then(|bytes| safetensors::read(&bytes)).map_err(|reason| format!("{name}: {reason}")))
}

fn read_checked(path: &Path, facts: &FileFacts) -> io::Result<Result<Bytes, String>> {
    let mut file = File::open(path)?;
    let found = file.metadata()?.len();
    if found != facts.bytes {
        return Ok(Err(format!("it has {found} bytes instead of {}", facts.bytes)));
    }
    let mut bytes = Vec::with_capacity(facts.bytes as usize);
    file.read_to_end(&mut bytes)?;
    let sha256 = sha256_hex(&bytes);
    Ok(match sha256 == facts.sha256 {
        true => Ok(bytes.into()),
        false => Err(format!("its SHA-256 is {sha256} instead of {}", facts.sha256)),
    })
}

//! A model in a file of its own: one that somebody brings to begin with. And what a model must be to be written at all.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use trellis_strategy::{Layout, Model, Slot};

use crate::error::ModelError;
use crate::npz;
use crate::safetensors::{self, METADATA, Tensor};
use crate::store::ModelStore;

/// What every zip begins with, and so every `.npz`.
const ZIP: &[u8] = b"PK";

/// Reads a `.safetensors` or `.npz` file, told apart by what is in them, or the model of a checkpoint's directory.
///
/// The order of the arrays is that of the file: in safetensors, of their data; in npz, of its members, and by number where
/// they are called `arr_0`, `arr_1`, ... (which become `0`, `1`, ...).
pub fn read_model(path: impl AsRef<Path>) -> Result<Model, ModelError> {
    let path = path.as_ref();
    if path.is_dir() {
        return ModelStore::load_path(path).map(|checkpoint| checkpoint.model);
    }
    let mut file = File::open(path).map_err(ModelError::disk("open", path))?;
    let bytes = file.metadata().map_err(ModelError::disk("look at", path))?.len();
    let mut beginning = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    file.by_ref().take(ZIP.len() as u64).read_to_end(&mut beginning).map_err(ModelError::disk("read", path))?;
    let tensors = if beginning == ZIP {
        npz::read(file)
    } else {
        file.read_to_end(&mut beginning).map_err(ModelError::disk("read", path))?;
        safetensors::read(&Bytes::from(beginning)).map(|content| content.tensors)
    };
    match tensors {
        Ok(tensors) if tensors.is_empty() => Err(ModelError::unreadable(path, "there are no arrays in it")),
        Ok(tensors) => Ok(model(tensors)),
        Err(why) => Err(ModelError::unreadable(path, format!("{why} (a .safetensors or .npz file is needed)"))),
    }
}

pub fn model(tensors: Vec<(Slot, Bytes)>) -> Model {
    let (slots, arrays) = tensors.into_iter().unzip();
    Model { layout: Arc::new(Layout(slots)), arrays }
}

pub fn tensors(model: &Model) -> Vec<Tensor<'_>> {
    let mut tensors = Vec::with_capacity(model.arrays.len());
    for (slot, data) in model.layout.0.iter().zip(&model.arrays) {
        tensors.push(Tensor { name: slot.name.as_str().into(), dtype: slot.dtype, shape: &slot.shape, data });
    }
    tensors
}

/// Everything for which a model cannot be written.
pub fn objections(called: &str, model: &Model) -> Vec<String> {
    let slots = &model.layout.0;
    let mut problems = Vec::new();
    if slots.len() != model.arrays.len() {
        problems.push(format!("{called} has {} arrays, and its layout {}", model.arrays.len(), slots.len()));
    }
    let mut names = BTreeSet::new();
    for (slot, data) in slots.iter().zip(&model.arrays) {
        if !names.insert(&slot.name) {
            problems.push(format!("{called} has two arrays called {:?}", slot.name));
        }
        if slot.name == METADATA {
            problems.push(format!("no array of {called} can be called {METADATA}"));
        }
        if slot.bytes() != data.len() {
            let (shape, dtype) = (&slot.shape, slot.dtype.name());
            let what = format!("the array {:?} of {called} has {} bytes", slot.name, data.len());
            problems.push(format!("{what}, which is not its shape {shape:?} of {dtype}"));
        }
    }
    problems
}

//! Reads models from single files, such as an initial model, and validates models before they are written.

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

/// The first bytes of a zip archive, and so of every `.npz`.
const ZIP: &[u8] = b"PK";

/// Reads a `.safetensors` or `.npz` file, recognised by its content, or the model in a checkpoint's directory.
///
/// The arrays keep the order of the file: in safetensors the order of their data, in npz the order of the members. npz arrays
/// called `arr_0`, `arr_1`, ... are sorted by number and renamed to `0`, `1`, ...
pub fn read_model(path: impl AsRef<Path>) -> Result<Model, ModelError> {
    let path = path.as_ref();
    if path.is_dir() {
        return ModelStore::load_path(path).map(|checkpoint| checkpoint.model);
    }
    let mut file = File::open(path).map_err(ModelError::disk("open", path))?;
    let bytes = file.metadata().map_err(ModelError::disk("read the size of", path))?.len();
    let mut beginning = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    file.by_ref().take(ZIP.len() as u64).read_to_end(&mut beginning).map_err(ModelError::disk("read", path))?;
    let tensors = if beginning == ZIP {
        npz::read(file)
    } else {
        file.read_to_end(&mut beginning).map_err(ModelError::disk("read", path))?;
        safetensors::read(&Bytes::from(beginning)).map(|content| content.tensors)
    };
    match tensors {
        Ok(tensors) if tensors.is_empty() => Err(ModelError::unreadable(path, "it contains no arrays")),
        Ok(tensors) => Ok(model(tensors)),
        Err(reason) => Err(ModelError::unreadable(path, format!("{reason} (expected a .safetensors or .npz file)"))),
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

/// All reasons why a model cannot be written.
pub fn model_errors(called: &str, model: &Model) -> Vec<String> {
    let slots = &model.layout.0;
    let mut errors = Vec::new();
    if slots.len() != model.arrays.len() {
        errors.push(format!("{called} has {} arrays, but its layout has {}", model.arrays.len(), slots.len()));
    }
    let mut names = BTreeSet::new();
    for (slot, data) in slots.iter().zip(&model.arrays) {
        if !names.insert(&slot.name) {
            errors.push(format!("{called} has two arrays called {:?}", slot.name));
        }
        if slot.name == METADATA {
            errors.push(format!("no array of {called} can be called {METADATA}: the format reserves the name"));
        }
        if slot.bytes() != data.len() {
            let (shape, dtype) = (&slot.shape, slot.dtype.name());
            let array = format!("the array {:?} of {called} has {} bytes", slot.name, data.len());
            errors.push(format!("{array}, which does not match its shape {shape:?} of {dtype}"));
        }
    }
    errors
}

//! Models on disk: checkpoints that a run goes on from, and what is exported from them.
//!
//! A checkpoint is the model, what its strategy remembers, and a manifest that says what they are. It appears whole or not
//! at all ([`ModelStore`]), and is checked byte for byte when it is read. Nothing here knows of rounds under way, links,
//! tokio or clocks: the time of a checkpoint is part of its manifest, given by the caller.

mod disk;
mod error;
mod export;
mod manifest;
mod model_file;
mod npz;
mod pytorch;
mod safetensors;
mod state;
mod store;
#[cfg(test)]
mod testing;

pub use error::ModelError;
pub use export::{Export, Format, export};
pub use manifest::{App, FileFacts, MANIFEST_FORMAT, Manifest, Measured, Metrics, Origin};
pub use model_file::read_model;
pub use store::{Checkpoint, Entry, LATEST, Loaded, ModelStore, Skipped, is_run_id};

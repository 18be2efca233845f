//! Models on disk: checkpoints, from which runs resume, and exports to other formats.
//!
//! A checkpoint consists of the model, the state of its strategy, and a manifest. It is written atomically ([`ModelStore`])
//! and verified by its digests when it is read. This crate knows nothing of running rounds, links, tokio or clocks: the
//! caller puts the time of a checkpoint into its manifest.
//!
//! # Invariants
//! - A server follows no link below a directory of models.

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

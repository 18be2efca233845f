//! An in-memory store: for federations that end with their process, and for tests.
//!
//! One thread runs the jobs on its own copy of the tables. After each batch it publishes the changed rows, so readers
//! see whole batches and never wait for a job. This crate knows nothing of files, the network or an async runtime.

mod objects;
mod read;
mod store;
mod table;
mod tx;

pub use store::MemoryStore;

//! The store port in memory: for federations that end with their process, and for tests.
//!
//! One thread changes its own copy of the tables. After each batch of jobs it publishes the rows that changed, so readers
//! see whole batches, and never wait while a job runs. This crate knows nothing of files, the network or an async runtime.

mod objects;
mod read;
mod store;
mod table;
mod tx;

pub use store::MemoryStore;

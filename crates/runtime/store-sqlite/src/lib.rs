//! The store port on SQLite and content-addressed files.
//!
//! One directory holds it all: `state.db` (rows and small objects), `objects/` (large ones, one file each), `lock`.
//! One thread writes, and commits many jobs at once; readers never wait for it. This crate knows nothing of the
//! network and decides nothing: it keeps what the core tells it to.

mod census;
mod directory;
mod error;
mod objects;
mod read;
mod rows;
mod schema;
mod store;
mod tx;
mod vault;
mod writer;

pub use directory::{OpenError, StateDirectory};
pub use schema::{Verdict, inspect};
pub use store::SqliteStore;

//! The store port on SQLite and content-addressed files.
//!
//! One directory holds `state.db` (rows and small objects), `objects/` (large objects, one file each) and `lock`. One
//! thread writes and commits many jobs at once; readers never wait for it. This crate knows nothing of the network and
//! makes no decisions.
//!
//! # Invariants
//! - The writer thread commits many jobs at once and answers none before the commit.
//! - Names of object files are never reused. A crash can leave an orphan, which the next start removes, and never
//!   removes a file that is needed.

mod census;
mod directory;
mod error;
mod file_store;
mod objects;
mod read;
mod rows;
mod schema;
mod store;
mod tx;
mod writer;

pub use directory::{OpenError, StateDirectory};
pub use schema::{DatabaseState, inspect};
pub use store::SqliteStore;

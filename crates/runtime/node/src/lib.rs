//! The SuperNode. It pulls instructions from a SuperLink, stores them, executes them with an app and delivers the replies. It
//! survives failures of the link, of apps and of itself.
//!
//! This crate knows nothing of command lines, and nothing of the internals of a SuperLink.
//!
//! # Invariants
//! - Each step of an instruction is stored before the next one begins; a context is stored together with the reply
//!   that changed it.
//! - Executors end everything that they started when their future is dropped. Instructions of a run are executed one
//!   after the other.

pub mod app;
pub mod app_log;
mod apps;
pub mod config;
mod drain;
mod engine;
mod error;
pub mod fab;
pub mod objects;
pub mod official;
mod output;
pub mod resources;
mod serve;
pub mod store;
pub mod warm;
pub mod watch;
pub mod work;

pub use error::Error;
pub use serve::serve;

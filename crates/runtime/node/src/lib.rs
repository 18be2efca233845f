//! The SuperNode. It takes instructions from a SuperLink, keeps them on disk, lets an app carry them out, and delivers the
//! replies, whatever happens to the link, to the apps or to itself in between.
//!
//! Knows nothing of command lines, and nothing of what is inside a SuperLink.

pub mod app;
mod apps;
pub mod config;
mod drain;
mod engine;
mod error;
pub mod fab;
pub mod objects;
pub mod official;
pub mod resources;
mod serve;
pub mod store;
pub mod warm;
pub mod watch;
pub mod work;

pub use error::Error;
pub use serve::serve;

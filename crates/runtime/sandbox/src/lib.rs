//! A sandbox for apps: processes that run third-party code. An app can access its interpreter, its own files, its
//! scratch directory and the data that the operator names. It has an environment of listed variables, no capabilities,
//! no way to gain privileges, and a system call filter.
//!
//! The crate does not depend on the task of an app. An app starts in two stages, because only a process can restrict
//! itself: [`Sandbox::command`] executes this program again, which calls [`enter`], restricts itself and executes the
//! interpreter. The process id stays the same, so process groups, limits and marks set by the starting process remain
//! valid.
//!
//! # Invariants
//! - Apps in Python are started by this crate only.

mod enter;
mod environment;
mod filter;
mod grants;
mod kernel;
mod level;
mod peer;
mod policy;
mod python;
mod sandbox;
mod scratch;
mod settings;
mod user;

pub use enter::enter;
pub use environment::{for_apps, is_secret};
pub use kernel::{Feature, Kernel};
pub use level::{Enforcement, Level, Unavailable};
pub use peer::is_app;
pub use sandbox::Sandbox;
pub use scratch::Scratch;
pub use settings::{DataPath, Mode, Network, Settings};
pub use user::{grant_search, is_search_only};

/// The first argument that makes a program [`enter`] a sandbox; the command to execute follows.
pub const SUB_COMMAND: &str = "__sandbox";

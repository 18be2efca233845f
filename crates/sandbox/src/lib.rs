//! A sandbox for apps: processes that run code of somebody else. An app sees its interpreter, its own files, its scratch
//! directory and the data that the operator names; it has an environment of listed variables, no capability, no way to more
//! rights, and a system call filter.
//!
//! Nothing here knows what an app is asked to do. An app is started in two stages, since only a process can restrict itself:
//! [`Sandbox::command`] starts this program again, which calls [`enter`], restricts itself and becomes the interpreter. The
//! process number stays the same, so groups, limits and marks of the starting process hold.

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
pub use environment::for_apps;
pub use kernel::{Feature, Kernel};
pub use level::{Enforcement, Level, Unavailable};
pub use peer::is_app;
pub use sandbox::Sandbox;
pub use scratch::Scratch;
pub use settings::{DataPath, Mode, Network, Settings};
pub use user::{is_passage, open_passage};

/// The first argument by which a program is asked to [`enter`] a sandbox; what to execute follows.
pub const SUB_COMMAND: &str = "__sandbox";

//! ClientApps in Rust: the interface, and the built-in apps.
//!
//! An app receives the records of an instruction and returns those of the reply ([`ClientApp`]); [`handle_message`] converts
//! from and to messages. This crate knows nothing of links, stores, tokio or clocks. The only files that it reads are the
//! tables that the settings of an app name, when it is built.
//!
//! The result of an app depends only on its settings, its seed and the received messages: it is the same on every machine.

mod app;
mod builtin;
mod classifier;
mod data;
mod echo;
mod exchange;
mod handle;
mod matrix;
mod network;
mod number;
mod random;
mod settings;
mod training;

pub use app::{AppError, ClientApp, Context, Instruction, MessageKind, Stop};
pub use builtin::{Description, NODE_SETTINGS, builtin, builtins};
pub use data::partition::{MIN_PARTITION_EXAMPLES, PartitionError, Scheme, owners};
pub use exchange::{ARRAYS, CONFIG, METRICS, NUM_EXAMPLES, SERVER_ROUND};
pub use handle::{Handled, NotHandled, handle_message};
pub use settings::Setting;

/// Compiles the example in the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/native-apps.md")]
struct Documentation;

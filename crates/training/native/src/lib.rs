//! ClientApps in Rust: the interface, and the apps that come with the program.
//!
//! An app gets the records of an instruction and gives the records of the reply ([`ClientApp`]); [`handle_message`] puts
//! around it what makes messages of them. Nothing here knows of links, stores, tokio or clocks. The only files that are
//! read are the tables that the settings of an app name, when it is made.
//!
//! What an app computes is decided by its settings, its seed and what it is sent, on every machine alike.

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
mod problem;
mod random;
mod settings;
mod training;

pub use app::{AppError, ClientApp, Context, Instruction, MessageKind, Stop};
pub use builtin::{Description, NODE_SETTINGS, builtin, builtins};
pub use data::partition::{MIN_PARTITION_EXAMPLES, PartitionError, Scheme, owners};
pub use exchange::{ARRAYS, CONFIG, METRICS, NUM_EXAMPLES, SERVER_ROUND};
pub use handle::{Handled, NotHandled, handle_message};
pub use problem::{Problem, nearest};
pub use settings::Setting;

/// The example in the documentation must compile.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/native-apps.md")]
struct Documentation;

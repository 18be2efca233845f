//! The agent in a virtual machine: context variables become a SuperLink, a SuperNode or a gateway, and what is told of it is true.

pub mod agent;
pub mod certificates;
pub mod context;
pub mod disc;
pub mod discovery;
pub mod disk;
pub mod facts;
pub mod firewall;
pub mod machine;
pub mod network;
pub mod outcomes;
pub mod place;
pub mod probe;
pub mod problem;
mod read;
pub mod readiness;
pub mod recipe;
mod reference;
pub mod settings;
pub mod shards;
pub mod shell;
pub mod sources;
pub mod state;
pub mod state_disk;
pub mod status;
pub mod supervisor;
pub mod trouble;
pub mod variables;

pub use read::{Used, read, used};
pub use reference::reference;

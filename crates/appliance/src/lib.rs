//! The agent in a virtual machine: context variables become a SuperLink, a SuperNode or a gateway, and what is told of it is true.

pub mod certificates;
pub mod context;
pub mod discovery;
mod disk;
pub mod facts;
pub mod firewall;
pub mod place;
pub mod problem;
mod read;
pub mod readiness;
pub mod recipe;
mod reference;
pub mod settings;
pub mod shards;
pub mod shell;
pub mod state;
pub mod trouble;
pub mod variables;

pub use read::{Used, read, used};
pub use reference::reference;

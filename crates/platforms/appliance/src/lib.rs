//! The agent in a virtual machine: runs a SuperLink, a SuperNode or a gateway from context variables, and publishes its
//! state.
//!
//! # Invariants
//! - The context of a VM is parsed, never executed. Only `readiness` reports READY.
//! - The admin token and private keys are in contexts of the VMs that need them, never in attributes that siblings
//!   can read.

pub mod agent;
pub mod certificates;
pub mod context;
pub mod disc;
pub mod discovery;
pub mod disk;
pub mod facts;
pub mod failure;
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
pub mod variables;

pub use read::{EffectiveValue, effective_values, read};
pub use reference::reference;

//! The agent in a virtual machine: context variables become a SuperLink, a SuperNode or a gateway, and what is told of it is true.

pub mod context;
pub mod problem;
mod read;
pub mod settings;
pub mod variables;

pub use read::{Used, read, used};

//! The agent in a virtual machine: context variables become a SuperLink, a SuperNode or a gateway, and what is told of it is true.

pub mod context;
pub mod problem;
mod read;
mod reference;
pub mod settings;
pub mod shell;
pub mod variables;

pub use read::{Used, read, used};
pub use reference::reference;

//! The agent in a virtual machine: context variables become a SuperLink, a SuperNode or a gateway, and what is told of it is true.

pub mod context;
pub mod disc;
pub mod machine;
pub mod problem;
pub mod settings;

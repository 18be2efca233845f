//! The official `flwr` command on this machine: the Python that has it ([`Installation`]), and the connections in its
//! configuration ([`connection`]). Knows no command of Trellis and not how federations are found.

pub mod connection;
mod python;

pub use python::{Answer, Installation};

//! What tests of several crates share. No program depends on it.

pub mod kube;
pub mod ports;
mod stand_in;

pub use stand_in::stand_in;

//! What tests of several crates share. No program depends on it.

pub mod cert_manager;
pub mod kube;
pub mod ports;

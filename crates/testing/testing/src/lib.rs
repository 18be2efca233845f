//! Shared code of tests. No program depends on it.

mod clock;
pub mod kube;
pub mod launch;
pub mod ports;
pub mod processes;
mod stand_in;

pub use clock::RealClock;
pub use stand_in::stand_in;

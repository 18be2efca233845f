//! Our definitions on a real API server: what it refuses and its messages, what it accepts and completes, how it shows and scales a
//! federation. One API server for all tests; nothing is reconciled.

mod accepted;
mod cluster;
mod core_types;
mod kept;
mod kubectl;
mod refused;
mod resources;
mod runs;

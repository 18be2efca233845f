//! What a real API server makes of our definitions: what it refuses and with which words, what it accepts and completes, how it
//! shows and scales a federation. One API server for all of them; nothing is reconciled.

mod accepted;
mod cluster;
mod core_types;
mod kept;
mod kubectl;
mod refused;
mod resources;
mod runs;

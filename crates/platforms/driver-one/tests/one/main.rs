//! The driver against a simulated cloud with simulated agents.

mod conformance;
mod scene;
mod stories;

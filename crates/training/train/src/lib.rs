//! The native ServerApp: rounds of training, from the initial model to the last checkpoint.
//!
//! ```text
//! run --> training --> settings       the requested training
//!                  --> initial_model
//!                  --> rounds:        content --> deliver --> nodes --> receive --> spool --> aggregate --> the next model
//!                                     conduct executes the steps of `round`, which is pure; progress judges the results
//!                  --> checkpoints, reports, run_log
//! submit: what is sent to a SuperLink to start a training
//! ```
//!
//! This crate knows nothing of the internals of a SuperLink, and nothing of command lines.
//!
//! # Invariants
//! - A reply counts only if it is complete, fits the model and is finite. Replies are folded in the order of node
//!   ids, in 64-bit floats, and rounded once.

mod aggregate;
mod conduct;
mod content;
mod deliver;
mod error;
mod exchange;
mod initial_model;
mod paths;
mod privacy;
mod progress;
mod receive;
mod report;
pub mod round;
mod run;
mod run_log;
pub mod settings;
pub mod spool;
pub mod submit;
mod training;

pub use error::TrainError;
pub use run::{Finished, Options, run};

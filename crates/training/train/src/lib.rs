//! The native ServerApp: rounds of training, from the first model to the last checkpoint.
//!
//! ```text
//! run --> training --> settings   what was asked for
//!                  --> first      the model to begin with
//!                  --> rounds:    content --> deliver --> nodes --> receive --> spool --> aggregate --> the next model
//!                                 conduct drives a phase as `round`, which is pure, says; progress judges what came of it
//!                  --> checkpoints, reports, logbook
//! submit: what is sent to a SuperLink so that it is trained
//! ```
//!
//! Knows nothing of what is inside a SuperLink, and nothing of command lines.

mod aggregate;
mod conduct;
mod content;
mod deliver;
mod error;
mod exchange;
mod first;
mod logbook;
mod paths;
mod privacy;
mod progress;
mod receive;
mod report;
pub mod round;
mod run;
pub mod settings;
pub mod spool;
pub mod submit;
mod training;

pub use error::TrainError;
pub use run::{Finished, Options, run};

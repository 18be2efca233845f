//! The native ServerApp: rounds of training, from the first model to the last checkpoint.
//!
//! ```text
//! run --> settings (what was asked for)          round (pure: who answered, whose turn it is)
//!     --> first (the model to begin with)        spool (replies, checked while they arrive)
//!     --> phase: content --> nodes --> receive --> spool --> strategy
//!     --> checkpoints, reports, log
//! ```
//!
//! Knows nothing of what is inside a SuperLink, and nothing of command lines.

mod content;
pub mod round;
pub mod settings;
pub mod spool;

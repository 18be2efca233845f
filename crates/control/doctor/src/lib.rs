//! `trellis doctor`: checks everything that a federation on this machine depends on, and says how to fix what is wrong. Three
//! separate steps: `observe` reads the machine into [`facts`] and changes nothing, `checks` judges the facts (pure), and a
//! [`Report`] prints the checks. [`gpu`] does the same for GPUs of hosts and VMs.

mod check;
mod checks;
mod facts;
pub mod gpu;
mod observe;
mod report;

use trellis_api::Home;

pub use check::{Check, Verdict};
pub use report::Report;

/// Checks this machine, with the control plane at `home`.
pub async fn examine(home: Option<&Home>) -> Report {
    Report::new(checks::checks(&observe::observe(home).await))
}

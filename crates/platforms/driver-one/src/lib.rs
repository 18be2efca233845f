//! The driver of OpenNebula: runs SuperLinks and SuperNodes as VMs of OneFlow services. It executes the decisions of the
//! planner.
//!
//! `record` is the durable state of a part, `view` an observation of the cloud, `render` creates the requests, and `next`
//! selects the next steps; these modules are pure. `reconciler` observes and executes through `cloud`; `status` reports the
//! parts. The driver needs no network to the VMs: their attributes contain their part and the reports of their agents.
//!
//! # Invariants
//! - No call needs ADMIN rights. A VM without a record is not changed before the document is known.
//! - The part of a VM is stored on the VM, so the loss of our disk loses nothing. OneFlow never chooses which VM to
//!   remove.
//! - A service description with problems is never sent. A VM is deleted only when oned says so.

mod cloud;
mod coordinator;
mod driver;
mod examine;
mod fleet;
mod history;
mod home;
mod next;
mod preview;
mod reconciler;
mod record;
mod render;
mod secrets;
mod status;
#[cfg(test)]
mod testing;
mod view;

pub use driver::{KIND, OneDriver, OneSettings, OneSites, OpenNebula};
pub use examine::{Finding, Fitness, examine};
pub use history::Limits;
pub use reconciler::PollIntervals;

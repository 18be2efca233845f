//! The driver of OpenNebula: SuperLinks and SuperNodes as VMs of OneFlow services. It translates and never decides.
//!
//! `record` is what is kept of a part; `view` is the cloud as it was seen; `render` says what is sent, and `next` what is to be
//! done: these are pure. `keeper` looks and does it, through `cloud`; `sight` tells what is there. It needs no network to the
//! VMs: who a VM is stands in its attributes, and so does what its agent says.

mod cloud;
mod coordinator;
mod driver;
mod examine;
mod fleet;
mod home;
mod keeper;
mod memory;
mod next;
mod preview;
mod record;
mod render;
mod secrets;
mod sight;
#[cfg(test)]
mod testing;
mod view;

pub use driver::{KIND, OneDriver, OneSettings, OneSites, OpenNebula};
pub use examine::{Finding, Fitness, examine};
pub use keeper::Pace;
pub use memory::Limits;

//! A simulation of sites, machines and faults, deterministic by seed, in virtual time.
//!
//! [`World`] simulates the sites; [`SimulatedDriver`] is its driver port; [`SimulatedStore`] and [`VirtualClock`] are the other ports.
//! Nothing sleeps, and the same seed gives the same events.

mod disruption;
mod driver;
mod faults;
mod fleet;
mod machine;
mod store;
mod time;
mod world;

pub use crate::seed::Random;
pub use disruption::Disruptions;
pub use driver::SimulatedDriver;
pub use faults::Faults;
pub use fleet::SimulatedFleet;
pub use machine::Machine;
pub use store::SimulatedStore;
pub use time::{Executor, VirtualClock, block_on};
pub use world::{SiteState, Training, World};

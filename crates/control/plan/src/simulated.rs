//! A world that is not there: sites, machines and their troubles, by a seed and in virtual time.
//!
//! [`World`] is what happens; [`SimulatedDriver`] is how a controller sees it; [`SimulatedStore`] and [`VirtualClock`]
//! are the other ports. Nothing here sleeps, and the same seed is the same story.

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

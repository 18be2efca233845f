//! How the replies of a round become the next model: Flower's strategies, as pure code.
//!
//! Nothing here knows of links, files, tokio or clocks. Numbers of replies are read through [`Numbers`], by part, as often
//! as needed; randomness comes from seeds that are arguments.

mod accountant;
pub mod metrics;
mod model;
mod numbers;
pub mod privacy;
mod random;
pub mod sampling;

pub use accountant::Accountant;
pub use model::{Layout, Model, Slot, State};
pub use numbers::{InMemory, Numbers};
pub use privacy::Privacy;
pub use random::Seed;
pub use sampling::{Phase, Sampling, Wanted};

//! How the replies of a round become the next model: Flower's strategies, as pure code.
//!
//! Nothing here knows of links, files, tokio or clocks. Numbers of replies are read through [`Numbers`], by part, as often
//! as needed; randomness comes from seeds that are arguments.

mod model;
mod numbers;

pub use model::{Layout, Model, Slot, State};
pub use numbers::{InMemory, Numbers};

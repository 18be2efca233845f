//! How the replies of a round become the next model: Flower's strategies, as pure code.
//!
//! Nothing here knows of links, files, tokio or clocks. Numbers of replies are read through [`Numbers`], by part, as often
//! as needed; randomness comes from seeds that are arguments.
//!
//! All arithmetic is in `f64`, in an order that is fixed by the order of the replies alone, and each result is rounded once
//! to the type of its array. So a round gives the same bytes whatever arrived first and however many threads took part.

mod accountant;
mod accumulator;
mod coordinate;
mod distance;
mod element;
mod fault;
mod finite;
mod frame;
pub mod health;
mod kept;
mod krum;
mod layout;
pub mod mean;
mod memory;
pub mod metrics;
mod model;
mod network;
mod numbers;
mod optimiser;
pub mod privacy;
mod random;
pub mod sampling;
mod server;
mod source;
mod strategy;
mod sums;
mod tile;
mod trees;
mod work;
pub mod xgboost;

pub use accountant::Accountant;
pub use fault::{Fault, Whose};
pub use finite::first_non_finite;
pub use layout::{check_layout, check_names_and_shapes};
pub use model::{Layout, Model, Slot, State};
pub use numbers::{InMemory, Numbers};
pub use privacy::Privacy;
pub use random::Seed;
pub use sampling::{Phase, Sampling, Wanted};
pub use server::{Aggregated, Options, Reply, Round, Server};
pub use strategy::Strategy;

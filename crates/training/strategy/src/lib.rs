//! Computes the next model from the replies of a round: Flower's strategies, as pure code.
//!
//! This crate knows nothing of links, files, tokio or clocks. It reads the numbers of replies through [`Numbers`], by part and
//! possibly repeatedly. Seeds of random numbers are arguments.
//!
//! All arithmetic is in `f64`, in an order that depends only on the order of the replies, and each result is rounded once to
//! the type of its array. So a round gives the same bytes whatever arrived first and however many threads compute it.

mod accountant;
mod accumulator;
mod batch;
mod coordinate;
mod distance;
mod element;
mod error;
mod finite;
mod frame;
pub mod health;
mod krum;
mod layout;
pub mod mean;
pub mod metrics;
mod model;
mod network;
mod numbers;
mod optimiser;
mod optimiser_state;
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
pub use error::{AggregateError, Sender};
pub use finite::first_non_finite;
pub use layout::{check_layout, check_names_and_shapes};
pub use model::{Layout, Model, Slot, State};
pub use numbers::{InMemory, Numbers};
pub use privacy::Privacy;
pub use random::Seed;
pub use sampling::{Phase, SampleSize, Sampling};
pub use server::{Aggregated, Options, Reply, Round, Server};
pub use strategy::Strategy;

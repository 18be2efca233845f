//! Warm apps with several releases of official Flower: what apps see, how results are handled, and the lifetime of workers.

mod behaviour;
mod instruction;
mod lifetime;
mod official;
mod place;
mod speed;

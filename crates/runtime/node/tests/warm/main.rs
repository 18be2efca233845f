//! Warm apps with official Flower of several releases: what apps see, what becomes of what they do, and how long workers
//! live.

mod behaviour;
mod instruction;
mod lifetime;
mod official;
mod place;
mod speed;

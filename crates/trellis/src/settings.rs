//! From flags, environment and configuration file to settings that were checked, for the programs that serve. Every
//! problem is told at once, each with the place it came from. Knows no program: their flags are handed in.

mod args;
pub mod check;
mod config_file;
pub mod flags;
pub mod gather;
pub mod here;
mod log;
pub mod place;
pub mod print;
pub mod problem;
mod quantity;
#[cfg(test)]
mod sample;
pub mod scan;
pub mod size;

pub use args::{ConfigArgs, LogArgs};
pub use check::{Checker, Surroundings, dashed, given};
pub use flags::{Flags, Program};
pub use gather::RawArgs;
pub use place::Place;
pub use problem::Problem;

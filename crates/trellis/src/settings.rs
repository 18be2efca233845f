//! From a table of settings, flags, environment and configuration file to a checked config, for the programs that serve.
//! Every problem is reported at once, each with the place it came from. Knows no program: their tables are handed in.

pub mod check;
mod config_file;
pub mod flags;
pub mod given;
pub mod here;
mod keepalive;
pub mod kind;
pub mod log;
pub mod place;
pub mod print;
pub mod problem;
#[cfg(test)]
mod sample;
pub mod scan;
pub mod size;
pub mod table;

pub use check::{Checker, Surroundings, dashed};
pub use flags::Flags;
pub use given::Given;
pub(crate) use log::log_group;
pub use place::Place;
pub(crate) use print::config_group;
pub use problem::Problem;
pub(crate) use table::group;
pub use table::{Program, Role};

//! Reads a program's settings from flags, environment and configuration file into a checked config. Reports every problem at
//! once, each with its source. Knows no program: the table of settings is an argument.

pub mod check;
mod config_file;
pub mod flags;
pub mod given;
mod keepalive;
pub mod kind;
pub mod listen;
pub mod log;
pub mod print;
pub mod problem;
#[cfg(test)]
mod sample;
pub mod scan;
pub mod system;
pub mod table;

pub use check::{Checker, System, dashed};
pub use flags::Flags;
pub use given::Given;
pub use listen::ListenAddress;
pub(crate) use log::log_group;
pub(crate) use print::config_group;
pub(crate) use table::group;
pub use table::{Program, Role};

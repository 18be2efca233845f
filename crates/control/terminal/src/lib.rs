//! What commands print and how people write it: tables as wide as the terminal, results as JSON or YAML, times, durations
//! and sizes with units. Text from other machines is cleaned of control characters first. Knows no command.

pub mod duration;
mod output;
pub mod size;
mod table;
mod time;

pub use output::{Format, Listing, OutputArgs, entry, explain, print, print_as, print_json, remark};
pub use table::{Cell, Column, Table, Tone, clean, colours, painted, plain};
pub use time::{age, moment, parse_ttl};

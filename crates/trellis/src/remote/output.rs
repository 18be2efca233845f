//! Results go to stdout, for people or for programs; remarks go to stderr. A reader that has gone away is no trouble.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people; fitted to the terminal, coloured unless NO_COLOR is set
    Table,
    /// For programs; times are seconds since 1970
    Json,
}

#[derive(Debug, Args)]
pub struct OutputArgs {
    /// How to show the result
    #[arg(short = 'o', long = "output", value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// A result.
pub fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

pub fn print_json(value: &impl Serialize) {
    let text = serde_json::to_string_pretty(value).expect("results are plain data");
    print(&format!("{text}\n"));
}

/// Something to know beside the result.
pub fn remark(text: &str) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

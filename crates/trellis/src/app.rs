//! `trellis app`: Flower apps that come with the program.

use std::process::ExitCode;

use clap::Args;

/// Flower apps that come with the program: list them, run them
#[derive(Debug, Args)]
pub struct AppArgs {}

pub fn run(_: &AppArgs) -> ExitCode {
    ExitCode::FAILURE
}

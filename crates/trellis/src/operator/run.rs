//! `trellis operator run`.

use std::process::ExitCode;

use clap::Args;

/// Watch the federations of a cluster, and make and keep what they need
#[derive(Debug, Args)]
pub struct RunArgs {}

pub fn run(_args: &RunArgs) -> ExitCode {
    ExitCode::SUCCESS
}

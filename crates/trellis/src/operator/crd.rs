//! `trellis operator crd`.

use std::process::ExitCode;

use clap::Args;

/// Print the definitions of the resources
#[derive(Debug, Args)]
pub struct CrdArgs {}

pub fn run(_args: &CrdArgs) -> ExitCode {
    ExitCode::SUCCESS
}

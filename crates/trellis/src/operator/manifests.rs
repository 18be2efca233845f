//! `trellis operator manifests`.

use std::process::ExitCode;

use clap::Args;

/// Print all that an installation needs
#[derive(Debug, Args)]
pub struct ManifestsArgs {}

pub fn run(_args: &ManifestsArgs) -> ExitCode {
    ExitCode::SUCCESS
}

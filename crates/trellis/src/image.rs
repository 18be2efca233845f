//! `trellis image`: disk images of the appliances.

use std::process::ExitCode;

use clap::Args;

/// Build and verify disk images of the appliances
#[derive(Debug, Args)]
pub struct ImageArgs {}

pub fn run(_: &ImageArgs) -> ExitCode {
    ExitCode::FAILURE
}

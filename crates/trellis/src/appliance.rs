//! `trellis appliance`: the agent in a virtual machine.

use std::process::ExitCode;

use clap::Args;

/// Be a SuperLink, a SuperNode or a gateway in a virtual machine, as its context says
#[derive(Debug, Args)]
pub struct ApplianceArgs {}

pub fn run(_: &ApplianceArgs) -> ExitCode {
    ExitCode::FAILURE
}

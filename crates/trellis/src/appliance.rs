//! `trellis appliance`: the agent in a virtual machine. From arguments to `trellis_appliance`, and from its answers to text and exit
//! codes.

mod machine;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Be a SuperLink, a SuperNode or a gateway in a virtual machine, as its context says
#[derive(Debug, Args)]
pub struct ApplianceArgs {
    #[command(subcommand)]
    command: ApplianceCommand,
}

#[derive(Debug, Subcommand)]
enum ApplianceCommand {
    Machine(machine::MachineArgs),
}

pub fn run(args: &ApplianceArgs) -> ExitCode {
    match &args.command {
        ApplianceCommand::Machine(args) => machine::run(args),
    }
}

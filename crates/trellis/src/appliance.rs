//! `trellis appliance`: the agent in a virtual machine. From arguments to `trellis_appliance`, and from its answers to text and exit
//! codes.

mod check;
mod vars;

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use trellis_appliance::settings::Role;

/// Be a SuperLink, a SuperNode or a gateway in a virtual machine, as its context says
#[derive(Debug, Args)]
pub struct ApplianceArgs {
    #[command(subcommand)]
    command: ApplianceCommand,
}

#[derive(Debug, Subcommand)]
enum ApplianceCommand {
    Vars(vars::VarsArgs),
    Check(check::CheckArgs),
}

/// What a VM is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleName {
    Superlink,
    Supernode,
    Gateway,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Role {
        match name {
            RoleName::Superlink => Role::SuperLink,
            RoleName::Supernode => Role::SuperNode,
            RoleName::Gateway => Role::Gateway,
        }
    }
}

pub fn run(args: &ApplianceArgs) -> ExitCode {
    match &args.command {
        ApplianceCommand::Vars(args) => vars::run(args),
        ApplianceCommand::Check(args) => check::run(args),
    }
}

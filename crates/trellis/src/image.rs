//! `trellis image`: from arguments to `trellis_image`, and from its answers to text, JSON and exit codes.

mod build;
mod disc;
mod recipe;
mod verify;

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use trellis_image::recipe::Role;
use trellis_terminal::{clean, explain, remark};

use crate::remote::CommandError;

const AFTER_HELP: &str = "\
Examples:
  trellis image build superlink --output images
  trellis image build supernode --framework sklearn --output images
  trellis image verify images/trellis-superlink.qcow2
";

/// Build and verify disk images of the appliances
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ImageArgs {
    #[command(subcommand)]
    command: ImageCommand,
}

#[derive(Debug, Subcommand)]
enum ImageCommand {
    Build(build::BuildArgs),
    Verify(verify::VerifyArgs),
    Recipe(recipe::RecipeArgs),
    Disc(disc::DiscArgs),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleName {
    Superlink,
    Supernode,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Role {
        match name {
            RoleName::Superlink => Role::Superlink,
            RoleName::Supernode => Role::Supernode,
        }
    }
}

/// The error in one line, preceded by the output of other programs.
fn failure(error: &dyn std::error::Error) -> CommandError {
    let text = explain(error);
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    lines.for_each(|line| remark(&clean(line)));
    CommandError::failed(first.trim_end_matches(':'), None)
}

pub fn run(args: &ImageArgs) -> ExitCode {
    let (called, done) = match &args.command {
        ImageCommand::Build(args) => ("trellis image build", build::run(args)),
        ImageCommand::Verify(args) => ("trellis image verify", verify::run(args)),
        ImageCommand::Recipe(args) => ("trellis image recipe", recipe::run(args)),
        ImageCommand::Disc(args) => ("trellis image disc", disc::run(args)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(called),
    }
}

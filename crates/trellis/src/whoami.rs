//! `trellis whoami`: the account of a token, and its role.

use std::process::ExitCode;

use clap::Args;
use trellis_terminal::{Format, OutputArgs, clean, print, print_as};
use trellis_wire::call::WhoAmI;

use crate::remote::{self, CommandError, FederationArgs, SuperlinkArgs};

const AFTER_HELP: &str = "\
Examples:
  trellis whoami --token-file my.token
  trellis whoami && echo the SuperLink can be reached, and the token is good
";

/// Show the account of your token, and its role
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct WhoamiArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    caller: SuperlinkArgs<FederationArgs>,
}

pub fn run(args: &WhoamiArgs) -> ExitCode {
    remote::run("trellis whoami", show(args))
}

async fn show(args: &WhoamiArgs) -> Result<(), CommandError> {
    let me = args.caller.superlink().await?.call(&WhoAmI {}).await?;
    match args.output.format {
        format @ (Format::Json | Format::Yaml) => print_as(format, &me),
        Format::Table => print(&format!("{} ({})\n", clean(&me.name), clean(&me.role))),
    }
    Ok(())
}

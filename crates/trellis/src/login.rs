//! `trellis login`: lets a `flwr login` that waits somewhere go on as the account that calls here.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use trellis_wire::call::{ApproveLogin, WhoAmI};

use crate::remote::{self, OutputArgs, SuperlinkArgs, Trouble, print};

const AFTER_HELP: &str = "\
`flwr login` opens a page of the SuperLink that asks for the token of an account. Without a
browser, take the code at the end of the address that it shows, and approve it from any machine:
  trellis login approve 3F9A1C07BE --superlink link.example.org:8000 --token-file my.token
";

/// Approve a `flwr login` that waits
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, subcommand_required = true, arg_required_else_help = true)]
pub struct LoginArgs {
    #[command(subcommand)]
    command: LoginCommand,
}

#[derive(Debug, Subcommand)]
enum LoginCommand {
    /// Let the login with this code go on, as your account
    ///
    /// Approve only a login that you started yourself: who has it acts in your name.
    Approve {
        /// The code at the end of the address that `flwr login` shows
        code: String,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        caller: SuperlinkArgs,
    },
}

pub fn run(args: &LoginArgs) -> ExitCode {
    let LoginCommand::Approve { code, output, caller } = &args.command;
    remote::run("trellis login approve", approve(code, output, caller))
}

async fn approve(code: &str, output: &OutputArgs, caller: &SuperlinkArgs) -> Result<(), Trouble> {
    let superlink = caller.superlink().await?;
    let me = superlink.call(&WhoAmI {}).await?;
    superlink.call(&ApproveLogin { code: code.to_owned() }).await?;
    output.print(&me, || print(&format!("the login goes on as {}\n", me.name)));
    Ok(())
}

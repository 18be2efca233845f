//! `trellis login`: approves a pending `flwr login` for the calling account.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use trellis_terminal::{OutputArgs, print};
use trellis_wire::call::{ApproveLogin, WhoAmI};

use crate::remote::{self, CommandError, SuperlinkArgs};

const AFTER_HELP: &str = "\
`flwr login` opens a page of the SuperLink that asks for the token of an account. Without a
browser, copy the code at the end of the address that it prints, and approve it from any machine:
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
    /// Approve the login with this code, for your account
    ///
    /// Approve only a login that you started yourself: the client gets the rights of your account.
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

async fn approve(code: &str, output: &OutputArgs, caller: &SuperlinkArgs) -> Result<(), CommandError> {
    let superlink = caller.superlink().await?;
    let me = superlink.call(&WhoAmI {}).await?;
    superlink.call(&ApproveLogin { code: code.to_owned() }).await?;
    output.print(&me, || print(&format!("the login continues as {}\n", me.name)));
    Ok(())
}

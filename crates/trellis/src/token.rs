//! `trellis token`: tokens of accounts and for joining nodes, and of the server.

mod server;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use trellis_terminal::{
    Cell, Column, Format, OutputArgs, Table, Tone, clean, moment, parse_ttl, print, print_as, remark,
};
use trellis_wire::call::{CreateToken, ListTokens, RevokeToken, TokenEntry, WhoAmI};

use crate::remote::{self, CommandError, SaveArgs, SuperlinkArgs};

/// The state of a valid token.
const VALID: &str = "fresh";

const AFTER_HELP: &str = "\
Examples:
  trellis token add --label laptop --save my.token            another one for your own account
  trellis token add ci --label nightly --ttl 90d --save ci.token
  trellis token ls
  trellis token revoke 3fa94c07
  trellis token server add ada --role runner                  for the server: page, API, --server

The secret of a token is shown once, at its creation.
";

/// Manage tokens: of accounts, of nodes that have not joined yet, of the server
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, subcommand_required = true, arg_required_else_help = true)]
pub struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a token for an account; it is printed, once
    Add(AddArgs),
    /// List the tokens, without their secrets
    Ls {
        /// Show expired and revoked tokens, too
        #[arg(short, long)]
        all: bool,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        caller: SuperlinkArgs,
    },
    /// End a token at once
    Revoke {
        /// The token, as in the column ID of `trellis token ls`
        id: String,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        caller: SuperlinkArgs,
    },
    Server(server::ServerTokenArgs),
}

#[derive(Debug, Args)]
struct AddArgs {
    /// The account of the token [default: your own]
    account: Option<String>,
    /// A note on its purpose, shown by `trellis token ls`
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    label: String,
    /// How long it is good: 12h, 90d [default: until it is revoked]
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl)]
    ttl: Option<Duration>,
    #[command(flatten)]
    save: SaveArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    caller: SuperlinkArgs,
}

pub fn run(args: &TokenArgs) -> ExitCode {
    match &args.command {
        TokenCommand::Add(args) => remote::run("trellis token add", add(args)),
        TokenCommand::Ls { all, output, caller } => remote::run("trellis token ls", list(*all, output, caller)),
        TokenCommand::Revoke { id, output, caller } => remote::run("trellis token revoke", async {
            caller.superlink().await?.call(&RevokeToken { id: id.clone() }).await?;
            output.print(&json!({"id": id, "state": "revoked"}), || print(&format!("token {id} is revoked\n")));
            Ok(())
        }),
        TokenCommand::Server(args) => server::run(args),
    }
}

async fn add(args: &AddArgs) -> Result<(), CommandError> {
    let superlink = args.caller.superlink().await?;
    let destination = args.save.prepare()?;
    let account = match &args.account {
        Some(account) => account.clone(),
        None => superlink.call(&WhoAmI {}).await?.name,
    };
    let ttl_s = args.ttl.map(|ttl| ttl.as_secs_f64());
    let new = superlink.call(&CreateToken { account: account.clone(), label: args.label.clone(), ttl_s }).await?;
    let until = new.expires_at.map_or_else(String::new, |time| format!(", until {}", moment(time)));
    let made = format!("Token {} was created for {account}{until}.", clean(&new.id));
    destination.save(args.output.format, &made, &new.token, &new);
    Ok(())
}

async fn list(all: bool, output: &OutputArgs, caller: &SuperlinkArgs) -> Result<(), CommandError> {
    let mut answer = caller.superlink().await?.call(&ListTokens {}).await?;
    answer.tokens.retain(|token| all || token.state == VALID);
    match output.format {
        format @ (Format::Json | Format::Yaml) => print_as(format, &answer),
        Format::Table if answer.tokens.is_empty() => remark("No tokens."),
        Format::Table => table(&answer.tokens).print(),
    }
    Ok(())
}

fn table(tokens: &[TokenEntry]) -> Table {
    let mut table = Table::new([
        Column::whole("ID"),
        Column::cut("ACCOUNT"),
        Column::whole("PURPOSE"),
        Column::cut("LABEL"),
        Column::whole("STATE"),
        Column::whole("CREATED"),
        Column::whole("EXPIRES"),
    ]);
    for token in tokens {
        let tone = if token.state == VALID { Tone::Good } else { Tone::Quiet };
        table.row([
            token.id.as_str().into(),
            token.account.as_str().into(),
            token.purpose.as_str().into(),
            token.label.as_str().into(),
            Cell::new(&token.state, tone),
            moment(token.created_at).into(),
            token.expires_at.map_or_else(|| "never".to_owned(), moment).into(),
        ]);
    }
    table
}

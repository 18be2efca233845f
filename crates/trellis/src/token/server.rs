//! `trellis token server`: tokens of the control plane, for its REST API, its page and commands on other machines.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use trellis_api::{NewToken, Role, Token};
use trellis_terminal::{Cell, Column, Listing, OutputArgs, Table, Tone, clean, moment, parse_ttl, print, remark};

use crate::account::RoleName;
use crate::prefix::{Found, find, too_short};
use crate::remote::{self, CommandError, SaveArgs, ServerArgs};

const AFTER_HELP: &str = "\
Roles; each includes the rights of those before it:
  viewer   see federations, nodes, runs, logs
  runner   start and stop runs, download models
  admin    everything: documents, scaling, tokens

Examples:
  trellis token server add ada --role runner --ttl 90d --save ada.token
  trellis token server ls
  trellis token server revoke 3fa94c07
  trellis status --server https://trellis.example.org:7766 --server-token-file ada.token
";

/// Manage the tokens of the server: its page, its API, and commands on other machines
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, subcommand_required = true, arg_required_else_help = true)]
pub struct ServerTokenArgs {
    #[command(subcommand)]
    command: ServerTokenCommand,
}

#[derive(Debug, Subcommand)]
enum ServerTokenCommand {
    /// Make a token; it is printed, once
    Add {
        /// Owner or purpose of the token
        name: String,
        /// Role of the token
        #[arg(long)]
        role: RoleName,
        /// How long it is good: 12h, 90d [default: until it is revoked]
        #[arg(long, value_name = "DURATION", value_parser = parse_ttl)]
        ttl: Option<Duration>,
        #[command(flatten)]
        save: SaveArgs,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// List the tokens, without their secrets
    Ls {
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// End a token at once
    Revoke {
        /// The token, as in the column ID of `trellis token server ls`, or a prefix of it
        id: String,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        server: ServerArgs,
    },
}

pub fn run(args: &ServerTokenArgs) -> ExitCode {
    match &args.command {
        ServerTokenCommand::Add { name, role, ttl, save, output, server } => {
            remote::run("trellis token server add", async {
                let client = server.client()?;
                let destination = save.prepare()?;
                let new =
                    NewToken { name: name.clone(), role: Role::from(*role), ttl_s: ttl.map(|ttl| ttl.as_secs_f64()) };
                let issued = client.issue_token(&new).await?;
                let until =
                    issued.about.expires_at.map_or_else(String::new, |time| format!(", until {}", moment(time)));
                let (id, role) = (clean(&issued.about.id), issued.about.role.name());
                destination.save(
                    output.format,
                    &format!("Token {id} was created as {role}{until}."),
                    &issued.token,
                    &issued,
                );
                Ok(())
            })
        }
        ServerTokenCommand::Ls { output, server } => remote::run("trellis token server ls", async {
            let tokens = server.client()?.tokens().await?;
            output.print(&Listing { items: &tokens }, || match tokens.is_empty() {
                true => remark("No tokens."),
                false => table(&tokens).print(),
            });
            Ok(())
        }),
        ServerTokenCommand::Revoke { id, output, server } => remote::run("trellis token server revoke", async {
            let client = server.client()?;
            let token = match find(id, client.tokens().await?, |token| &token.id) {
                Found::One(token) => token,
                Found::Many(ids) => return Err(too_short(id, &ids)),
                Found::None => {
                    let advice = "trellis token server ls shows which there are";
                    return Err(CommandError::failed(format!("there is no token {id}"), Some(advice)));
                }
            };
            client.revoke_token(&token.id).await?;
            output
                .print(&token, || print(&format!("token {} of {} is revoked\n", clean(&token.id), clean(&token.name))));
            Ok(())
        }),
    }
}

fn table(tokens: &[Token]) -> Table {
    let mut table = Table::new([
        Column::whole("ID"),
        Column::cut("NAME"),
        Column::whole("ROLE"),
        Column::whole("CREATED"),
        Column::whole("EXPIRES"),
    ]);
    for token in tokens {
        table.row([
            token.id.as_str().into(),
            token.name.as_str().into(),
            Cell::new(token.role.name(), Tone::Plain),
            moment(token.created_at).into(),
            token.expires_at.map_or_else(|| "never".to_owned(), moment).into(),
        ]);
    }
    table
}

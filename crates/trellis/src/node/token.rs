//! `trellis node token`: a secret with which one node may join.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use trellis_terminal::{OutputArgs, clean, moment, parse_ttl};
use trellis_wire::call::CreateJoinToken;

use crate::remote::{self, CommandError, SaveArgs, SuperlinkArgs};

const AFTER_HELP: &str = "\
Only the token is written to standard output, so it can be piped without being displayed:
  trellis node token --label edge-7 | ssh edge-7 trellis node join --key node.key \\
      --token-file - --superlink link.example.org:8000

It is shown once; the SuperLink stores its hash.
";

/// Make a token with which one node may join, once
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TokenArgs {
    /// Lifetime of the token, at most 30d: 30m, 12h, 7d
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_ttl)]
    ttl: Duration,
    /// A note on its purpose, shown by `trellis token ls` and `trellis audit`
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    label: String,
    #[command(flatten)]
    save: SaveArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    caller: SuperlinkArgs,
}

pub fn run(args: &TokenArgs) -> ExitCode {
    remote::run("trellis node token", make(args))
}

async fn make(args: &TokenArgs) -> Result<(), CommandError> {
    let superlink = args.caller.superlink().await?;
    let destination = args.save.prepare()?;
    let new = superlink.call(&CreateJoinToken { ttl_s: args.ttl.as_secs_f64(), label: args.label.clone() }).await?;
    let until = new.expires_at.map_or_else(String::new, |time| format!(", until {}", moment(time)));
    let made = format!("Token {} lets one node join{until}.", clean(&new.id));
    destination.save(args.output.format, &made, &new.token, &new);
    Ok(())
}

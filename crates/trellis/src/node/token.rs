//! `trellis node token`: a secret with which one node may join.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use trellis_wire::call::CreateJoinToken;

use crate::remote::{self, OutputArgs, SaveArgs, SuperlinkArgs, Trouble, clean, moment, parse_ttl};

const AFTER_HELP: &str = "\
The token alone is on standard output, so that it can be passed on without being seen:
  trellis node token --label edge-7 | ssh edge-7 trellis node join --key node.key \\
      --token-file - --superlink link.example.org:8000

It is shown once and kept by the SuperLink as a hash.
";

/// Make a token with which one node may join, once
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TokenArgs {
    /// How long it is good, at most 30d: 30m, 12h, 7d
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_ttl)]
    ttl: Duration,
    /// What it is for, to be found again in `trellis token ls` and `trellis audit`
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

async fn make(args: &TokenArgs) -> Result<(), Trouble> {
    let superlink = args.caller.superlink().await?;
    let place = args.save.prepare()?;
    let new = superlink.call(&CreateJoinToken { ttl_s: args.ttl.as_secs_f64(), label: args.label.clone() }).await?;
    let until = new.expires_at.map_or_else(String::new, |time| format!(", until {}", moment(time)));
    let made = format!("Token {} lets one node join{until}.", clean(&new.id));
    place.keep(args.output.format, &made, &new.token, &new);
    Ok(())
}

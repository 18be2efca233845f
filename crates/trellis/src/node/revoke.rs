//! `trellis node revoke`: removes a node from a SuperLink at once.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use trellis_terminal::{OutputArgs, clean, print};
use trellis_wire::call::RevokeNode;

use crate::remote::{self, CallerArgs, CommandError, Destination as _, OfFederationArgs};

const AFTER_HELP: &str = "\
Examples:
  trellis nodes                                  shows names and ids
  trellis node revoke ward-7 --federation lab    a node that joined a federation of the server
  trellis node revoke 17446744073709551615 --superlink link.example.org:8000

Without --superlink (TRELLIS_SUPERLINK) it is a node of a federation of the server; if no server runs, of a
SuperLink at 127.0.0.1:8000. Remove nodes of pools with `trellis scale`.
";

/// Revoke a node: its next call is refused
///
/// Its unfinished work is lost for the run. It can join again only with a new key and a new join token.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct RevokeArgs {
    /// The node, as in the column ID of `trellis nodes`; of a federation also as in the column NODE
    id: String,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    place: OfFederationArgs,
    #[command(flatten)]
    caller: CallerArgs,
}

pub fn run(args: &RevokeArgs) -> ExitCode {
    remote::run("trellis node revoke", revoke(args))
}

async fn revoke(args: &RevokeArgs) -> Result<(), CommandError> {
    match args.place.unless_superlink(args.caller.names_superlink()).await? {
        Some((found, federation)) => found.client.revoke(&federation, &args.id).await?,
        None => {
            args.caller.superlink()?.call(&RevokeNode { id: args.id.clone() }).await?;
        }
    }
    let result = json!({"id": args.id, "status": "revoked"});
    args.output.print(&result, || print(&format!("node {} was revoked\n", clean(&args.id))));
    Ok(())
}

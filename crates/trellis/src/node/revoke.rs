//! `trellis node revoke`: a node is nobody from this moment on.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use trellis_wire::call::RevokeNode;

use crate::remote::{self, CallerArgs, OfFederationArgs, OutputArgs, Place as _, Trouble, clean, print};

const AFTER_HELP: &str = "\
Examples:
  trellis nodes                                  shows names and ids
  trellis node revoke ward-7 --federation lab    one that joined a federation of the server
  trellis node revoke 17446744073709551615 --superlink link.example.org:8000

Without --superlink (TRELLIS_SUPERLINK) it is a node of a federation of the server; where no server runs, of a
SuperLink at 127.0.0.1:8000. Nodes of pools are taken away with `trellis scale`.
";

/// Take a node away: its next call is refused
///
/// What it was working on is lost for its run. It can join again only with a new key and a new join token.
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

async fn revoke(args: &RevokeArgs) -> Result<(), Trouble> {
    match args.place.unless_superlink(args.caller.names_superlink()).await? {
        Some((found, federation)) => found.client.revoke(&federation, &args.id).await?,
        None => {
            args.caller.superlink()?.call(&RevokeNode { id: args.id.clone() }).await?;
        }
    }
    let told = json!({"id": args.id, "status": "revoked"});
    args.output.print(&told, || print(&format!("node {} is revoked\n", clean(&args.id))));
    Ok(())
}

//! `trellis node revoke`: a node is nobody from this moment on.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use trellis_client::RevokeNode;

use crate::remote::{self, OutputArgs, SuperlinkArgs, Trouble, print};

const AFTER_HELP: &str = "\
Examples:
  trellis nodes                                  shows the ids
  trellis node revoke 17446744073709551615
";

/// Take a node away: its next call is refused
///
/// What it was working on is lost for its run. It can join again only with a new key and a new join token.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct RevokeArgs {
    /// The node, as in the column ID of `trellis nodes`
    id: String,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    caller: SuperlinkArgs,
}

pub fn run(args: &RevokeArgs) -> ExitCode {
    remote::run("trellis node revoke", revoke(args))
}

async fn revoke(args: &RevokeArgs) -> Result<(), Trouble> {
    args.caller.superlink().await?.call(&RevokeNode { id: args.id.clone() }).await?;
    let told = json!({"id": args.id, "status": "revoked"});
    args.output.print(&told, || print(&format!("node {} is revoked\n", args.id)));
    Ok(())
}

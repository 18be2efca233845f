//! `trellis node drain`: stops assigning work to a node of a federation.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use trellis_terminal::{OutputArgs, clean, print};

use crate::remote::{self, CommandError, OfFederationArgs};

const AFTER_HELP: &str = "\
Examples:
  trellis node drain clinic-3                    a node of a pool; changes the document
  trellis node drain ward-7 --federation lab     a joined node
  trellis node drain ward-7 --end                assign work again

The node finishes its work. Runs continue without it. Exit codes: 0 accepted; 1 there is no such node, or it was refused.
";

/// Stop assigning work to a node, or resume
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DrainArgs {
    /// The node, as in the column NODE of `trellis nodes`
    node: String,
    /// End the drain
    #[arg(long)]
    end: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    place: OfFederationArgs,
}

pub fn run(args: &DrainArgs) -> ExitCode {
    remote::run("trellis node drain", async {
        let (client, name) = args.place.find().await?;
        client.drain(&name, &args.node, !args.end).await?;
        let what = if args.end { "takes work again" } else { "finishes its work and gets no more" };
        let result = json!({"federation": name, "node": args.node, "drained": !args.end});
        args.output.print(&result, || print(&format!("{} {what}\n", clean(&args.node))));
        Ok::<_, CommandError>(())
    })
}

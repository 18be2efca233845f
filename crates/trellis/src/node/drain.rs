//! `trellis node drain`: keeps a node of a federation from new work.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::remote::{self, OfFederationArgs, OutputArgs, Trouble, clean, print};

const AFTER_HELP: &str = "\
Examples:
  trellis node drain clinic-3                    a node of a pool: the document says so from then on
  trellis node drain ward-7 --federation lab     one that joined from elsewhere
  trellis node drain ward-7 --end                it takes work again

The node finishes its work. Runs go on without it. Exit codes: 0 it was taken; 1 there is no such node, or it was refused.
";

/// Keep a node from new work, or let it take work again
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
        let what = if args.end { "takes work again" } else { "finishes its work and takes no new one" };
        let told = json!({"federation": name, "node": args.node, "drained": !args.end});
        args.output.print(&told, || print(&format!("{} {what}\n", clean(&args.node))));
        Ok::<_, Trouble>(())
    })
}

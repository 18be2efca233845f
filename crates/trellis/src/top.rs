//! `trellis top`: arguments and output as text or JSON; the live view is `trellis_top`.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use trellis_api::Client;
use trellis_terminal::{Format, Listing, OutputArgs, colours, print, print_as};

use crate::process::StopSignals;
use crate::remote::{self, CommandError, Destination as _, FederationArgs};

const CALLED: &str = "trellis top";
/// Runs of each federation, with -o json.
const MAX_RUNS: usize = 100;

const AFTER_HELP: &str = "\
Examples:
  trellis top                       everything, until q is pressed
  trellis top lab                   one federation
  trellis top --once                the current state as text; also in a pipe: trellis top | less
  trellis top -o json               the current state as JSON

Keys: tab selects the next list, arrows (or j and k) a line, enter shows its details, esc goes back,
q quits. The selected federation is the one whose nodes and runs are shown.
";

/// Watch federations, nodes and runs live
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, mut_arg("federation", |arg| arg.short('f')))]
pub struct TopArgs {
    #[command(flatten)]
    federation: FederationArgs,

    /// Print the current state and exit, as in a pipe
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &TopArgs) -> ExitCode {
    let only = match args.federation.named() {
        Ok(named) => named.map(str::to_owned),
        Err(failure) => return failure.report(CALLED),
    };
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let mut found = None;
    let first = remote::run(CALLED, async {
        let client = args.federation.server.client()?;
        if args.output.format != Format::Table {
            return print_all(&client, only.as_deref(), args.output.format).await;
        }
        if args.once || !terminal {
            print(&trellis_top::plain(&trellis_top::snapshot(&client, only.as_deref()).await?));
            return Ok(());
        }
        // Errors are readable only before the view takes the screen.
        trellis_top::federations(&client, only.as_deref()).await?;
        found = Some(client);
        Ok(())
    });
    let Some(client) = found else { return first };
    match trellis_top::live(client, only, colours(), stopped()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            CommandError::failed(format!("the terminal cannot be used: {error}"), Some("use --once")).report(CALLED)
        }
    }
}

async fn stopped() {
    match StopSignals::listen() {
        Ok(mut signals) => drop(signals.next().await),
        Err(_) => std::future::pending().await,
    }
}

async fn print_all(client: &Client, only: Option<&str>, format: Format) -> Result<(), CommandError> {
    let mut items = Vec::new();
    for federation in trellis_top::federations(client, only).await? {
        let nodes = client.nodes(&federation.name).await?;
        // The SuperLink may not answer yet.
        let runs = client.newest_runs(&federation.name, MAX_RUNS).await.unwrap_or_default();
        items.push(json!({"federation": federation, "nodes": nodes, "runs": runs}));
    }
    print_as(format, &Listing { items: &items });
    Ok(())
}

//! `trellis down`: ends federations with their runs, and with the last of them the server that was started for them.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use trellis_api::Home;
use trellis_api::{CallError, Client, Run, RunState};
use trellis_terminal::{Listing, OutputArgs, remark};

use crate::keep;
use crate::progress::Progress;
use crate::remote::{self, CommandError, Destination as _, FederationArgs, resolve_federation};
use crate::settle::until_gone;
use crate::up::flwr;

/// Per federation. Active runs are among the newest.
const RUNS_TO_STOP: usize = 100;

const AFTER_HELP: &str = "\
Examples:
  trellis down                                       the only federation
  trellis down lab
  trellis down --all

Stops runs, ends processes and removes the data of the federation; models are kept, and so is the history of
runs (`trellis runs`), until `trellis delete NAME --purge`. With the last federation it also stops a server that
`trellis up` or `trellis apply` started.

Exit codes: 0 deleted; 1 not deleted; 2 mistakes in the arguments.
";

/// Delete a federation: its runs, its processes, and its data
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DownArgs {
    #[command(flatten)]
    federation: FederationArgs,

    /// End all federations of the server
    #[arg(long, conflicts_with = "name")]
    all: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// A deleted federation, as data.
#[derive(Serialize)]
pub struct Gone<'a> {
    pub federation: &'a str,
    /// Whether the command waited until all parts were removed.
    pub deleted: bool,
}

pub fn run(args: &DownArgs) -> ExitCode {
    remote::run("trellis down", down(args))
}

async fn down(args: &DownArgs) -> Result<(), CommandError> {
    let named = args.federation.named()?.filter(|_| !args.all);
    let Some(found) = args.federation.server.find()? else {
        remark("No server runs on this machine.");
        args.output.print(&Listing::<Gone<'_>> { items: &[] }, || {});
        return Ok(());
    };
    let client = &found.client;
    let known = client.federations().await?;
    let names = match (args.all, known.is_empty()) {
        (true, _) => known.into_iter().map(|federation| federation.name).collect(),
        (false, true) if named.is_none() => Vec::new(),
        _ => vec![resolve_federation(client, named).await?],
    };
    if names.is_empty() {
        remark("There is no federation.");
    }
    // Delete all of them before waiting for the first one.
    let mut trusted = Vec::new();
    for name in &names {
        trusted.push(flwr::trust(client, name).await);
        let runs = client.newest_runs(name, RUNS_TO_STOP).await.unwrap_or_default();
        stop_runs(client, name, &runs).await;
        client.delete(name).await?;
    }
    for (name, trust) in names.iter().zip(&trusted) {
        until_gone(client, name, &mut Progress::new()).await?;
        flwr::disconnect(name, trust.as_deref());
        remark(&format!("{name} is down"));
    }
    stop_unused(client, found.home.as_ref()).await;
    let gone: Vec<Gone<'_>> = names.iter().map(|federation| Gone { federation, deleted: true }).collect();
    args.output.print(&Listing { items: &gone }, || {});
    Ok(())
}

/// Stops all runs: the planner does not remove nodes that are busy.
async fn stop_runs(client: &Client, name: &str, runs: &[Run]) {
    for run in runs.iter().filter(|run| run.state != RunState::Finished) {
        match client.stop_run(name, &run.id).await {
            Ok(_) => remark(&format!("run {} is stopped", trellis_terminal::clean(&run.id))),
            Err(error) => remark(&format!("run {} was not stopped: {error}", trellis_terminal::clean(&run.id))),
        }
    }
}

/// Deletes a federation, and stops the server if it is no longer used. Prints errors.
pub async fn quietly(client: &Client, name: &str, home: Option<&Home>) {
    let trust = flwr::trust(client, name).await;
    let runs = client.newest_runs(name, RUNS_TO_STOP).await.unwrap_or_default();
    stop_runs(client, name, &runs).await;
    let gone = match client.delete(name).await {
        // Nothing was created yet.
        Err(error) if CallError::is_not_found(&error) => Ok(false),
        Err(error) => Err(CommandError::from(error)),
        Ok(()) => until_gone(client, name, &mut Progress::new()).await.map(|()| true),
    };
    match gone {
        Ok(false) => {}
        Ok(true) => {
            flwr::disconnect(name, trust.as_deref());
            remark(&format!("{name} is down"));
        }
        Err(failure) => drop(failure.report("trellis down")),
    }
    stop_unused(client, home).await;
}

/// Stops a server that runs in the background and has no federations left.
pub async fn stop_unused(client: &Client, home: Option<&Home>) {
    let Some(home) = home else { return };
    let unused = client.federations().await.is_ok_and(|left| left.is_empty());
    if unused && let Err(why) = keep::end(home).await {
        remark(&why);
    }
}

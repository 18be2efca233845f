//! `trellis down`: ends federations with their runs, and with the last of them the server that was started for them.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use trellis_api::{CallError, Client, Run, RunState};

use crate::home::Home;
use crate::keep;
use crate::progress::Progress;
use crate::remote::{self, FederationArgs, Listing, OutputArgs, Place as _, Trouble, meant, remark};
use crate::settle::until_gone;
use crate::up::flwr;

/// Of one federation: those that are not over are among the newest.
const RUNS_TO_STOP: usize = 100;

const AFTER_HELP: &str = "\
Examples:
  trellis down                                       the only federation there is
  trellis down lab
  trellis down --all

Runs are stopped, processes ended, and what the federation kept is removed; models stay, and so does the history of
runs (`trellis runs`), until `trellis delete NAME --purge`. With the last federation the server goes too, if it was
started by `trellis up` or `trellis apply`.

Exit codes: 0 nothing of it is left; 1 something is; 2 mistakes in the arguments.
";

/// End a federation: its runs, its processes, and what it kept
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

/// A federation that was taken away, for programs.
#[derive(Serialize)]
pub struct Gone<'a> {
    pub federation: &'a str,
    /// False: nobody waited until nothing of it was left.
    pub deleted: bool,
}

pub fn run(args: &DownArgs) -> ExitCode {
    remote::run("trellis down", down(args))
}

async fn down(args: &DownArgs) -> Result<(), Trouble> {
    let named = args.federation.named()?.filter(|_| !args.all);
    let Some(found) = args.federation.server.find()? else {
        remark("Nothing is up: no server runs on this machine.");
        args.output.print(&Listing::<Gone<'_>> { items: &[] }, || {});
        return Ok(());
    };
    let client = &found.client;
    let known = client.federations().await?;
    let names = match (args.all, known.is_empty()) {
        (true, _) => known.into_iter().map(|federation| federation.name).collect(),
        (false, true) if named.is_none() => Vec::new(),
        _ => vec![meant(client, named).await?],
    };
    if names.is_empty() {
        remark("Nothing is up: there is no federation.");
    }
    // All are told before anybody is waited for.
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

/// A node that works on something is not taken away; so nobody shall have work.
async fn stop_runs(client: &Client, name: &str, runs: &[Run]) {
    for run in runs.iter().filter(|run| run.state != RunState::Finished) {
        match client.stop_run(name, &run.id).await {
            Ok(_) => remark(&format!("run {} is stopped", remote::clean(&run.id))),
            Err(error) => remark(&format!("run {} was not stopped: {error}", remote::clean(&run.id))),
        }
    }
}

/// Takes a federation down, and the server with it if it is no longer used; tells what does not work.
pub async fn quietly(client: &Client, name: &str, home: Option<&Home>) {
    let trust = flwr::trust(client, name).await;
    let runs = client.newest_runs(name, RUNS_TO_STOP).await.unwrap_or_default();
    stop_runs(client, name, &runs).await;
    let gone = match client.delete(name).await {
        // Nothing of it was made.
        Err(error) if CallError::is_not_found(&error) => Ok(false),
        Err(error) => Err(Trouble::from(error)),
        Ok(()) => until_gone(client, name, &mut Progress::new()).await.map(|()| true),
    };
    match gone {
        Ok(false) => {}
        Ok(true) => {
            flwr::disconnect(name, trust.as_deref());
            remark(&format!("{name} is down"));
        }
        Err(trouble) => drop(trouble.tell("trellis down")),
    }
    stop_unused(client, home).await;
}

/// Ends the server that was started in the background, if it has nothing to look after any more.
pub async fn stop_unused(client: &Client, home: Option<&Home>) {
    let Some(home) = home else { return };
    let unused = client.federations().await.is_ok_and(|left| left.is_empty());
    if unused && let Err(why) = keep::end(home).await {
        remark(&why);
    }
}

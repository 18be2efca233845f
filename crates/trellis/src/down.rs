//! `trellis down`: ends federations with their runs, and with the last of them the server that was started for them.

use std::process::ExitCode;

use clap::Args;
use trellis_api::{CallError, Client, Connection, Run, RunState};

use crate::home::Home;
use crate::keep;
use crate::progress::Progress;
use crate::remote::{self, ServerArgs, Trouble, meant, remark};
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
    /// The federation [default: the only one]
    #[arg(value_name = "NAME", conflicts_with = "all")]
    name: Option<String>,

    /// End all federations of the server
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: &DownArgs) -> ExitCode {
    remote::run("trellis down", down(args))
}

async fn down(args: &DownArgs) -> Result<(), Trouble> {
    let Some(found) = args.server.find()? else {
        remark("Nothing is up: no server runs on this machine.");
        return Ok(());
    };
    let client = &found.client;
    let known = client.federations().await?;
    let names = match (args.all, known.is_empty()) {
        (true, _) => known.into_iter().map(|federation| federation.name).collect(),
        (false, true) if args.name.is_none() => Vec::new(),
        _ => vec![meant(client, args.name.as_deref()).await?],
    };
    if names.is_empty() {
        remark("Nothing is up: there is no federation.");
    }
    // All are told before anybody is waited for.
    let mut connections = Vec::new();
    for name in &names {
        connections.push(client.connection(name).await.ok());
        let runs = client.newest_runs(name, RUNS_TO_STOP).await.unwrap_or_default();
        stop_runs(client, name, &runs).await;
        client.delete(name).await?;
    }
    for (name, connection) in names.iter().zip(&connections) {
        until_gone(client, name, &mut Progress::new()).await?;
        forget(name, connection.as_ref());
        remark(&format!("{name} is down"));
    }
    stop_unused(client, found.home.as_ref()).await;
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

fn forget(name: &str, connection: Option<&Connection>) {
    flwr::disconnect(name, connection);
}

/// Takes a federation down, and the server with it if it is no longer used; tells what does not work.
pub async fn quietly(client: &Client, name: &str, home: Option<&Home>) {
    let connection = client.connection(name).await.ok();
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
            forget(name, connection.as_ref());
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

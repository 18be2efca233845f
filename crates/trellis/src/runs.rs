//! `trellis runs`, `trellis stop`, `trellis logs` and `trellis scale`: runs and pools of a federation.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use trellis_api::{Client, LogPart, Run, RunState};
use trellis_clock::now_s;
use trellis_terminal::{Cell, Column, Format, Listing, OutputArgs, Table, Tone, age, clean, moment, print, remark};

use crate::prefix::{Found, find, too_short};
use crate::remote::{self, CommandError, OfFederationArgs};
use crate::run_source::RunSource;
use crate::settle::Outage;

const RUNS_HELP: &str = "\
Examples:
  trellis runs                                       runs of the only federation, newest first
  trellis runs 1234 --federation lab                 one of them, by its id or a prefix
  trellis runs -o json | jq -r '.items[] | select(.state == \"running\") | .id'

Runs of a stopped or deleted federation stay listed, also without a server, until `trellis delete --purge`.

Exit codes: 0; 1 there is no server, no such federation, or no such run.
";

/// Show the runs of a federation, newest first
#[derive(Debug, Args)]
#[command(after_help = RUNS_HELP)]
pub struct RunsArgs {
    /// The run; without: all of them
    #[arg(value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    place: OfFederationArgs,
}

/// Stop a run
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 it is over, or will be at once; 1 there is no such run, or it was refused.")]
pub struct StopArgs {
    #[arg(value_name = "RUN")]
    run: String,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    place: OfFederationArgs,
}

const LOGS_HELP: &str = "\
Examples:
  trellis logs                                       the log of the newest run
  trellis logs -f 1234                               of a run, following it to its end
  trellis logs 1234 --node clinic-7                  what its ClientApps wrote on a node
  trellis logs --part coordinator                    the last lines of the SuperLink
  trellis logs -f --part nodes-2                     of a node, following it

Exit codes: 0; 1 there is no server, no such run, node or part; 130 interrupted by Ctrl-C.
";

/// Show the log of a run, of its ClientApps on a node, of the SuperLink or of a node
#[derive(Debug, Args)]
#[command(after_help = LOGS_HELP)]
pub struct LogsArgs {
    /// The run [default: the newest]
    #[arg(value_name = "RUN", conflicts_with = "part")]
    run: Option<String>,

    /// Of the program of `coordinator` or of a node
    #[arg(long, value_name = "PART")]
    part: Option<String>,

    /// What ClientApps of the run wrote on this node, by its name or id: also on a node that joined from elsewhere
    #[arg(long, value_name = "NODE", conflicts_with = "part")]
    node: Option<String>,

    /// Follow the log
    #[arg(short, long)]
    follow: bool,

    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    place: OfFederationArgs,
}

const SCALE_HELP: &str = "\
Examples:
  trellis scale nodes=8
  trellis scale wards=6 imaging=2 --federation hospitals
  trellis scale nodes=4 --repartition                assigns all data to the remaining nodes

Changes the document: removed nodes finish their work first. Their shards stay without a node, unless
--repartition divides the data again. A run never selects nodes of both divisions. Exit codes: 0 accepted; 1
refused; 2 mistakes in the arguments.
";

/// Change how many nodes a pool has
#[derive(Debug, Args)]
#[command(after_help = SCALE_HELP)]
pub struct ScaleArgs {
    /// Pool and number of nodes
    #[arg(value_name = "POOL=COUNT", required = true, value_parser = parse_pool)]
    pools: Vec<(String, u32)>,
    /// Divide the data into as many shards as there are nodes; sets training.partitions of the document
    #[arg(long)]
    repartition: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    place: OfFederationArgs,
}

fn parse_pool(text: &str) -> Result<(String, u32), String> {
    let parts = text.split_once('=').and_then(|(pool, count)| Some((pool.trim(), count.trim().parse().ok()?)));
    match parts {
        Some((pool, count)) if !pool.is_empty() => Ok((pool.to_owned(), count)),
        _ => Err("write it like nodes=8".to_owned()),
    }
}

/// The run with this id, or the only one whose id has this prefix.
pub async fn known(client: &Client, federation: &str, text: &str) -> Result<Run, CommandError> {
    match client.run(federation, text).await {
        Err(error) if error.is_not_found() => match find(text, client.runs(federation).await?, |run| &run.id) {
            Found::One(run) => Ok(run),
            Found::None => Err(error.into()),
            Found::Many(ids) => Err(too_short(text, &ids)),
        },
        run => Ok(run?),
    }
}

pub fn run_runs(args: &RunsArgs) -> ExitCode {
    remote::run("trellis runs", async {
        let source = RunSource::find(&args.place.server).await?;
        let name = source.resolve_federation(args.place.flag.named()).await?;
        if let Some(run) = &args.run {
            // A prefix; the server reports unknown ids.
            let id = match find(run, source.runs(&name).await?, |run| &run.id) {
                Found::One(run) => run.id,
                Found::None => run.clone(),
                Found::Many(ids) => return Err(too_short(run, &ids)),
            };
            let run = source.run(&name, &id).await?;
            args.output.print(&run, || show_one(&run));
            return Ok(());
        }
        let runs = source.runs(&name).await?;
        args.output.print(&Listing { items: &runs }, || match runs.is_empty() {
            true => remark(&format!("No runs yet on {name}. `trellis run` or `flwr run . {name}` starts one.")),
            false => table(&runs).print(),
        });
        Ok(())
    })
}

pub fn run_stop(args: &StopArgs) -> ExitCode {
    remote::run("trellis stop", async {
        let (client, name) = args.place.find().await?;
        let run = known(&client, &name, &args.run).await?;
        let run = client.stop_run(&name, &run.id).await?;
        args.output.print(&run, || {
            let outcome = run.outcome.as_deref().unwrap_or("is being stopped");
            print(&format!("run {} {}\n", clean(&run.id), clean(outcome)));
        });
        Ok(())
    })
}

pub fn run_scale(args: &ScaleArgs) -> ExitCode {
    #[derive(Serialize)]
    struct Scaled<'a> {
        federation: &'a str,
        pool: &'a str,
        count: u32,
    }
    remote::run("trellis scale", async {
        let (client, name) = args.place.find().await?;
        let mut scaled = Vec::new();
        for (pool, count) in &args.pools {
            let to = trellis_api::Pool { count: *count, repartition: args.repartition };
            client.scale(&name, pool, &to).await?;
            scaled.push(Scaled { federation: &name, pool, count: *count });
        }
        args.output.print(&Listing { items: &scaled }, || {
            for it in &scaled {
                print(&format!("{} of {name}: {} nodes desired\n", clean(it.pool), it.count));
            }
        });
        if let Some(note) = client.current_plan(&name).await?.status.orphan_note() {
            remark(&format!("note: {note}"));
        }
        Ok(())
    })
}

pub fn run_logs(args: &LogsArgs) -> ExitCode {
    remote::run("trellis logs", logs(args))
}

async fn logs(args: &LogsArgs) -> Result<(), CommandError> {
    let (client, name) = args.place.find().await?;
    let run = match (&args.run, &args.part) {
        (Some(run), _) => Some(known(&client, &name, run).await?.id),
        (None, Some(_)) => None,
        (None, None) => {
            let newest = client.newest_runs(&name, 1).await?;
            let none = || {
                let advice = "`trellis logs --part coordinator` shows that of the SuperLink";
                CommandError::failed(format!("there are no runs on {name} yet"), Some(advice))
            };
            Some(newest.into_iter().next().ok_or_else(none)?.id)
        }
    };
    let (mut after, mut outage): (Option<String>, _) = (None, Outage::default());
    loop {
        // The existing log is printed at once; only new lines are waited for.
        let wait = args.follow && after.is_some();
        let asked = match (&run, &args.node, &args.part) {
            (Some(run), Some(node), _) => client.app_log(&name, run, node, after.as_deref(), wait).await,
            (Some(run), None, _) => client.run_log(&name, run, after.as_deref(), wait).await,
            (None, _, part) => {
                let part = part.as_deref().unwrap_or("coordinator");
                client.part_log(&name, part, after.as_deref(), wait).await
            }
        };
        let part = match args.follow {
            true => outage.tolerate(asked)?,
            false => Some(asked?),
        };
        let Some(LogPart { text, next, ended }) = part else { continue };
        match args.output.format {
            Format::Table => print(&text),
            // Part by part, as it grows.
            format if !text.is_empty() => print(&trellis_terminal::entry(
                format,
                &json!({"run": run, "node": args.node, "part": args.part, "text": text}),
            )),
            _ => {}
        }
        let nothing_new = text.is_empty() && !wait;
        if ended || (!args.follow && (nothing_new || run.is_none())) {
            return Ok(());
        }
        after = Some(next);
    }
}

fn state(run: &Run) -> (String, Tone) {
    let tone = match (run.state, run.outcome.as_deref()) {
        (RunState::Finished, Some("completed")) => Tone::Good,
        (RunState::Finished, Some("failed")) => Tone::Bad,
        (RunState::Finished, _) => Tone::Quiet,
        _ => Tone::Plain,
    };
    let word = match run.state {
        RunState::Pending => "pending",
        RunState::Starting => "starting",
        RunState::Running => "running",
        RunState::Finished => run.outcome.as_deref().unwrap_or("finished"),
    };
    (word.to_owned(), tone)
}

fn table(runs: &[Run]) -> Table {
    let mut table = Table::new([
        Column::whole("RUN"),
        Column::cut("APP"),
        Column::whole("STATE"),
        Column::whole("ROUND"),
        Column::cut("METRICS"),
        Column::whole("SUBMITTED"),
        Column::cut("WHY"),
    ]);
    let now = now_s();
    for run in runs {
        let (word, tone) = state(run);
        let round = run.training.as_ref().map(|training| match training.rounds_planned {
            0 => training.round.to_string(),
            planned => format!("{}/{planned}", training.round),
        });
        table.row([
            run.id.as_str().into(),
            run.app.as_str().into(),
            Cell::new(&word, tone),
            round.unwrap_or_default().into(),
            metrics(run).into(),
            age(now, run.submitted_at).into(),
            run.details.as_str().into(),
        ]);
    }
    table
}

/// Runs that are not finished.
fn metrics(run: &Run) -> String {
    let Some(training) = &run.training else { return String::new() };
    let looked_at = |name: &str| ["loss", "acc"].iter().any(|part| name.contains(part));
    let evaluated = training.metrics.iter().filter(|(name, _)| looked_at(name));
    evaluated.map(|(name, value)| format!("{name} {value:.4}")).collect::<Vec<_>>().join("  ")
}

fn show_one(run: &Run) {
    let mut lines = vec![
        format!("run {}: {} {}, {}", run.id, run.app, run.version, state(run).0),
        format!("  on         {}", run.federation),
        format!("  submitted  {}", moment(run.submitted_at)),
    ];
    let times = [("started", run.started_at), ("finished", run.finished_at)];
    lines.extend(times.into_iter().filter_map(|(name, time)| Some(format!("  {name:<9}  {}", moment(time?)))));
    if !run.details.is_empty() {
        lines.push(format!("  why        {}", run.details));
    }
    if let Some(training) = &run.training {
        lines.push(format!(
            "  training   {}, round {} of {}",
            training.strategy, training.round, training.rounds_planned
        ));
        lines.extend(training.metrics.iter().map(|(name, value)| format!("  {name:<9}  {value:.4}")));
        lines.extend(training.checkpoint.iter().map(|path| format!("  model      {path}")));
    }
    print(&lines.iter().map(|line| clean(line) + "\n").collect::<String>());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_given_with_their_number() {
        assert_eq!(parse_pool("wards=6"), Ok(("wards".to_owned(), 6)));
        for bad in ["wards", "=6", "wards=", "wards=-1", "wards=many"] {
            assert!(parse_pool(bad).is_err(), "{bad}");
        }
    }
}

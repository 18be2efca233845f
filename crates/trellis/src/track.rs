//! `trellis track`, and what `trellis run` shares with it: the flags of experiment trackers, and telling what was delivered.

mod args;
mod origin;

use std::process::ExitCode;

use clap::Args;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use trellis_api::Client;
use trellis_client::SuperLink;
use trellis_terminal::{Format, OutputArgs, remark};
use trellis_tracking::{Delivery, Tracker, Until};

pub use args::SinkArgs;
pub use origin::{Origin, sent};

use crate::prefix::{Found, find, too_short};
use crate::process::StopSignals;
use crate::remote::{CallerArgs, CommandError, Destination as _, OfFederationArgs};
use crate::run::show::Show;
use crate::run::{LEFTOVERS, by_signal, listen};
use crate::runs::known;

const CALLED: &str = "trellis track";
const AFTER_HELP: &str = "\
Examples:
  trellis track 1234 --tensorboard runs              the metrics of a run, for `tensorboard --logdir runs`
  trellis track --mlflow http://127.0.0.1:5000 --follow
                                                     the newest run, while it trains
  trellis track 1234 -o json                         its reports, one line of JSON for each round

The run may be one that Trellis aggregates or that has a ServerApp of its own, at work or finished. It is tracked once: points
that MLflow has are not sent again, and the file of TensorBoard is written anew. MLflow gets the last model of a native run, too,
if its checkpoint is on this machine. Credentials for MLflow are read from MLFLOW_TRACKING_TOKEN, or from
MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.

Exit codes: 0 everything was delivered; 1 something was not, or there is no such run; 2 mistakes in the arguments, nothing was
sent; 128 and the number of the signal (130 for Ctrl-C) ended by it.
";

/// Send the metrics of a run to TensorBoard or MLflow
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TrackArgs {
    /// The run, by its id or how that begins [default: the newest]
    #[arg(value_name = "RUN")]
    run: Option<String>,

    /// Go on until the run ends
    #[arg(short, long)]
    follow: bool,

    #[command(flatten)]
    sinks: SinkArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    place: OfFederationArgs,
    #[command(flatten)]
    caller: CallerArgs,
}

pub fn run(args: &TrackArgs) -> ExitCode {
    let runtime = match Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return CommandError::failed(format!("no async runtime: {error}"), None).report(CALLED),
    };
    let outcome = runtime.block_on(track(args));
    runtime.shutdown_timeout(LEFTOVERS);
    outcome.unwrap_or_else(|failure| failure.report(CALLED))
}

async fn track(args: &TrackArgs) -> Result<ExitCode, CommandError> {
    let sinks = args.sinks.sinks()?;
    if !args.sinks.is_given() && args.output.format == Format::Table {
        let advice = "give --tensorboard DIR or --mlflow URI; -o json prints the reports";
        return Err(CommandError::usage("nothing is named that shall get the metrics", advice));
    }
    let mut signals = listen()?;
    let origin = match args.place.unless_superlink(args.caller.names_superlink()).await? {
        Some((found, federation)) => of_server(found.client, &federation, args.run.as_deref()).await?,
        None => of_superlink(args.caller.superlink()?, args.run.as_deref()).await?,
    };
    let mut show = Show::new(args.output.format);
    let (tell, mut told) = mpsc::unbounded_channel();
    let until = if args.follow { Until::RunEnds } else { Until::OneLook };
    let mut tracked = std::pin::pin!(Tracker::start(origin, sinks, until, Some(tell)).ended());
    let deliveries = loop {
        tokio::select! {
            biased;
            Some(report) = told.recv() => show.report(&report),
            deliveries = &mut tracked => break deliveries,
            (_, number) = signals.next() => return Ok(by_signal(number)),
        }
    };
    tell_of(&deliveries, &mut show);
    Ok(if deliveries.iter().all(Delivery::is_complete) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn of_server(client: Client, federation: &str, run: Option<&str>) -> Result<Origin, CommandError> {
    let run = match run {
        Some(run) => known(&client, federation, run).await?,
        None => client.newest_runs(federation, 1).await?.into_iter().next().ok_or_else(|| no_runs(federation))?,
    };
    Ok(Origin::server(&client, federation, &run.id))
}

async fn of_superlink(superlink: SuperLink, run: Option<&str>) -> Result<Origin, CommandError> {
    let mut runs = superlink.list_runs(None).await?;
    // Times are texts of one form.
    runs.sort_by(|one, other| other.pending_at.cmp(&one.pending_at));
    let ids = runs.iter().map(|run| run.run_id.to_string());
    let id = match run {
        Some(text) => match find(text, ids, String::as_str) {
            Found::One(id) => id,
            Found::None => {
                return Err(CommandError::failed(format!("there is no run {text} on {}", superlink.endpoint()), None));
            }
            Found::Many(ids) => return Err(too_short(text, &ids)),
        },
        None => ids.into_iter().next().ok_or_else(|| no_runs(&superlink.endpoint()))?,
    };
    Ok(Origin::superlink(&superlink, id.parse().expect("ids are numbers")))
}

fn no_runs(place: &str) -> CommandError {
    CommandError::failed(format!("there are no runs on {place} yet"), Some("`trellis run` starts one"))
}

/// Delivers what is left of a run that `trellis run` has followed, and tells what was not delivered.
pub async fn finish(tracker: Option<Tracker>, show: &mut Show, signals: &mut StopSignals) {
    let Some(tracker) = tracker else { return };
    tokio::select! {
        deliveries = tracker.finish() => tell_of(&deliveries, show),
        _ = signals.next() => remark("not all of the metrics were delivered: `trellis track` delivers the rest"),
    }
}

fn tell_of(deliveries: &[Delivery], show: &mut Show) {
    deliveries.iter().for_each(|delivery| show.tracked(delivery));
}

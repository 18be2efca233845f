//! `trellis run`: trains. Sends a run to a server or a SuperLink, or starts a federation in this process for it; then follows
//! the run to its end. Wiring only: `plan` decides what is sent, `show` prints the progress.

mod args;
mod federation;
pub mod follow;
mod plan;
pub mod served;
pub mod show;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use args::DEFAULT_NODES;
pub use args::RunArgs;
use federation::{Federation, Wanted};
use follow::{Followed, Follower};
use plan::{client_apps, counted, plan};
use serde_json::json;
use show::Show;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use trellis_api::Client;
use trellis_api::Home;
use trellis_client::app::App;
use trellis_client::{SuperLink, Target};
use trellis_logging::{LogFormat, LogSettings};
use trellis_terminal::{Format, explain, print, print_as, remark};
use trellis_train::Options;
use trellis_train::submit::{Location, Submission, to_toml};

use crate::private_dir;
use crate::process::{StopSignals, raise_open_file_limit};
use crate::remote::{CommandError, Destination as _};
use crate::track::{self, Origin};

const CALLED: &str = "trellis run";
const MODELS: &str = "models";
/// The kind of ServerApp that this program is.
const NATIVE_TASK: &str = "trellis-serverapp";
/// Limit for blocking tasks after the run has ended.
pub const LEFTOVERS: Duration = Duration::from_secs(2);
/// Poll interval of the run if the SuperLink reports no events.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Shells add this to the number of a signal.
const BY_SIGNAL: u8 = 128;

pub fn run(args: &RunArgs) -> ExitCode {
    start(args, args.app_flag.as_ref().unwrap_or(&args.app), args.app_server)
}

/// Runs the app in a directory instead of the one that the arguments name, with its own ServerApp.
pub fn run_directory(args: &RunArgs, directory: &Path) -> ExitCode {
    start(args, &directory.to_string_lossy(), true)
}

fn start(args: &RunArgs, app: &str, app_server: bool) -> ExitCode {
    let runtime = match Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return CommandError::failed(format!("no async runtime: {error}"), None).report(CALLED),
    };
    let outcome = runtime.block_on(train(args, app, app_server));
    runtime.shutdown_timeout(LEFTOVERS);
    outcome.unwrap_or_else(|failure| failure.report(CALLED))
}

async fn train(args: &RunArgs, app: &str, app_server: bool) -> Result<ExitCode, CommandError> {
    let served = served(args).await?;
    let remote = served.is_some() || args.place.caller.names_superlink();
    let nodes = args.here.nodes.unwrap_or(DEFAULT_NODES);
    let location = if remote { Location::SuperLink { nodes: None } } else { Location::InProcess { nodes } };
    let mistakes = all(misplaced(args, remote), args.tracking.sinks());
    let (_, (plan, superlink)) = all(mistakes, all(plan(args, app, app_server, location), superlink(args)))?;
    if args.dry_run {
        show_plan(&plan, remote, args.output.format);
        return Ok(ExitCode::SUCCESS);
    }
    for note in plan.training.iter().flat_map(|training| &training.notes) {
        remark(&format!("note: {note}"));
    }
    match (served, superlink) {
        (Some((client, federation)), _) => on_server(args, &client, &federation, &plan).await,
        (None, Some(superlink)) => on_superlink(args, &superlink, plan).await,
        (None, None) => here(args, nodes, plan).await,
    }
}

/// The server and the federation to train on: as named, or the only ones of this machine.
async fn served(args: &RunArgs) -> Result<Option<(Client, String)>, CommandError> {
    // Flags of a federation in this process select one.
    if !args.federation.is_given() && only_here(args).iter().any(|(_, given)| *given) {
        return Ok(None);
    }
    let found = args.federation.unless_superlink(args.place.caller.names_superlink()).await?;
    Ok(found.map(|(found, federation)| (found.client, federation)))
}

/// Both values, or all problems.
fn all<A, B>(one: Result<A, CommandError>, other: Result<B, CommandError>) -> Result<(A, B), CommandError> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (Err(failure), Err(more)) => Err(failure.and(more)),
        (Err(failure), _) | (_, Err(failure)) => Err(failure),
    }
}

fn superlink(args: &RunArgs) -> Result<Option<SuperLink>, CommandError> {
    if args.place.caller.names_superlink() { args.place.caller.superlink().map(Some) } else { Ok(None) }
}

/// The flags of a federation in this process, and whether they are set.
fn only_here(args: &RunArgs) -> [(&'static str, bool); 4] {
    let here = &args.here;
    [
        ("--nodes", here.nodes.is_some()),
        ("--models", here.models.is_some()),
        ("--state-dir", here.state_dir.is_some()),
        ("--python", here.python.is_some()),
    ]
}

/// Flags that belong to the other place.
fn misplaced(args: &RunArgs, remote: bool) -> Result<(), CommandError> {
    let here = &args.here;
    let given = only_here(args).into_iter().filter(|(_, given)| *given && remote);
    let mut failures: Vec<CommandError> = given
        .map(|(flag, _)| {
            let given = if args.place.caller.names_superlink() { "SuperLink" } else { "federation" };
            let what = format!("{flag} is for a federation in this process, but a {given} is named");
            CommandError::usage(what, "leave out one of them (the SuperLink may be given by TRELLIS_SUPERLINK)")
        })
        .collect();
    if args.detach && !remote {
        let what = "--detach: a federation in this process ends with it";
        failures.push(CommandError::usage(what, "leave it out, or give --superlink or --federation"));
    }
    if args.detach && args.tracking.is_given() {
        let what = "--detach: without following the run, nothing of it can be tracked";
        failures.push(CommandError::usage(what, "leave it out, or track the run afterwards with `trellis track`"));
    }
    if here.nodes == Some(0) {
        failures.push(CommandError::usage("--nodes: a training needs nodes", "give at least 1"));
    }
    failures.into_iter().reduce(CommandError::and).map_or(Ok(()), Err)
}

/// Shows the run that would be sent.
fn show_plan(plan: &Submission, remote: bool, format: Format) {
    let fab = &plan.bundle.fab;
    let what = match (remote, plan.training.is_some()) {
        (true, true) => format!("{}; for everything else the defaults there count", plan.sent()),
        _ => plan.summary(),
    };
    match format {
        Format::Table => print(&format!("{what}\nbundle {}, {} bytes\n", fab.hash_str, fab.content.len())),
        Format::Json | Format::Yaml => {
            let values: std::collections::BTreeMap<_, _> =
                plan.values.iter().map(|(key, scalar)| (key, to_toml(scalar))).collect();
            print_as(
                format,
                &json!({
                    "app": plan.bundle.metadata.id(),
                    "version": plan.bundle.metadata.version,
                    "fab_hash": fab.hash_str,
                    "fab_bytes": fab.content.len(),
                    "native": plan.training.is_some(),
                    "values": values,
                }),
            );
        }
    }
}

/// On a federation of a server.
async fn on_server(
    args: &RunArgs,
    client: &Client,
    federation: &str,
    plan: &Submission,
) -> Result<ExitCode, CommandError> {
    let mut signals = listen()?;
    let run = client.start_run(federation, &served::new_run(plan), None).await?;
    let mut show = Show::new(args.output.format);
    show.started(&run.id, &format!("{}, on {federation}", plan.sent()));
    show.print_settings(plan.training.is_some());
    if let Some(note) = client.federation(federation).await?.status.and_then(|status| status.orphan_note()) {
        remark(&format!("note: {note}"));
    }
    if args.detach {
        return Ok(ExitCode::SUCCESS);
    }
    let tracking = args.tracking.start(Origin::server(client, federation, &run.id).with(track::sent(plan)))?;
    let follower = served::Follower::new(client, federation, &run, &mut signals);
    let followed = match plan.training.is_some() {
        true => follower.reports(&mut show).await?.0,
        false => follower.log(&mut show).await?,
    };
    track::finish(tracking, &mut show, &mut signals).await;
    conclude(&run.id, &followed, &mut show, "")
}

/// On a SuperLink that is there already.
async fn on_superlink(args: &RunArgs, superlink: &SuperLink, plan: Submission) -> Result<ExitCode, CommandError> {
    // Before the run is there: from then on Ctrl-C is about it.
    let mut signals = listen()?;
    let (sent, native, settings) = (plan.sent(), plan.training.is_some(), track::sent(&plan));
    let run = superlink.start_run(plan.bundle.fab, plan.values).await?;
    let mut show = Show::new(args.output.format);
    show.started(run, &sent);
    show.print_settings(native);
    if args.detach {
        return Ok(ExitCode::SUCCESS);
    }
    let tracking = args.tracking.start(Origin::superlink(superlink, run).with(settings))?;
    let follower = Follower::new(superlink, run, &mut signals);
    let followed = if native { follower.reports(&mut show).await } else { follower.log(&mut show).await }?;
    track::finish(tracking, &mut show, &mut signals).await;
    conclude(run, &followed, &mut show, " (where the SuperLink is)")
}

/// In this process.
async fn here(args: &RunArgs, nodes: usize, plan: Submission) -> Result<ExitCode, CommandError> {
    let mut signals = listen()?;
    start_log(args.here.verbose)?;
    // Each node holds some files and connections open.
    if let Err(error) = raise_open_file_limit() {
        tracing::warn!(%error, "the limit of open files could not be raised: fewer SuperNodes fit");
    }
    let wanted = Wanted {
        nodes,
        state_dir: args.here.state_dir.clone(),
        apps: client_apps(&plan),
        python_server_app: plan.training.is_none(),
        python: args.here.python.clone(),
    };
    let models_dir = models(args)?;
    remark(&format!("starting a SuperLink and {} in this process", counted(nodes as u64, "SuperNode")));
    let mut federation = Federation::start(&wanted).await?;
    let (superlink, target) = (federation.superlink.clone(), federation.target.clone());
    let place = Options {
        models_dir,
        spool_dir: federation.directory.join("spool"),
        defaults: Default::default(),
        echo: false,
        any_path: true,
    };
    let online = federation.online();
    let training = in_this_process(args, &superlink, target, place, plan, online, &mut signals);
    let advice = "-v shows the log of all parts; --python names the Python of apps";
    let outcome = tokio::select! {
        outcome = training => outcome,
        why = federation.broken() => Err(CommandError::failed(why, Some(advice))),
    };
    // A second signal: drops the services, which kills their processes.
    tokio::select! {
        () = federation.stop() => {}
        _ = signals.next() => {}
    }
    outcome
}

async fn in_this_process(
    args: &RunArgs,
    superlink: &SuperLink,
    target: Target,
    place: Options,
    plan: Submission,
    online: impl Future<Output = Result<(), CommandError>>,
    signals: &mut StopSignals,
) -> Result<ExitCode, CommandError> {
    tokio::select! {
        online = online => online?,
        (_, number) = signals.next() => return Ok(by_signal(number)),
    }
    let (summary, native, settings) = (plan.summary(), plan.training.is_some(), track::sent(&plan));
    let run = superlink.start_run(plan.bundle.fab, plan.values).await?;
    let mut show = Show::new(args.output.format);
    show.started(run, &summary);
    let tracking = args.tracking.start(Origin::superlink(superlink, run).with(settings))?;
    let follower = Follower::new(superlink, run, signals);
    let followed = if native {
        let trainer = Trainer::start(superlink.clone(), target, run, place);
        let followed = follower.reports(&mut show).await?;
        trainer.end().await;
        followed
    } else {
        follower.log(&mut show).await?
    };
    track::finish(tracking, &mut show, signals).await;
    conclude(run, &followed, &mut show, "")
}

/// The directory of checkpoints: the given one, that of the state, or that of all other runs.
fn models(args: &RunArgs) -> Result<PathBuf, CommandError> {
    let beside = || args.here.state_dir.as_deref().map(|directory| directory.join(MODELS));
    let directory = match (args.here.models.clone().or_else(beside), Home::find(None)) {
        (Some(directory), _) => directory,
        (None, Some(home)) => {
            private_dir::claim(home.directory())
                .map_err(|error| CommandError::failed(explain(&error), Some("name a directory with --models")))?;
            home.own_models()
        }
        (None, None) => MODELS.into(),
    };
    Ok(std::path::absolute(&directory).unwrap_or(directory))
}

/// The ServerApp of a native run, in this process.
struct Trainer(JoinHandle<()>);

impl Trainer {
    fn start(superlink: SuperLink, target: Target, run: u64, place: Options) -> Trainer {
        Trainer(tokio::spawn(async move {
            let task = loop {
                match superlink.acquire_task(NATIVE_TASK).await {
                    Ok(Some(task)) if task.run == run => break task,
                    // An earlier process left a run in the state directory.
                    Ok(Some(task)) => drop(superlink.stop_run(task.run).await),
                    Ok(None) => tokio::time::sleep(ASK_AGAIN).await,
                    Err(error) => {
                        tracing::error!("the run cannot be claimed: {error}");
                        tokio::time::sleep(ASK_AGAIN).await;
                    }
                }
            };
            if let Err(error) = trellis_train::run(App::new(target, task.token), place).await {
                // The run's status has the same error.
                tracing::debug!("the training ended: {error}");
            }
        }))
    }

    /// Waits until a training has written its results after the end of its run.
    async fn end(self) {
        let mut task = self.0;
        if tokio::time::timeout(LEFTOVERS, &mut task).await.is_err() {
            task.abort();
        }
    }
}

pub fn listen() -> Result<StopSignals, CommandError> {
    StopSignals::listen().map_err(|error| CommandError::failed(format!("no signal handlers: {error}"), None))
}

/// Logs of all parts go to stderr: warnings and errors only, unless the user asked for more.
fn start_log(verbose: bool) -> Result<(), CommandError> {
    let level = if verbose { "info" } else { "error" };
    let settings = LogSettings { format: LogFormat::Text, level: level.to_owned(), file: None };
    trellis_logging::start("run", &settings, None).map_err(|error| CommandError::failed(error.to_string(), None))
}

/// As a shell reports it.
pub fn by_signal(number: i32) -> ExitCode {
    ExitCode::from(BY_SIGNAL.saturating_add(u8::try_from(number).unwrap_or(0)))
}

/// Prints how the run ended, and returns the exit code.
pub fn conclude(
    run: impl Display,
    followed: &Followed,
    show: &mut Show,
    place: &str,
) -> Result<ExitCode, CommandError> {
    match followed {
        Followed::Left(signal) => {
            remark(&format!("run {run} was asked to stop, and may still be stopping"));
            Ok(by_signal(*signal))
        }
        Followed::Stopped(ended, signal) => {
            show.ended(&run, ended, place);
            Ok(by_signal(*signal))
        }
        Followed::ToTheEnd(ended) => {
            show.ended(&run, ended, place);
            match ended.is_completed() {
                true => Ok(ExitCode::SUCCESS),
                false => Err(CommandError::failed(format!("run {run} {}: {}", ended.status, ended.details), None)),
            }
        }
    }
}

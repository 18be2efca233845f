//! `trellis run`: trains. Sends a run to a server or a SuperLink, or makes a federation in this process and sends it there; then
//! follows the run to its end. Wiring only: what is sent is decided in `plan`, what is seen in `show`.

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
use trellis_client::app::App;
use trellis_client::{SuperLink, Target};
use trellis_train::Options;
use trellis_train::submit::{Place, Submission, to_toml};

use crate::home::Home;
use crate::logging::{self, LogFormat, LogSettings};
use crate::process::{StopSignals, raise_open_file_limit};
use crate::remote::{Format, Place as _, Trouble, explain, print, print_as, remark};

const CALLED: &str = "trellis run";
const MODELS: &str = "models";
/// The kind of ServerApp that this program is.
const NATIVE_TASK: &str = "trellis-serverapp";
/// How long work that was given up may go on after the run has ended.
const LEFTOVERS: Duration = Duration::from_secs(2);
/// Between questions for the run, where the SuperLink has none to give.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// What a shell adds to the number of a signal.
const BY_SIGNAL: u8 = 128;

pub fn run(args: &RunArgs) -> ExitCode {
    start(args, args.app_flag.as_ref().unwrap_or(&args.app), args.app_server)
}

/// Runs the app in a directory, in place of the one that the arguments name, with its own ServerApp.
pub fn run_directory(args: &RunArgs, directory: &Path) -> ExitCode {
    start(args, &directory.to_string_lossy(), true)
}

fn start(args: &RunArgs, app: &str, app_server: bool) -> ExitCode {
    let runtime = match Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Trouble::failed(format!("the system gives no runtime: {error}"), None).tell(CALLED),
    };
    let outcome = runtime.block_on(train(args, app, app_server));
    runtime.shutdown_timeout(LEFTOVERS);
    outcome.unwrap_or_else(|trouble| trouble.tell(CALLED))
}

async fn train(args: &RunArgs, app: &str, app_server: bool) -> Result<ExitCode, Trouble> {
    let served = served(args).await?;
    let remote = served.is_some() || args.place.caller.names_superlink();
    let nodes = args.here.nodes.unwrap_or(DEFAULT_NODES);
    let place = if remote { Place::There { nodes: None } } else { Place::Here { nodes } };
    let planned = all(misplaced(args, remote), all(plan(args, app, app_server, place), superlink(args)))?;
    let ((), (plan, superlink)) = planned;
    if args.dry_run {
        tell(&plan, remote, args.output.format);
        return Ok(ExitCode::SUCCESS);
    }
    for note in plan.training.iter().flat_map(|training| &training.notes) {
        remark(&format!("note: {note}"));
    }
    match (served, superlink) {
        (Some((client, federation)), _) => on_server(args, &client, &federation, &plan).await,
        (None, Some(superlink)) => there(args, &superlink, plan).await,
        (None, None) => here(args, nodes, plan).await,
    }
}

/// The server and the federation to train on: those that are named, or those of this machine. `None`: neither.
async fn served(args: &RunArgs) -> Result<Option<(Client, String)>, Trouble> {
    // Who says something about a federation in this process wants one.
    if !args.federation.is_given() && only_here(args).iter().any(|(_, given)| *given) {
        return Ok(None);
    }
    let found = args.federation.unless_superlink(args.place.caller.names_superlink()).await?;
    Ok(found.map(|(found, federation)| (found.client, federation)))
}

/// Both, or the trouble of both.
fn all<A, B>(one: Result<A, Trouble>, other: Result<B, Trouble>) -> Result<(A, B), Trouble> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (Err(trouble), Err(more)) => Err(trouble.and(more)),
        (Err(trouble), _) | (_, Err(trouble)) => Err(trouble),
    }
}

fn superlink(args: &RunArgs) -> Result<Option<SuperLink>, Trouble> {
    if args.place.caller.names_superlink() { args.place.caller.superlink().map(Some) } else { Ok(None) }
}

/// Flags that are about a federation in this process, and whether they are given.
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
fn misplaced(args: &RunArgs, remote: bool) -> Result<(), Trouble> {
    let here = &args.here;
    let given = only_here(args).into_iter().filter(|(_, given)| *given && remote);
    let mut troubles: Vec<Trouble> = given
        .map(|(flag, _)| {
            let given = if args.place.caller.names_superlink() { "SuperLink" } else { "federation" };
            let what = format!("{flag} is for a federation in this process, and a {given} is given");
            Trouble::usage(what, "leave out one of them (the SuperLink may be given by TRELLIS_SUPERLINK)")
        })
        .collect();
    if args.detach && !remote {
        let what = "--detach: a federation in this process ends with it";
        troubles.push(Trouble::usage(what, "leave it out, or give --superlink or --federation"));
    }
    if here.nodes == Some(0) {
        troubles.push(Trouble::usage("--nodes: without nodes nothing is trained", "give at least 1"));
    }
    troubles.into_iter().reduce(Trouble::and).map_or(Ok(()), Err)
}

/// What would be sent.
fn tell(plan: &Submission, remote: bool, format: Format) {
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
async fn on_server(args: &RunArgs, client: &Client, federation: &str, plan: &Submission) -> Result<ExitCode, Trouble> {
    let mut signals = listen()?;
    let run = client.start_run(federation, &served::new_run(plan), None).await?;
    let mut show = Show::new(args.output.format);
    show.started(&run.id, &format!("{}, on {federation}", plan.sent()));
    show.tell_settings(plan.training.is_some());
    if let Some(note) = client.federation(federation).await?.status.and_then(|status| status.orphan_note()) {
        remark(&format!("note: {note}"));
    }
    if args.detach {
        return Ok(ExitCode::SUCCESS);
    }
    let follower = served::Follower::new(client, federation, &run, &mut signals);
    let followed = match plan.training.is_some() {
        true => follower.reports(&mut show).await?.0,
        false => follower.log(&mut show).await?,
    };
    conclude(&run.id, &followed, &mut show, "")
}

/// On a SuperLink that is there already.
async fn there(args: &RunArgs, superlink: &SuperLink, plan: Submission) -> Result<ExitCode, Trouble> {
    // Before the run is there: from then on Ctrl-C is about it.
    let mut signals = listen()?;
    let (sent, native) = (plan.sent(), plan.training.is_some());
    let run = superlink.start_run(plan.bundle.fab, plan.values).await?;
    let mut show = Show::new(args.output.format);
    show.started(run, &sent);
    show.tell_settings(native);
    if args.detach {
        return Ok(ExitCode::SUCCESS);
    }
    let follower = Follower::new(superlink, run, &mut signals);
    let followed = if native { follower.reports(&mut show).await } else { follower.log(&mut show).await };
    conclude(run, &followed?, &mut show, " (where the SuperLink is)")
}

/// In this process.
async fn here(args: &RunArgs, nodes: usize, plan: Submission) -> Result<ExitCode, Trouble> {
    let mut signals = listen()?;
    start_log(args.here.verbose)?;
    // Each node keeps some files and connections open.
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
        why = federation.broken() => Err(Trouble::failed(why, Some(advice))),
    };
    // Who has no patience even for that: what is dropped is ended, only not in order.
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
    online: impl Future<Output = Result<(), Trouble>>,
    signals: &mut StopSignals,
) -> Result<ExitCode, Trouble> {
    tokio::select! {
        online = online => online?,
        (_, number) = signals.next() => return Ok(by_signal(number)),
    }
    let (summary, native) = (plan.summary(), plan.training.is_some());
    let run = superlink.start_run(plan.bundle.fab, plan.values).await?;
    let mut show = Show::new(args.output.format);
    show.started(run, &summary);
    let follower = Follower::new(superlink, run, signals);
    if !native {
        return conclude(run, &follower.log(&mut show).await?, &mut show, "");
    }
    let trainer = Trainer::start(superlink.clone(), target, run, place);
    let followed = follower.reports(&mut show).await?;
    trainer.end().await;
    conclude(run, &followed, &mut show, "")
}

/// Where checkpoints go: where it is said, or beside the state, or to those of all other runs.
fn models(args: &RunArgs) -> Result<PathBuf, Trouble> {
    let beside = || args.here.state_dir.as_deref().map(|directory| directory.join(MODELS));
    let directory = match (args.here.models.clone().or_else(beside), Home::find(None)) {
        (Some(directory), _) => directory,
        (None, Some(home)) => {
            home.make().map_err(|error| Trouble::failed(explain(&error), Some("name a directory with --models")))?;
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
                    // One that an earlier process left in the state directory.
                    Ok(Some(task)) => drop(superlink.stop_run(task.run).await),
                    Ok(None) => tokio::time::sleep(ASK_AGAIN).await,
                    Err(error) => {
                        tracing::error!("the run cannot be taken: {error}");
                        tokio::time::sleep(ASK_AGAIN).await;
                    }
                }
            };
            if let Err(error) = trellis_train::run(App::new(target, task.token), place).await {
                // The run's state says the same to whoever follows it.
                tracing::debug!("the training ended: {error}");
            }
        }))
    }

    /// Waits for what a training still has to put away once its run is over.
    async fn end(self) {
        let mut task = self.0;
        if tokio::time::timeout(LEFTOVERS, &mut task).await.is_err() {
            task.abort();
        }
    }
}

pub fn listen() -> Result<StopSignals, Trouble> {
    StopSignals::listen().map_err(|error| Trouble::failed(format!("signals cannot be listened to: {error}"), None))
}

/// The log of all parts goes to stderr; what is not wrong is shown only where it was asked for.
fn start_log(verbose: bool) -> Result<(), Trouble> {
    let level = if verbose { "info" } else { "error" };
    let settings = LogSettings { format: LogFormat::Text, level: level.to_owned(), file: None };
    logging::start("run", &settings).map_err(|error| Trouble::failed(error.to_string(), None))
}

/// As a shell reports it.
pub fn by_signal(number: i32) -> ExitCode {
    ExitCode::from(BY_SIGNAL.saturating_add(u8::try_from(number).unwrap_or(0)))
}

/// Tells how it ended; what to exit with.
pub fn conclude(run: impl Display, followed: &Followed, show: &mut Show, place: &str) -> Result<ExitCode, Trouble> {
    match followed {
        Followed::Left(signal) => {
            remark(&format!("run {run} was told to stop, and may still be ending"));
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
                false => Err(Trouble::failed(format!("run {run} {}: {}", ended.status, ended.details), None)),
            }
        }
    }
}

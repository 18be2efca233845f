//! The flags of `trellis run`. Flags of the training are generated from its table of settings.

use std::path::PathBuf;

use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use trellis_terminal::OutputArgs;
use trellis_train::settings::{Kind, SETTINGS, Setting};

use crate::remote::{CallerArgs, OfFederationArgs};
use crate::track::SinkArgs;

/// Nodes of a federation in this process.
pub const DEFAULT_NODES: usize = 5;

const AFTER_HELP: &str = "\
Examples:
  trellis run                                        a network learns digits, on 5 nodes in this process
  trellis run native:logistic --strategy FedAdam --rounds 20 --nodes 10
  trellis run ./my-app                               a Flower app with its own ServerApp, as `flwr run` does
  trellis run ./my-app --strategy FedAdam --initial-model first.npz
                                                     its ClientApp, aggregated natively
  trellis run ./my-app --federation lab              on a federation of the server, as `trellis up` starts one
  trellis run ./my-app --superlink link.example.org:8000 --root-certificates ca.crt --token-file my.token
  trellis run --resume 1234 --rounds 40              resume a run of `trellis model ls`
  trellis run --tensorboard runs --mlflow http://127.0.0.1:5000
  trellis run -o json | jq -r 'select(.event == \"report\") | .evaluate.metrics.eval_acc'

The app's own ServerApp trains, and creates the first model. A training flag that the app has no key for
(--strategy, --initial-model, --resume, ...) selects native aggregation; --native-server does so without one. The first
model is then that of --initial-model or --resume, or what a ClientApp answers to query.init or getparameters.

The run goes to the SuperLink of --superlink (TRELLIS_SUPERLINK); or else to a federation of the server: that of
--federation, or the only one that was started with `trellis up` or `trellis apply`. Without either, and with --nodes and
the like, a federation is started in this process, and ends with the run. Ctrl-C stops the run and waits for its end; a
second one exits without waiting. A run on a server or a SuperLink continues if the connection is lost, or if this program
is killed.

With -o json each line is an object: its event is started, report (of a round, or of the end), log, tracked or ended.

--tensorboard and --mlflow track the run elsewhere; `trellis track` does so for a run that is there already. A tracker that is
down does not delay the run, and what it did not get is told at the end.

Exit codes: 0 completed; 1 failed, or refused; 2 mistakes in the arguments, nothing was sent; 128 and the number of the
signal (130 for Ctrl-C) stopped.
";

/// Train: start a run, on a SuperLink or in this process, and follow it live
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct RunArgs {
    /// The app on the nodes: the directory of a Flower app, or native:mlp, native:logistic, native:echo
    #[arg(value_name = "APP", default_value = "native:mlp")]
    pub app: String,

    /// The same as APP
    #[arg(long = "app", value_name = "APP", conflicts_with = "app", hide_short_help = true)]
    pub app_flag: Option<String>,

    /// Set a key of the training or of the app: KEY=VALUE; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Let the app's own ServerApp aggregate, in Python; training flags that the app has no key for are then refused
    #[arg(long, visible_alias = "python-serverapp")]
    pub app_server: bool,

    /// Aggregate natively instead of the app's own ServerApp
    #[arg(long, conflicts_with = "app_server")]
    pub native_server: bool,

    #[command(flatten)]
    pub federation: OfFederationArgs,

    /// Start the run and do not follow it; on a server or with --superlink
    #[arg(long)]
    pub detach: bool,

    /// Show the run that would be sent, and send nothing
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub here: HereArgs,

    #[command(flatten)]
    pub tracking: SinkArgs,

    #[command(flatten)]
    pub training: TrainingArgs,

    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "In this process (without --superlink)")]
pub struct HereArgs {
    /// SuperNodes to start [default: 5]
    #[arg(long, value_name = "N")]
    pub nodes: Option<usize>,

    /// Directory for the checkpoints [default: models in --state-dir if that is given, or else in the home, where `trellis model` finds them]
    #[arg(long, value_name = "DIR")]
    pub models: Option<PathBuf>,

    /// Keep the state of the SuperLink and the SuperNodes in this directory
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,

    /// Python that has the app's packages [default: that of the flwr on PATH]
    #[arg(long, value_name = "FILE")]
    pub python: Option<PathBuf>,

    /// Show the log of the SuperLink and the SuperNodes, too
    #[arg(short, long)]
    pub verbose: bool,
}

/// The SuperLink to call; without one, a federation in this process.
#[derive(Debug)]
pub struct PlaceArgs {
    pub caller: CallerArgs,
}

impl PlaceArgs {
    fn describe(command: Command) -> Command {
        let help = "The SuperLink to send the run to: host and port of its HTTP API [default: none; a federation of the server, or one in this process]";
        command.mut_arg("superlink", |arg| arg.help(help))
    }
}

impl Args for PlaceArgs {
    fn augment_args(command: Command) -> Command {
        PlaceArgs::describe(CallerArgs::augment_args(command))
    }

    fn augment_args_for_update(command: Command) -> Command {
        PlaceArgs::describe(CallerArgs::augment_args_for_update(command))
    }
}

impl FromArgMatches for PlaceArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<PlaceArgs, Error> {
        Ok(PlaceArgs { caller: CallerArgs::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.caller.update_from_arg_matches(matches)
    }
}

/// The settings of the training from flags: flag, key and text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrainingArgs(pub Vec<(String, &'static str, String)>);

/// Settings that are typed often have a shorter name on the command line.
const SHORTER: &[(&str, &str)] = &[("num-server-rounds", "rounds"), ("checkpoint-keep", "keep")];

fn flag_of(setting: &Setting) -> &'static str {
    SHORTER.iter().find(|(name, _)| *name == setting.name).map_or(setting.name, |(_, shorter)| shorter)
}

fn flag(setting: &'static Setting) -> Arg {
    let long = flag_of(setting);
    let arg = Arg::new(setting.name);
    // As all our switches: alone it means true, and a value needs an equals sign.
    let arg = match setting.kind {
        Kind::Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => arg.allow_hyphen_values(true),
    };
    let others = [setting.name].into_iter().chain(setting.aliases.iter().copied()).filter(|name| *name != long);
    arg.long(long)
        .aliases(others.collect::<Vec<_>>())
        .value_name(value_name(setting.kind))
        .help(help(setting))
        .help_heading("Training")
        .action(ArgAction::Set)
}

fn value_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Switch => "BOOL",
        Kind::Count { .. } => "N",
        Kind::Number(_) => "NUMBER",
        Kind::Text => "TEXT",
        Kind::Choice(_) => "NAME",
    }
}

fn help(setting: &Setting) -> String {
    let (first, rest) = setting.help.split_at(setting.help.chars().next().map_or(0, char::len_utf8));
    let mut help = first.to_uppercase() + rest;
    if let Kind::Choice(_) = setting.kind {
        help += &format!(": {}", setting.kind.expected());
    }
    if !setting.default.is_empty() {
        help += &format!(" [default: {}]", setting.default);
    }
    help
}

impl Args for TrainingArgs {
    fn augment_args(command: Command) -> Command {
        SETTINGS.iter().fold(command, |command, setting| command.arg(flag(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        TrainingArgs::augment_args(command)
    }
}

impl FromArgMatches for TrainingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<TrainingArgs, Error> {
        let given = SETTINGS.iter().filter_map(|setting| {
            let text = matches.get_one::<String>(setting.name)?;
            Some((format!("--{}", flag_of(setting)), setting.name, text.clone()))
        });
        Ok(TrainingArgs(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = TrainingArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

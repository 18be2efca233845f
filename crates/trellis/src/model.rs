//! `trellis model`: the checkpoints of native trainings, read from their directories. Calls no SuperLink, and changes no
//! checkpoint.

mod elsewhere;
mod export;
mod list;
mod remove;
mod saved;
mod shelf;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use trellis_models::{Loaded, ModelError, ModelStore};
use trellis_terminal::{OutputArgs, clean, explain, remark};

use crate::remote::CommandError;

use export::ExportArgs;
use shelf::Shelves;

const AFTER_HELP: &str = "\
Examples:
  trellis model ls                       every checkpoint of every run
  trellis model show 4711                the newest of a run: metrics, arrays, lineage
  trellis model show 4711@10 -o json     that of round 10, as JSON
  trellis model export 4711 --out digits.safetensors
  trellis model export 4711@10 --format pytorch --out digits.pt
  trellis model rm 4711@10               a checkpoint; without @10 all of the run

Native trainings write checkpoints on the machine of their SuperLink: those of federations on this machine and
of runs in the process of `trellis run` are in `models` in the home (TRELLIS_HOME), by federation. They outlive the
federation. `ls` also names files that ServerApps in Python saved; those go with the federation. Each checkpoint is read completely and verified with its hashes before it is shown or exported. A run can be selected
by a prefix of its id.
Exit codes: 0 done; 1 it cannot be read or written; 2 refused arguments.
";

/// Show and export the models of native trainings
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, subcommand_required = true, arg_required_else_help = true)]
pub struct ModelArgs {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Debug, Subcommand)]
enum ModelCommand {
    /// List the checkpoints, the newest last
    Ls {
        /// Only checkpoints of this run
        run: Option<String>,
        /// Only checkpoints of this federation
        #[arg(long, value_name = "NAME", env = "TRELLIS_FEDERATION", hide_env_values = true)]
        federation: Option<String>,
        #[command(flatten)]
        place: PlaceArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show a checkpoint: its origin, metrics and arrays; verifies all its bytes
    Show {
        #[command(flatten)]
        which: WhichArgs,
        #[command(flatten)]
        place: PlaceArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the model of a checkpoint as a file for other programs
    Export {
        #[command(flatten)]
        which: WhichArgs,
        #[command(flatten)]
        export: ExportArgs,
        #[command(flatten)]
        place: PlaceArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Remove a checkpoint, or all of a run
    Rm {
        /// Runs, each with @ROUND only that round
        #[arg(value_name = "RUN[@ROUND]", required = true)]
        which: Vec<String>,
        #[command(flatten)]
        place: PlaceArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
}

#[derive(Debug, Args)]
struct PlaceArgs {
    /// A directory with checkpoints [default: those of all federations in the home, and of the SuperLink's default state directory]
    ///
    /// For a SuperLink with another --state-dir: its subdirectory models.
    #[arg(long, value_name = "DIR", env = "TRELLIS_MODELS", hide_env_values = true)]
    models: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct WhichArgs {
    /// A run, with @ROUND one of its rounds, else its newest; or the path of a checkpoint (with a /)
    #[arg(value_name = "RUN[@ROUND]")]
    which: String,
}

impl WhichArgs {
    /// Reads the checkpoint, and prints which newer ones are damaged.
    fn open(&self, place: &PlaceArgs) -> Result<Loaded, CommandError> {
        let loaded = if self.which.contains('/') {
            ModelStore::open_path(Path::new(&self.which)).map_err(failure)?
        } else {
            let (run, round) = run_and_round(&self.which)?;
            let (shelf, run) = Shelves::at(place)?.find(run)?;
            shelf.store.open(&run, round).map_err(failure)?
        };
        for skipped in &loaded.skipped {
            remark(&format!("skipped a newer one: {}", clean(&explain(&skipped.error))));
        }
        Ok(loaded)
    }
}

fn run_and_round(which: &str) -> Result<(&str, Option<u64>), CommandError> {
    let Some((run, round)) = which.split_once('@') else { return Ok((which, None)) };
    match round.parse() {
        Ok(round) => Ok((run, Some(round))),
        Err(_) => Err(CommandError::usage(
            format!("{round:?} is not the number of a round"),
            "write RUN@ROUND, as 4711@10; trellis model ls shows which there are",
        )),
    }
}

pub fn run(args: &ModelArgs) -> ExitCode {
    let (called, done) = match &args.command {
        ModelCommand::Ls { run, federation, place, output } => {
            ("trellis model ls", list::run(run.as_deref(), federation.as_deref(), place, output))
        }
        ModelCommand::Show { which, place, output } => ("trellis model show", show::run(which, place, output)),
        ModelCommand::Export { which, export, place, output } => {
            ("trellis model export", export.run(which, place, output))
        }
        ModelCommand::Rm { which, place, output } => ("trellis model rm", remove::run(which, place, output)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(called),
    }
}

fn failure(error: ModelError) -> CommandError {
    match &error {
        ModelError::RunId { .. } => CommandError::usage(explain(&error), "trellis model ls lists the runs"),
        ModelError::Disk { .. } => CommandError::failed(explain(&error), Some("check permissions and disk")),
        _ => CommandError::failed(explain(&error), None),
    }
}

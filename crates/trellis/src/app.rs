//! `trellis app`: the catalogue of Flower apps, and signatures of apps. Wiring only: the catalogue is `trellis_catalogue`,
//! and runs are started by `run`.

mod sign;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use trellis_catalogue::{App, ExportError, Framework};
use trellis_terminal::{Cell, Column, Listing, OutputArgs, Table, explain, print};

use crate::remote::CommandError;
use crate::run::{self, RunArgs};

const AFTER_HELP: &str = "\
Examples:
  trellis app ls                                     list all apps
  trellis app show image-classification              settings and their defaults
  trellis app run image-classification --nodes 3     on nodes in this process
  trellis app run llm-fine-tuning --federation lab --set lora-rank=4 --detach
  trellis app export anomaly-detection ./mine        to change it, and run it with trellis run or flwr run

The apps have their own ServerApp and ClientApp in Python: SuperLink and nodes need flwr and numpy.
Exit codes: as trellis run; 0 done; 1 it cannot be written; 2 refused arguments.
";

/// Flower apps of the catalogue: list them, run them; sign any app
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, subcommand_required = true, arg_required_else_help = true)]
pub struct AppArgs {
    #[command(subcommand)]
    command: AppCommand,
}

#[derive(Debug, Subcommand)]
enum AppCommand {
    /// List the apps
    Ls {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show an app: its requirements and settings
    Show {
        /// Its name, as `trellis app ls` shows it
        name: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Run an app; takes the arguments of `trellis run`, with the name of the app as APP
    Run(Box<RunArgs>),
    /// Write an app into a directory
    Export {
        /// Its name, as `trellis app ls` shows it
        name: String,
        /// The directory to create
        directory: PathBuf,
        #[command(flatten)]
        output: OutputArgs,
    },
    Sign(sign::SignArgs),
}

pub fn run(args: &AppArgs) -> ExitCode {
    let (called, done) = match &args.command {
        AppCommand::Ls { output } => ("trellis app ls", list(output)),
        AppCommand::Show { name, output } => ("trellis app show", show(name, output)),
        AppCommand::Run(args) => ("trellis app run", submit(args)),
        AppCommand::Export { name, directory, output } => ("trellis app export", export(name, directory, output)),
        AppCommand::Sign(args) => ("trellis app sign", sign::run(args)),
    };
    done.unwrap_or_else(|failure| failure.report(called))
}

fn found(name: &str) -> Result<&'static App, CommandError> {
    trellis_catalogue::find(name).ok_or_else(|| {
        let names: Vec<&str> = trellis_catalogue::list().iter().map(|app| app.name.as_str()).collect();
        let advice = format!("there are {}; trellis run takes the directory of any other app", names.join(", "));
        CommandError::usage(format!("there is no app {name:?} in the catalogue"), &advice)
    })
}

fn frameworks(app: &App) -> String {
    app.frameworks.iter().map(|framework| Framework::name(*framework)).collect::<Vec<_>>().join(", ")
}

fn gpu(app: &App) -> &'static str {
    match (app.needs_gpu, app.uses_gpu) {
        (true, _) => "needed",
        (false, true) => "used",
        (false, false) => "",
    }
}

fn list(output: &OutputArgs) -> Result<ExitCode, CommandError> {
    let apps = trellis_catalogue::list();
    output.print(&Listing { items: apps }, || {
        let columns =
            [Column::whole("APP"), Column::whole("FRAMEWORKS"), Column::whole("GPU"), Column::cut("WHAT IT DOES")];
        let mut table = Table::new(columns);
        for app in apps {
            let cells = [app.name.as_str(), &frameworks(app), gpu(app), &app.description];
            table.row(cells.map(Cell::from));
        }
        table.print();
    });
    Ok(ExitCode::SUCCESS)
}

fn show(name: &str, output: &OutputArgs) -> Result<ExitCode, CommandError> {
    let app = found(name)?;
    output.print(app, || print(&described(app)));
    Ok(ExitCode::SUCCESS)
}

fn described(app: &App) -> String {
    let mut text = format!("{} {}\n{}\n\nframeworks  {}\n", app.name, app.version, app.description, frameworks(app));
    if !gpu(app).is_empty() {
        text += &format!("GPU         {}\n", gpu(app));
    }
    text += "\nkeys, for --set KEY=VALUE\n";
    let width = app.config.keys().map(String::len).max().unwrap_or(0);
    for (key, value) in &app.config {
        text += &format!("  {key:<width$}  {value}\n");
    }
    text
}

/// As `trellis run` of its directory: the bundle is the same.
fn submit(args: &RunArgs) -> Result<ExitCode, CommandError> {
    let app = found(args.app_flag.as_ref().unwrap_or(&args.app))?;
    let failed = |error: &dyn std::fmt::Display| {
        CommandError::failed(
            format!("the app cannot be unpacked: {error}"),
            Some("see to TMPDIR, which it is unpacked into"),
        )
    };
    let place = tempfile::tempdir().map_err(|error| failed(&error))?;
    let directory = place.path().join(&app.name);
    app.export(&directory).map_err(|error| failed(&explain(&error)))?;
    Ok(run::run_directory(args, &directory))
}

fn export(name: &str, directory: &Path, output: &OutputArgs) -> Result<ExitCode, CommandError> {
    let app = found(name)?;
    app.export(directory).map_err(|error| match error {
        ExportError::Exists { .. } => CommandError::usage(error.to_string(), "name a directory that does not exist"),
        ExportError::Write { .. } => CommandError::failed(explain(&error), None),
    })?;
    output.print(&json!({"app": app.name, "path": directory}), || {
        print(&format!("{} is in {}\n", app.name, directory.display()));
    });
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_is_described_by_its_keys() {
        let text = described(found("image-classification").unwrap());
        for part in ["image-classification 1.0.0\n", "frameworks  numpy, pytorch\n", "GPU         used\n"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(text.lines().any(|line| line.trim_start().starts_with("strategy") && line.ends_with("\"FedAvg\"")));
    }

    #[test]
    fn an_app_that_is_not_there_is_told_with_those_that_are() {
        let expected = CommandError::usage(
            "there is no app \"digits\" in the catalogue",
            "there are anomaly-detection, image-classification, llm-fine-tuning; trellis run takes the directory of any \
             other app",
        );
        assert_eq!(found("digits"), Err(expected));
    }
}

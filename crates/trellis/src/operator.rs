//! `trellis operator`: from arguments to `trellis_operator` and `trellis_kube`, and from their answers to text and exit codes.

mod crd;
mod manifests;
mod run;

use std::process::ExitCode;

use clap::{Args, Subcommand};

const AFTER_HELP: &str = "\
Examples:
  trellis operator crd | kubectl apply -f -
  trellis operator manifests | kubectl apply -f -
  trellis operator run
";

/// Run federations in a Kubernetes cluster: the operator, its resource definitions, its manifests
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct OperatorArgs {
    #[command(subcommand)]
    command: OperatorCommand,
}

#[derive(Debug, Subcommand)]
enum OperatorCommand {
    Run(Box<run::RunArgs>),
    Crd(crd::CrdArgs),
    Manifests(manifests::ManifestsArgs),
}

pub fn run(args: OperatorArgs) -> ExitCode {
    match args.command {
        OperatorCommand::Run(args) => run::run(&args),
        OperatorCommand::Crd(args) => crd::run(&args),
        OperatorCommand::Manifests(args) => manifests::run(&args),
    }
}

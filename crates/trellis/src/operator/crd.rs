//! `trellis operator crd`.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::json;
use trellis_kube::crd;
use trellis_spec::yaml;

use trellis_terminal::{print, print_json};

const AFTER_HELP: &str = "\
Examples:
  trellis operator crd | kubectl apply -f -
  trellis operator crd -o json | kubectl apply --server-side -f -
";

/// Print the definitions of the resources: Federation and FederationRun
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct CrdArgs {
    /// How to write them
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value_t = Output::Yaml)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A document for each
    Yaml,
    /// A list of both
    Json,
}

pub fn run(args: &CrdArgs) -> ExitCode {
    let definitions = crd::all();
    match args.output {
        Output::Yaml => print(&yaml::documents(&definitions)),
        Output::Json => print_json(&json!({ "apiVersion": "v1", "kind": "List", "items": definitions })),
    }
    ExitCode::SUCCESS
}

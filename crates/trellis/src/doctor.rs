//! `trellis doctor`: arguments and output; the checks are in `trellis_doctor`.

mod gpu;
#[cfg(feature = "opennebula")]
mod opennebula;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use trellis_api::Home;
use trellis_doctor::Report;
use trellis_terminal::{OutputArgs, colours, print};

use crate::remote::{self, CommandError};

const CALLED: &str = "trellis doctor";

const AFTER_HELP: &str = "\
Examples:
  trellis doctor
  trellis doctor gpu --host       GPUs that are to be passed through to VMs
  trellis doctor opennebula -f federation.yaml    the OpenNebula sites of a document
  trellis doctor -o json | jq -r '.checks[] | select(.verdict != \"ok\") | .fix'

It changes nothing. Exit codes: 0 no problems, perhaps warnings; 1 there are problems.
";

/// Check this machine: ports, disk, clock, Python and flwr, TLS, GPU, the server; with a fix for each problem
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DoctorArgs {
    #[command(subcommand)]
    part: Option<Part>,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum Part {
    Gpu(gpu::GpuArgs),
    #[cfg(feature = "opennebula")]
    #[command(name = "opennebula")]
    OpenNebula(opennebula::OpenNebulaArgs),
}

pub fn run(args: &DoctorArgs) -> ExitCode {
    match &args.part {
        Some(Part::Gpu(args)) => gpu::run(args),
        #[cfg(feature = "opennebula")]
        Some(Part::OpenNebula(args)) => opennebula::run(args),
        None => report(CALLED, &args.output, async { Ok(trellis_doctor::examine(Home::find(None).as_ref()).await) }),
    }
}

/// Prints the report. Problems, like an error, exit with a failure.
fn report(called: &str, output: &OutputArgs, examine: impl Future<Output = Result<Report, CommandError>>) -> ExitCode {
    let mut problems = 0;
    let code = remote::run(called, async {
        let report = examine.await?;
        problems = report.problems;
        output.print(&report, || print(&report.text(colours())));
        Ok(())
    });
    if problems > 0 { ExitCode::FAILURE } else { code }
}

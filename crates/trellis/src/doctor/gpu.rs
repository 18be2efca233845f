//! `trellis doctor gpu`: whether GPUs can be given to VMs on this host, or be used in this VM. As the rest of the doctor: looking
//! (`look`), judging (`judge_host`, `judge_guest`) and telling are apart.

mod facts;
mod judge_guest;
mod judge_host;
mod look;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use self::look::Place;
use super::Report;
use super::check::Check;
use crate::remote::{self, OutputArgs, Trouble, colours, print};

const CALLED: &str = "trellis doctor gpu";

const AFTER_HELP: &str = "\
Examples:
  trellis doctor gpu --host       on a host whose GPUs are to be passed through to VMs
  trellis doctor gpu --guest      in a VM that has one
  trellis doctor gpu -o json

Without --host and --guest it is decided by whether this machine is a VM. It changes nothing; --image starts a container.
Exit codes: 0 all is well, or there are warnings; 1 there are problems.
";

/// Check what GPUs need: on a host for passing them through, in a VM for using them
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct GpuArgs {
    /// This machine hosts VMs
    #[arg(long, conflicts_with = "guest")]
    host: bool,

    /// This machine is a VM with a GPU
    #[arg(long)]
    guest: bool,

    /// Look at a machine whose files are below this directory
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,

    /// The program nvidia-smi [default: that on PATH]
    #[arg(long, value_name = "FILE")]
    nvidia_smi: Option<PathBuf>,

    /// Start a container of this image with all GPUs, and see whether nvidia-smi answers in it; in a VM
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &GpuArgs) -> ExitCode {
    let mut problems = 0;
    let told = remote::run(CALLED, async {
        let report = Report::new(checks(args).await);
        problems = report.problems;
        args.output.print(&report, || print(&report.text(colours())));
        Ok::<(), Trouble>(())
    });
    if problems > 0 { ExitCode::FAILURE } else { told }
}

async fn checks(args: &GpuArgs) -> Vec<Check> {
    let place = Place::new(&args.root);
    let guest = args.guest || !args.host && place.is_virtual();
    if guest {
        judge_guest::judge(&place.guest(args.nvidia_smi.as_deref(), args.image.as_deref()).await)
    } else {
        judge_host::judge(&place.host())
    }
}

//! `trellis doctor gpu`: arguments.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use trellis_doctor::Report;
use trellis_doctor::gpu::{Machine, check_guest, check_host};
use trellis_terminal::OutputArgs;

const CALLED: &str = "trellis doctor gpu";

const AFTER_HELP: &str = "\
Examples:
  trellis doctor gpu --host       on a host whose GPUs are to be passed through to VMs
  trellis doctor gpu --guest      in a VM that has a GPU
  trellis doctor gpu -o json

Without --host and --guest, a VM is checked as a guest and any other machine as a host. It changes nothing; --image starts
a container. Exit codes: 0 no problems, perhaps warnings; 1 there are problems.
";

/// Check GPUs: on a host for passing them through, in a VM for using them
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct GpuArgs {
    /// This machine hosts VMs
    #[arg(long, conflicts_with = "guest")]
    host: bool,

    /// This machine is a VM with a GPU
    #[arg(long)]
    guest: bool,

    /// Check a machine whose files are below this directory
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,

    /// The program nvidia-smi [default: that on PATH]
    #[arg(long, value_name = "FILE")]
    nvidia_smi: Option<PathBuf>,

    /// In a VM: start a container of this image with all GPUs, and check that nvidia-smi works in it
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &GpuArgs) -> ExitCode {
    super::report(CALLED, &args.output, async {
        let machine = Machine::new(&args.root);
        let is_guest = args.guest || !args.host && machine.is_virtual();
        Ok(Report::new(match is_guest {
            true => check_guest(&machine.guest(args.nvidia_smi.as_deref(), args.image.as_deref()).await),
            false => check_host(&machine.host()),
        }))
    })
}

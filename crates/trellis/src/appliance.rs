//! `trellis appliance`: the agent in a virtual machine. From arguments to `trellis_appliance`, and from its answers to text and exit
//! codes.

mod check;
mod held;
mod install;
mod machine;
mod rotate;
mod stages;
mod status;
mod vars;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use trellis_appliance::place::Place;
use trellis_appliance::settings::Role;
use trellis_appliance::sources::Sources;
use trellis_appliance::supervisor::{Direct, Supervisor, Systemd};

/// Run as a SuperLink, a SuperNode or a gateway in a virtual machine, as its context says
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub struct ApplianceArgs {
    #[command(subcommand)]
    command: ApplianceCommand,
}

#[derive(Debug, Subcommand)]
enum ApplianceCommand {
    Vars(vars::VarsArgs),
    Check(check::CheckArgs),
    Install(install::InstallArgs),
    Machine(machine::MachineArgs),
    Configure(stages::ConfigureArgs),
    Bootstrap(stages::BootstrapArgs),
    Agent(stages::AgentArgs),
    Run(stages::RunArgs),
    Status(status::StatusArgs),
    RotateCa(rotate::RotateArgs),
    /// Show the variables of an appliance and the paths of its files
    Help,
    #[command(hide = true)]
    Held(HeldArgs),
    #[command(hide = true)]
    StateDisk(WhereArgs),
}

#[derive(Debug, Args)]
struct HeldArgs {
    /// The program to become, and its arguments
    #[arg(required = true, last = true)]
    words: Vec<OsString>,
}

/// The role of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleName {
    Superlink,
    Supernode,
    Gateway,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Role {
        match name {
            RoleName::Superlink => Role::SuperLink,
            RoleName::Supernode => Role::SuperNode,
            RoleName::Gateway => Role::Gateway,
        }
    }
}

/// The paths of an appliance and the sources of its context.
#[derive(Debug, Args)]
pub struct WhereArgs {
    /// Directory that everything of the appliance is below
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// A file with context, as `one_env` or `context.sh`, instead of those of the machine; may be repeated
    #[arg(long, value_name = "FILE")]
    context: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SupervisorKind {
    /// Units of systemd
    Systemd,
    /// This process
    Direct,
    /// The systemd of the machine
    Auto,
}

impl WhereArgs {
    /// Paths without links and dots, because programs with other working directories use them.
    fn place(&self) -> Place {
        let root = self.root.canonicalize().unwrap_or_else(|_| self.root.clone());
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/usr/bin/trellis"));
        Place::new(root, program)
    }

    fn sources(&self, place: &Place) -> Sources {
        Sources::new(place, &self.context, true)
    }
}

impl SupervisorKind {
    fn is_systemd(self) -> bool {
        match self {
            SupervisorKind::Systemd => true,
            SupervisorKind::Direct => false,
            SupervisorKind::Auto => std::path::Path::new("/run/systemd/system").exists(),
        }
    }

    fn supervisor(self) -> Supervisor {
        match self.is_systemd() {
            true => Supervisor::Systemd(Systemd::default()),
            false => Supervisor::Direct(Direct::default()),
        }
    }
}

const HELP: &str = "\
Context variables of OpenNebula (ONEAPP_... or plain) and the controller configure the appliance.
  /etc/trellis/role               superlink, supernode or gateway: the role of the image
  /var/lib/trellis                state; authority/ has the key of the certificates, for the agent only
  /etc/systemd/system/trellis-*   the programs as units; trellis-agent.service reports their status
  trellis appliance status        the status, and problems
  trellis appliance rotate-ca     replace the authority of the SuperLink's certificates, in two steps
  journalctl -u 'trellis-*'       their logs
The VM also has its problems in FL_ERROR. For the codes see docs/appliance-troubleshooting.md
";

/// Runs before the other stages of a boot: the context may name a separate disk for the state.
fn state_disk(args: &WhereArgs) -> ExitCode {
    let place = args.place();
    match trellis_appliance::state_disk::mount(&args.sources(&place).read(), &place) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

pub fn run(args: &ApplianceArgs) -> ExitCode {
    match &args.command {
        ApplianceCommand::Vars(args) => vars::run(args),
        ApplianceCommand::Check(args) => check::run(args),
        ApplianceCommand::Install(args) => install::run(args),
        ApplianceCommand::Machine(args) => machine::run(args),
        ApplianceCommand::StateDisk(args) => state_disk(args),
        ApplianceCommand::Configure(args) => stages::configure(args),
        ApplianceCommand::Bootstrap(args) => stages::bootstrap(args),
        ApplianceCommand::Agent(args) => stages::agent(args),
        ApplianceCommand::Run(args) => stages::run(args),
        ApplianceCommand::Status(args) => status::run(args),
        ApplianceCommand::RotateCa(args) => rotate::run(args),
        ApplianceCommand::Help => {
            trellis_terminal::print(HELP);
            ExitCode::SUCCESS
        }
        ApplianceCommand::Held(args) => held::run(&args.words),
    }
}

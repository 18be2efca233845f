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

/// Be a SuperLink, a SuperNode or a gateway in a virtual machine, as its context says
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
    /// Say what an appliance is told by, and where its parts are
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

/// What a VM is.
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

/// Where an appliance is, and what it is told.
#[derive(Debug, Args)]
pub struct WhereArgs {
    /// Directory that everything of the appliance is below
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// A file with context, as `one_env` or `context.sh`, in place of those of the machine; may be repeated
    #[arg(long, value_name = "FILE")]
    context: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SupervisorKind {
    /// Units of systemd
    Systemd,
    /// This process
    Direct,
    /// systemd where it is the machine's
    Auto,
}

impl WhereArgs {
    /// Paths without links and dots: programs are told them, and stand elsewhere.
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
The appliance is told by context variables of OpenNebula (ONEAPP_... or plain), and by its controller.
  /etc/trellis/role               superlink, supernode or gateway: what the image was made for
  /var/lib/trellis                state; authority/ holds the key of the certificates, for the agent alone
  /etc/systemd/system/trellis-*   the programs, as units; trellis-agent.service tells the truth about them
  trellis appliance status        how it is, and what is wrong
  trellis appliance rotate-ca     another authority for the SuperLink's certificates, in two steps
  journalctl -u 'trellis-*'       what they say
What is wrong is also in FL_ERROR of the VM. Codes and what to do: docs/appliance-troubleshooting.md
";

/// Before the programs of a boot: what they keep is on a disk of its own, where the context names one.
fn state_disk(args: &WhereArgs) -> ExitCode {
    let place = args.place();
    match trellis_appliance::state_disk::mount(&args.sources(&place).read(), &place) {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("{trouble}");
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
            crate::remote::print(HELP);
            ExitCode::SUCCESS
        }
        ApplianceCommand::Held(args) => held::run(&args.words),
    }
}

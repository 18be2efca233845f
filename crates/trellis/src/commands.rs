//! The sub-commands of `trellis`, as declared to clap.

use std::ffi::OsString;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

#[cfg(feature = "kubernetes")]
use crate::operator;
use crate::version::{VERSION, VersionArgs};
use crate::{
    account, app, apply, audit, connect, doctor, down, help, keep, login, model, node, nodes, pki, run, runs, schema,
    serverapp, status, token, top, track, up, whoami,
};
#[cfg(feature = "opennebula")]
use crate::{appliance, image};
use crate::{server::SERVER, superlink::SUPERLINK, supernode::SUPERNODE};

const AFTER_HELP: &str = "\
Examples:
  trellis up --demo                   see a federation train on this machine
  trellis up                          start one, for `flwr run . local` and `trellis run`
  trellis apply -f federation.yaml    create or update one from a document
  trellis status                      the status of federations, and the reasons
  trellis run                         train on it; without a federation, in one process
  trellis superlink --insecure        serve a federation on this machine, to try it out
  trellis superlink --help            all its flags, with examples
  trellis supernode --insecure        join it with this machine
  trellis pki --help                  certificates for a SuperLink, from the first to their rotation
  trellis nodes                       the nodes, and the Flower release of each
  trellis model ls                    the checkpoints of native trainings on this machine
  trellis top                         federations, nodes and runs, live
  trellis doctor                      check this machine, with a fix for each problem
";

/// Runs Flower federations anywhere, from one description.
#[derive(Parser)]
#[command(name = "trellis", version = VERSION, after_help = AFTER_HELP)]
struct Trellis {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Up(up::UpArgs),
    Down(down::DownArgs),
    Plan(apply::PlanArgs),
    Apply(apply::ApplyArgs),
    Delete(apply::DeleteArgs),
    Status(status::StatusArgs),
    /// Serve a federation; also when called as flower-superlink
    Superlink,
    /// Take part in a federation; also when called as flower-supernode
    Supernode,
    Run(Box<run::RunArgs>),
    Track(Box<track::TrackArgs>),
    Runs(runs::RunsArgs),
    Logs(runs::LogsArgs),
    Stop(runs::StopArgs),
    Scale(runs::ScaleArgs),
    /// Keep federations in the state that their documents describe; serve the API and the page
    Server,
    #[command(hide = true)]
    Keep(keep::KeepArgs),
    /// Make and renew certificates, and say which authorities clients trust
    Pki(pki::PkiArgs),
    #[command(hide = true)]
    Serverapp(serverapp::ServerappArgs),
    Model(model::ModelArgs),
    App(Box<app::AppArgs>),
    #[cfg(feature = "opennebula")]
    Appliance(Box<appliance::ApplianceArgs>),
    #[cfg(feature = "opennebula")]
    Image(Box<image::ImageArgs>),
    #[cfg(feature = "kubernetes")]
    Operator(operator::OperatorArgs),
    Nodes(nodes::NodesArgs),
    Node(node::NodeArgs),
    Account(account::AccountArgs),
    Token(token::TokenArgs),
    Audit(audit::AuditArgs),
    Login(login::LoginArgs),
    Whoami(whoami::WhoamiArgs),
    Connect(connect::ConnectArgs),
    Doctor(doctor::DoctorArgs),
    Top(top::TopArgs),
    Schema(schema::SchemaArgs),
    Version(VersionArgs),
    /// Print completions for a shell, to be read by it at start-up
    Completions {
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands
    #[command(hide = true)]
    Man {
        /// The directory for them
        directory: std::path::PathBuf,
    },
}

/// The command that the arguments name; or help, version or a refusal, which is to be shown. `called` is how the user
/// calls this program.
pub fn parse(called: &'static str, arguments: Vec<OsString>) -> Result<Command, clap::Error> {
    let matches = help::arranged(declared().bin_name(called)).try_get_matches_from(arguments)?;
    Trellis::from_arg_matches(&matches).map(|trellis| trellis.command)
}

/// All commands as declared to clap.
pub fn declared() -> clap::Command {
    Trellis::command().mut_subcommands(|command| match command.get_name() {
        "superlink" => SUPERLINK.arguments(command),
        "supernode" => SUPERNODE.arguments(command),
        "server" => SERVER.arguments(command),
        _ => command,
    })
}

//! The `trellis` binary: finds the sub-command and hands over. Called by the name of a Flower program it behaves as
//! that program, and as `kubectl-trellis` it is a plugin: `kubectl trellis`.

mod account;
mod address;
mod app;
mod appliance;
mod apply;
mod audit;
mod connect;
mod detached;
mod doctor;
mod documents;
mod down;
mod duration;
mod flwr_connection;
mod help;
mod home;
mod image;
mod keep;
mod log_file;
mod logging;
mod login;
mod model;
mod node;
mod nodes;
mod operator;
mod pki;
mod prefix;
mod private_dir;
mod process;
mod progress;
mod python;
mod remote;
mod run;
mod run_defaults;
mod run_source;
mod runs;
mod sandbox;
mod schema;
mod server;
mod serverapp;
mod service;
mod settings;
mod settle;
mod status;
mod superlink;
mod supernode;
mod token;
mod top;
mod up;
mod whoami;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Gives memory back after a large round; the system's allocator keeps it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// By this name on PATH, `kubectl` finds it.
const PLUGIN: &str = "kubectl-trellis";
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (serves Flower 1.25 to 1.42, over gRPC and HTTP)");

const AFTER_HELP: &str = "\
Examples:
  trellis up --demo                   see a federation train on this machine
  trellis up                          start one, for `flwr run . local` and `trellis run`
  trellis apply -f federation.yaml    make one as a document says
  trellis status                      how federations are, and why
  trellis run                         train on it; without any, in one process
  trellis superlink --insecure        serve a federation on this machine, to try it out
  trellis superlink --help            all its flags, with examples
  trellis supernode --insecure        take part in it with this machine
  trellis pki --help                  certificates for a SuperLink, from nothing to rotation
  trellis nodes                       who takes part, and which version of Flower each node speaks
  trellis model ls                    the checkpoints of native trainings on this machine
  trellis top                         federations, nodes and runs, live
  trellis doctor                      what is wrong with this machine, and what to do about it
";

/// Runs Flower federations anywhere, from one description.
#[derive(Parser)]
#[command(name = "trellis", version = VERSION, after_help = AFTER_HELP)]
struct Trellis {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(up::UpArgs),
    Down(down::DownArgs),
    Plan(apply::PlanArgs),
    Apply(apply::ApplyArgs),
    Delete(apply::DeleteArgs),
    Status(status::StatusArgs),
    /// Serve a federation; also when called as flower-superlink
    Superlink(Box<superlink::SuperlinkArgs>),
    /// Take part in a federation; also when called as flower-supernode
    Supernode(Box<supernode::SupernodeArgs>),
    Run(Box<run::RunArgs>),
    Runs(runs::RunsArgs),
    Logs(runs::LogsArgs),
    Stop(runs::StopArgs),
    Scale(runs::ScaleArgs),
    Server(Box<server::ServeArgs>),
    #[command(hide = true)]
    Keep(keep::KeepArgs),
    /// Make and renew certificates, and say which ones clients shall trust
    Pki(pki::PkiArgs),
    #[command(hide = true)]
    Serverapp(serverapp::ServerappArgs),
    Model(model::ModelArgs),
    App(Box<app::AppArgs>),
    Appliance(Box<appliance::ApplianceArgs>),
    Image(Box<image::ImageArgs>),
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
    /// Print the version of this program
    Version(remote::OutputArgs),
    /// Print completions for a shell, to be read by it at start-up
    Completions {
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    trellis_server::register_site_kinds();
    // Before the process starts a second thread: most restrictions apply to one thread.
    if arguments.get(1).is_some_and(|word| word == trellis_sandbox::SUB_COMMAND) {
        return trellis_sandbox::enter(&arguments[2..]);
    }
    let called = arguments.first().and_then(|path| Path::new(path).file_name()).unwrap_or_default();
    match called.to_str() {
        Some("flower-superlink") => return superlink::run("flower-superlink", &arguments[1..]),
        Some("flower-supernode") => return supernode::run("flower-supernode", &arguments[1..]),
        _ => {}
    }
    let named = if called == PLUGIN { "kubectl trellis" } else { "trellis" };
    let word = |index: usize| arguments.get(index).and_then(|word| word.to_str());
    match (word(1), word(2)) {
        (Some("detached"), _) => return detached::run(&arguments[2..]),
        (Some("superlink"), _) => return superlink::run("trellis superlink", &arguments[2..]),
        (Some("help"), Some("superlink")) => return superlink::run("trellis superlink", &["--help".into()]),
        (Some("server"), _) => return server::run(&arguments[2..]),
        (Some("help"), Some("server")) => return server::run(&["--help".into()]),
        (Some("supernode"), _) => return supernode::run("trellis supernode", &arguments[2..]),
        (Some("help"), Some("supernode")) => {
            let question = arguments.get(3).filter(|word| *word == "status").cloned();
            let arguments: Vec<OsString> = question.into_iter().chain(["--help".into()]).collect();
            return supernode::run("trellis supernode", &arguments);
        }
        _ => {}
    }
    if let Some(name) = arguments.first_mut() {
        *name = "trellis".into();
    }
    let parsed = help::arranged(Trellis::command().bin_name(named)).try_get_matches_from(arguments);
    match parsed.and_then(|matches| Trellis::from_arg_matches(&matches)) {
        Ok(Trellis { command }) => command.run(),
        Err(message) => show(Some(message)),
    }
}

impl Command {
    fn run(self) -> ExitCode {
        match self {
            // Taken before clap sees them: they tell all mistakes at once.
            Command::Superlink(_) => superlink::run("trellis superlink", &[]),
            Command::Supernode(_) => supernode::run("trellis supernode", &[]),
            Command::Server(_) => server::run(&[]),
            Command::Keep(args) => keep::run(&args),
            Command::Up(args) => up::run(&args),
            Command::Down(args) => down::run(&args),
            Command::Plan(args) => apply::run_plan(&args),
            Command::Apply(args) => apply::run_apply(&args),
            Command::Delete(args) => apply::run_delete(&args),
            Command::Status(args) => status::run(&args),
            Command::Runs(args) => runs::run_runs(&args),
            Command::Logs(args) => runs::run_logs(&args),
            Command::Stop(args) => runs::run_stop(&args),
            Command::Scale(args) => runs::run_scale(&args),
            Command::Pki(args) => pki::run(args),
            Command::Run(args) => run::run(&args),
            Command::Serverapp(args) => serverapp::run(&args),
            Command::Model(args) => model::run(&args),
            Command::App(args) => app::run(&args),
            Command::Appliance(args) => appliance::run(&args),
            Command::Image(args) => image::run(&args),
            Command::Operator(args) => operator::run(args),
            Command::Nodes(args) => nodes::run(&args),
            Command::Node(args) => node::run(&args),
            Command::Account(args) => account::run(&args),
            Command::Token(args) => token::run(&args),
            Command::Audit(args) => audit::run(&args),
            Command::Login(args) => login::run(&args),
            Command::Whoami(args) => whoami::run(&args),
            Command::Connect(args) => connect::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Top(args) => top::run(&args),
            Command::Schema(args) => schema::run(&args),
            Command::Version(output) => print_version(&output),
            Command::Completions { shell } => print_completions(shell),
        }
    }
}

fn print_version(output: &remote::OutputArgs) -> ExitCode {
    let told =
        serde_json::json!({"version": env!("CARGO_PKG_VERSION"), "flower": {"oldest": "1.25", "newest": "1.42"}});
    output.print(&told, || remote::print(&format!("trellis {VERSION}\n")));
    ExitCode::SUCCESS
}

fn print_completions(shell: clap_complete::Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Trellis::command(), "trellis", &mut script);
    // A reader that has gone away is no trouble of ours.
    let _ = std::io::stdout().write_all(&script);
    ExitCode::SUCCESS
}

/// Prints clap's help, version or refusal.
fn show(message: Option<clap::Error>) -> ExitCode {
    match message {
        Some(message) => {
            let _ = message.print();
            ExitCode::from(u8::try_from(message.exit_code()).unwrap_or(1))
        }
        None => ExitCode::SUCCESS,
    }
}

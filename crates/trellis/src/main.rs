//! The `trellis` binary: finds the sub-command and hands over. Called by the name of a Flower program it behaves as
//! that program, and as `kubectl-trellis` it is a plugin: `kubectl trellis`.

mod account;
mod app;
#[cfg(feature = "opennebula")]
mod appliance;
mod apply;
mod audit;
mod browser;
mod commands;
mod completions;
mod connect;
mod detached;
mod doctor;
mod documents;
mod down;
mod help;
#[cfg(feature = "opennebula")]
mod image;
mod keep;
mod login;
mod man;
mod model;
mod node;
mod nodes;
#[cfg(feature = "kubernetes")]
mod operator;
mod pki;
mod prefix;
mod private_dir;
mod process;
mod progress;
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
mod track;
mod up;
mod version;
mod whoami;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use commands::Command;

/// Returns memory after a large round; the allocator of the C library keeps it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// By this name on PATH, `kubectl` finds it.
const PLUGIN: &str = "kubectl-trellis";

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
    match commands::parse(named, arguments) {
        Ok(command) => dispatch(command),
        Err(message) => help::show(&message),
    }
}

fn dispatch(command: Command) -> ExitCode {
    match command {
        // Handled before clap, because these report all mistakes at once.
        Command::Superlink => superlink::run("trellis superlink", &[]),
        Command::Supernode => supernode::run("trellis supernode", &[]),
        Command::Server => server::run(&[]),
        Command::Keep(args) => keep::run(&args),
        Command::Up(args) => up::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Plan(args) => apply::run_plan(&args),
        Command::Apply(args) => apply::run_apply(&args),
        Command::Delete(args) => apply::run_delete(&args),
        Command::Status(args) => status::run(&args),
        Command::Track(args) => track::run(&args),
        Command::Runs(args) => runs::run_runs(&args),
        Command::Logs(args) => runs::run_logs(&args),
        Command::Stop(args) => runs::run_stop(&args),
        Command::Scale(args) => runs::run_scale(&args),
        Command::Pki(args) => pki::run(args),
        Command::Run(args) => run::run(&args),
        Command::Serverapp(args) => serverapp::run(&args),
        Command::Model(args) => model::run(&args),
        Command::App(args) => app::run(&args),
        #[cfg(feature = "opennebula")]
        Command::Appliance(args) => appliance::run(&args),
        #[cfg(feature = "opennebula")]
        Command::Image(args) => image::run(&args),
        #[cfg(feature = "kubernetes")]
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
        Command::Version(args) => version::run(&args),
        Command::Completions { shell } => completions::run(shell),
        Command::Man { directory } => man::run(&directory),
    }
}

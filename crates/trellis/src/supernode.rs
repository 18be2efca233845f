//! `trellis supernode`: from arguments to a running SuperNode. Wiring only: `check` interprets flags, `trellis_node` is the
//! SuperNode.

mod check;
mod drain;
mod join;
mod node_config;
mod status;
mod table;
mod trusted_entities;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use check::{Checked, Machine, Zero, check};
use clap::FromArgMatches as _;
use table::Question;
pub use table::SUPERNODE;
use tempfile::TempDir;
use tokio::runtime::Builder;
use trellis_client::{NodeKey, Trust};
use trellis_diagnostic::Diagnostic;
use trellis_node::config::{AppMode, Config};
use trellis_terminal::explain;

use crate::help;
use crate::private_dir;
use crate::process::{StopSignals, take_memory_as_needed};
use crate::service;
use crate::settings::problem::Source;
use crate::settings::system::{self, print_error};
use crate::settings::{Flags, Given, System, print, problem};

const REFUSED: u8 = 2;
/// Under this name, 0 has the meaning that Flower gives it.
const FLOWERS_NAME: &str = "flower-supernode";

/// Runs the sub-command. `called` is its name as the user wrote it; `arguments` follow it.
pub fn run(called: &str, arguments: &[OsString]) -> ExitCode {
    // Many nodes may run on a machine for a long time.
    take_memory_as_needed();
    match prepare(called, arguments) {
        Ok(checked) => start(checked),
        Err(done) => done,
    }
}

/// The checked settings, or the exit code of a command that starts no node. Frees flags and their texts.
fn prepare(called: &str, arguments: &[OsString]) -> Result<Checked, ExitCode> {
    let flags = Flags::new(called, &SUPERNODE);
    if arguments.first().is_some_and(|first| first == "status" || first == "drain") {
        return Err(ask_running(called, &flags, arguments));
    }
    let given = system::read(&flags, arguments)?;
    let scratch = scratch(&given).map_err(|error| {
        print_error(&format!("{called}: no temporary directory can be created: {error}\n  to do: set TMPDIR\n"));
        ExitCode::FAILURE
    })?;
    let given = with_bundle(given, &flags, arguments, scratch.as_ref())?;
    let as_if_kept = |text: String| match &scratch {
        Some(scratch) => scratch.as_if_kept(&text),
        None => text,
    };
    let zero = if called == FLOWERS_NAME { Zero::Never } else { Zero::Unlimited };
    let checked = check_here(&given, zero).map_err(|problems| {
        print_error(&as_if_kept(problem::report(called, &problems)));
        ExitCode::from(REFUSED)
    })?;
    if given.is_on("print-config") {
        checked.warnings.iter().for_each(|warning| print_error(&format!("warning: {warning}\n")));
        return Err(system::print(&as_if_kept(print::config_file(&SUPERNODE, &table::rows(&checked), &given))));
    }
    Ok(checked)
}

/// Replaces the directory `join` in the state directory if the configuration is only printed: the checks need the
/// files, but the command must not leave any.
struct Scratch {
    directory: TempDir,
    kept: PathBuf,
}

impl Scratch {
    /// Replaces the temporary path in a text by the path in the state directory.
    fn as_if_kept(&self, text: &str) -> String {
        text.replace(&*self.directory.path().to_string_lossy(), &self.kept.to_string_lossy())
    }
}

/// `None` if a node is started, or without `--join`.
fn scratch(given: &Given) -> io::Result<Option<Scratch>> {
    let place = system::with_system(|system| bundle_place(given, system));
    let Some((_, state_dir)) = place.filter(|_| given.is_on("print-config")) else { return Ok(None) };
    Ok(Some(Scratch { directory: tempfile::tempdir()?, kept: state_dir.join(join::DIRECTORY) }))
}

/// Adds the settings of `--join`, which have the lowest precedence.
fn with_bundle(
    mut given: Given,
    flags: &Flags,
    arguments: &[OsString],
    scratch: Option<&Scratch>,
) -> Result<Given, ExitCode> {
    let place = system::with_system(|system| bundle_place(&given, system));
    let Some((path, state_dir)) = place else { return Ok(given) };
    let directory =
        scratch.map_or_else(|| state_dir.join(join::DIRECTORY), |scratch| scratch.directory.path().to_owned());
    // A missing directory is created with the first entry. The owner of an existing one could read the key of the node.
    let claimed = match scratch.is_none() && state_dir.exists() {
        true => private_dir::claim(&state_dir)
            .map_err(|error| vec![(error.to_string(), "name another directory with --state-dir".to_owned())]),
        false => Ok(()),
    };
    match claimed.and_then(|()| join::settings(&path, given.text("node"), &directory)) {
        Ok(base) => system::read_over(Some(&base), flags, arguments),
        Err(problems) => {
            let place = given.source("join").unwrap_or(&Source::Default).locate("join");
            given.problems.extend(problems.into_iter().map(|(what, to_do)| Diagnostic::error(&*place, what, to_do)));
            given.incomplete = true;
            Ok(given)
        }
    }
}

/// The path that `--join` names, and the state directory. `None` without a state directory; the checks report that.
fn bundle_place(given: &Given, system: &System<'_>) -> Option<(PathBuf, PathBuf)> {
    let path = system.resolve(given, "join")?;
    Some((path, system.resolve(given, "state-dir").or_else(|| system.default_state_dir("supernode"))?))
}

/// Runs `status` or `drain`, whose few flags clap parses, without a configuration file.
fn ask_running(called: &str, flags: &Flags, arguments: &[OsString]) -> ExitCode {
    let words = arguments.iter().map(|argument| argument.to_string_lossy().into_owned());
    let question = match flags.parse(words).and_then(|matches| Question::from_arg_matches(&matches)) {
        Ok(question) => question,
        Err(message) => return help::show(&message),
    };
    let (word, given) = match &question {
        Question::Status(asked) => ("status", asked.state_dir.clone()),
        Question::Drain(asked) => ("drain", asked.state_dir.clone()),
    };
    let by_default = || system::with_system(|system| system.default_state_dir("supernode"));
    let Some(state_dir) = given.filter(|path| !path.as_os_str().is_empty()).or_else(by_default) else {
        print_error(&format!("{called} {word}: neither HOME nor XDG_STATE_HOME is set\n  to do: give --state-dir\n"));
        return ExitCode::from(REFUSED);
    };
    let called = format!("{called} {word}");
    match question {
        Question::Status(asked) => status::run(&called, &state_dir, asked.output.format),
        Question::Drain(asked) => drain::run(&called, &state_dir, &asked),
    }
}

/// Checks with the system of this process.
fn check_here(given: &Given, zero: Zero) -> Result<Checked, Vec<Diagnostic>> {
    let trust = |bundle: Option<&Path>| match bundle {
        Some(path) => Trust::bundle(path).map_err(|error| explain(&error)),
        None => Trust::system().map_err(|error| explain(&error)),
    };
    system::with_system(|system| {
        let machine = Machine {
            system,
            read: &|path| std::fs::read_to_string(path),
            trust: &trust,
            unusable_key: &unusable_key,
            native: &|name, settings| trellis_native::builtin(name, settings).err().unwrap_or_default(),
            python: &python,
        };
        check(given, zero, &machine)
    })
}

fn unusable_key(path: &Path) -> Option<String> {
    match NodeKey::read(path) {
        Ok(Some(_)) => None,
        Ok(None) => Some(format!("there is no file {}", path.display())),
        Err(error) => Some(explain(&error)),
    }
}

/// The interpreter of the `flwr-clientapp` on PATH.
pub fn python() -> Option<PathBuf> {
    trellis_link::interpreter_of("flwr-clientapp", std::env::var_os("PATH").as_deref()).ok()
}

/// Serves until a stop is requested.
fn start(Checked { config, log, warnings, .. }: Checked) -> ExitCode {
    // One thread: a node is idle most of the time, and many may run on a machine.
    service::run("supernode", &log, None, &warnings, Builder::new_current_thread(), || serve_until_stopped(config))
}

async fn serve_until_stopped(config: Config) -> service::Outcome {
    private_dir::claim(&config.state_dir)?;
    let stop = StopSignals::listen()?;
    let apps = match &config.apps.mode {
        AppMode::Warm(_) => "warm".to_owned(),
        AppMode::PerMessage => "per message".to_owned(),
        AppMode::Process => "of SuperExecs".to_owned(),
        AppMode::Native { name, .. } => format!("native:{name}"),
    };
    tracing::info!(
        version = %env!("CARGO_PKG_VERSION"),
        superlink = %endpoint(&config),
        state = %config.state_dir.display(),
        retries = %check::max_retries(config.retry.max_retries),
        max_wait = %check::max_wait(config.retry.max_wait),
        apps,
        "starting SuperNode"
    );
    trellis_node::serve(config, stop.requested()).await?;
    Ok(())
}

fn endpoint(config: &Config) -> String {
    let ipv6 = config.superlink.host.contains(':');
    let (open, close) = if ipv6 { ("[", "]") } else { ("", "") };
    format!("{open}{}{close}:{}", config.superlink.host, config.superlink.port)
}

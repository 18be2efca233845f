//! `trellis superlink`: from arguments to a running SuperLink. Wiring only: what flags mean is decided in `check`, what
//! a SuperLink does in `trellis_link`.

mod args;
mod check;
mod config_file;
mod flags;
mod gather;
mod print;
mod problem;
mod scan;
mod size;

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

pub use args::SuperlinkArgs;
use check::{Checked, Surroundings, check};
use flags::Flags;
use gather::{Outside, RawArgs, gather};
use rustix::fs::{Access, access};
use trellis_link::config::{Config, StateLocation};
use trellis_link::{CRASH_POINTS, StateVerdict, check_state, serve};

use crate::process::{StopSignals, raise_open_file_limit};
use crate::{address, duration, logging};

const REFUSED: u8 = 2;
/// The answer of `--check-state` when it has none.
const OTHER_TROUBLE: u8 = 255;
/// How long work that was given up may go on after the SuperLink has stopped.
const LEFTOVERS: Duration = Duration::from_secs(2);

/// Runs the sub-command; `called` is how the user called it, `arguments` come after that.
pub fn run(called: &str, arguments: &[OsString]) -> ExitCode {
    let flags = Flags::new(called);
    let scanned = scan::scan(arguments, &flags);
    if let Some(show) = scanned.show {
        return crate::show(flags.parse([show]).err());
    }
    let environment: BTreeMap<String, OsString> =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect();
    let outside = Outside { environment: &environment, read_file: &|path| std::fs::read_to_string(path) };
    let raw = gather(scanned, &flags, &outside);
    if raw.args.inspection.list_crash_points {
        return print(&CRASH_POINTS.iter().map(|name| format!("{name}\n")).collect::<String>());
    }
    let (checking, printing) = (raw.args.inspection.check_state, raw.args.inspection.print_config);
    match check_here(&raw) {
        Err(problems) => {
            complain(&problem::report(called, &problems));
            ExitCode::from(if checking { OTHER_TROUBLE } else { REFUSED })
        }
        Ok(checked) if printing => {
            checked.warnings.iter().for_each(|warning| complain(&format!("warning: {warning}\n")));
            print(&print::config_file(&checked, &raw.sources))
        }
        Ok(checked) if checking => tell_state(&checked.config.state),
        Ok(checked) => start(checked),
    }
}

/// Checks with the real world around.
fn check_here(raw: &RawArgs) -> Result<Checked, Vec<problem::Problem>> {
    let current_dir = std::env::current_dir().unwrap_or_default();
    let directory = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let (home, state_home) = (directory("HOME"), directory("XDG_STATE_HOME"));
    check(
        raw,
        &Surroundings {
            current_dir: &current_dir,
            home: home.as_deref(),
            state_home: state_home.as_deref(),
            unreadable: &unreadable,
            unwritable: &unwritable,
        },
    )
}

fn unreadable(path: &Path) -> Option<String> {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => Some("it is a directory".to_owned()),
        Ok(metadata) if metadata.is_file() && metadata.len() == 0 => Some("it is empty".to_owned()),
        // Not by opening it: a named pipe would block, and gives its content only once.
        Ok(_) => access(path, Access::READ_OK).err().map(|error| io::Error::from(error).to_string()),
        Err(error) => Some(error.to_string()),
    }
}

fn unwritable(path: &Path) -> Option<String> {
    let denied = |path: &Path, wanted| access(path, wanted).err().map(|error| io::Error::from(error).to_string());
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => Some("it is a directory".to_owned()),
        Ok(_) => denied(path, Access::WRITE_OK),
        // Then it will be created, in its directory.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let why = denied(directory, Access::WRITE_OK | Access::EXEC_OK)?;
            Some(format!("{}: {why}", directory.display()))
        }
        Err(error) => Some(error.to_string()),
    }
}

fn tell_state(location: &StateLocation) -> ExitCode {
    let (code, verdict) = match check_state(location) {
        StateVerdict::Current => (0, "current: this version can use it as it is".to_owned()),
        StateVerdict::NotInitialised => (1, "not initialised: it is created at the first start".to_owned()),
        StateVerdict::NeedsUpgrade { from, to } => {
            (2, format!("needs an upgrade from version {from} to {to}: done at the next start, after a backup"))
        }
        StateVerdict::TooNew { found, known } => {
            (3, format!("too new: it has version {found}, this program knows up to {known}; use a newer trellis"))
        }
        StateVerdict::Trouble(why) => (OTHER_TROUBLE, why),
    };
    let place = match location {
        StateLocation::Directory { database: Some(database), .. } => database.display().to_string(),
        StateLocation::Directory { directory, .. } => directory.display().to_string(),
        StateLocation::Ephemeral => "in memory".to_owned(),
    };
    print(&format!("state {place}: {verdict}\n"));
    ExitCode::from(code)
}

/// Serves until told to stop.
fn start(Checked { config, log, warnings, .. }: Checked) -> ExitCode {
    if let Err(error) = logging::start(&log) {
        let file = log.file.map(|file| file.path).unwrap_or_default();
        complain(&format!("the log file {} cannot be opened: {error}\n", file.display()));
        return ExitCode::FAILURE;
    }
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    match raise_open_file_limit() {
        Ok(limit) => tracing::debug!(limit, "open files"),
        Err(error) => tracing::warn!(%error, "the limit of open files could not be raised: fewer SuperNodes fit"),
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    let outcome = runtime.block_on(serve_until_stopped(config));
    // Without a limit, a blocked file system could hold up the exit for ever.
    runtime.shutdown_timeout(LEFTOVERS);
    match outcome {
        Ok(()) => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        Err(error) => fail(error.as_ref()),
    }
}

async fn serve_until_stopped(config: Config) -> Result<(), Box<dyn Error + Send + Sync>> {
    let stop = StopSignals::listen()?;
    tracing::info!(
        version = %env!("CARGO_PKG_VERSION"),
        http = %config.http_address,
        control = %config.control_address,
        fleet = %config.fleet_address,
        serverappio = %config.serverappio_address,
        health = config.health_address.as_ref().map(display),
        metrics = config.metrics_address.as_ref().map(display),
        accounts = config.accounts,
        "starting SuperLink"
    );
    serve(config, stop.requested()).await?;
    Ok(())
}

fn fail(error: &dyn Error) -> ExitCode {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    tracing::error!("{text}");
    ExitCode::FAILURE
}

/// Prints what was asked for. A reader that has gone away is no trouble of ours.
fn print(text: &str) -> ExitCode {
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn complain(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

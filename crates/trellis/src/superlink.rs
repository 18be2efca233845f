//! `trellis superlink`: from arguments to a running SuperLink. Wiring only: `check` interprets flags, `trellis_link` is the
//! SuperLink.

mod check;
mod state;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

use check::{Checked, check};
pub use state::StateLocation;
pub use table::SUPERLINK;
use tokio::runtime::Builder;
use trellis_core::port::crash;
use trellis_link::config::Config;
use trellis_link::serve;

use crate::private_dir;
use crate::process::{StopSignals, raise_open_file_limit};
use crate::service;
use crate::settings::system::{self, print_error};
use crate::settings::{Flags, print, problem};

const REFUSED: u8 = 2;
/// Exit code of `--check-state` for other errors.
const OTHER_ERROR: u8 = 255;

/// Runs the sub-command. `called` is its name as the user wrote it; `arguments` follow it.
pub fn run(called: &str, arguments: &[OsString]) -> ExitCode {
    let given = match system::read(&Flags::new(called, &SUPERLINK), arguments) {
        Ok(given) => given,
        Err(shown) => return shown,
    };
    if given.is_on("list-crash-points") {
        return system::print(&crash::POINTS.iter().map(|name| format!("{name}\n")).collect::<String>());
    }
    let (checking, printing) = (given.is_on("check-state"), given.is_on("print-config"));
    match system::with_system(|system| check(&given, system)) {
        Err(problems) => {
            print_error(&problem::report(called, &problems));
            ExitCode::from(if checking { OTHER_ERROR } else { REFUSED })
        }
        Ok(checked) if printing => {
            checked.warnings.iter().for_each(|warning| print_error(&format!("warning: {warning}\n")));
            system::print(&print::config_file(&SUPERLINK, &print::rows(&SUPERLINK, &checked), &given))
        }
        Ok(checked) if checking => checked.state.tell(),
        Ok(checked) => start(checked),
    }
}

/// Serves until a stop is requested.
fn start(Checked { config, state, log, warnings, .. }: Checked) -> ExitCode {
    if let Ok(point) = std::env::var("TRELLIS_CRASH_AT") {
        crash::arm(&point, kill_this_process);
    }
    service::run(
        "superlink",
        &log,
        Some(trellis_link::log_tail::append),
        &warnings,
        Builder::new_multi_thread(),
        || {
            match raise_open_file_limit() {
                Ok(limit) => tracing::debug!(limit, "open files"),
                Err(error) => {
                    tracing::warn!(%error, "the limit of open files could not be raised: fewer SuperNodes fit")
                }
            }
            serve_until_stopped(config, state)
        },
    )
}

async fn serve_until_stopped(config: Config, state: StateLocation) -> service::Outcome {
    if let StateLocation::Directory { directory, .. } = &state {
        private_dir::claim(directory)?;
    }
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
    serve(config, state.claim()?, stop.requested()).await?;
    Ok(())
}

/// As `kill -9` would.
fn kill_this_process() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    loop {
        std::thread::park(); // The signal ends the process before this returns.
    }
}

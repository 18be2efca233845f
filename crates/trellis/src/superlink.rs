//! `trellis superlink`: from arguments to a running SuperLink. Wiring only: what flags mean is decided in `check`, what
//! a SuperLink does in `trellis_link`.

mod args;
mod check;
mod print;

use std::ffi::OsString;
use std::process::ExitCode;

use args::SUPERLINK;
pub use args::SuperlinkArgs;
use check::{Checked, check};
use tokio::runtime::Builder;
use trellis_link::config::{Config, StateLocation};
use trellis_link::{CRASH_POINTS, StateVerdict, check_state, serve};

use crate::private_dir;
use crate::process::{StopSignals, raise_open_file_limit};
use crate::service;
use crate::settings::here::{self, complain, print};
use crate::settings::{Flags, RawArgs, problem};

const REFUSED: u8 = 2;
/// The answer of `--check-state` when it has none.
const OTHER_TROUBLE: u8 = 255;

/// Runs the sub-command; `called` is how the user called it, `arguments` come after that.
pub fn run(called: &str, arguments: &[OsString]) -> ExitCode {
    let flags = Flags::new::<SuperlinkArgs>(called, &SUPERLINK);
    let raw: RawArgs<SuperlinkArgs> = match here::read(&flags, arguments) {
        Ok(raw) => raw,
        Err(shown) => return shown,
    };
    if raw.args.inspection.list_crash_points {
        return print(&CRASH_POINTS.iter().map(|name| format!("{name}\n")).collect::<String>());
    }
    let (checking, printing) = (raw.args.inspection.check_state, raw.args.inspection.config.print_config);
    match here::with_surroundings(|around| check(&raw, around)) {
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
        StateLocation::Ephemeral | StateLocation::Temporary { .. } => "in memory".to_owned(),
    };
    print(&format!("state {place}: {verdict}\n"));
    ExitCode::from(code)
}

/// Serves until told to stop.
fn start(Checked { config, log, warnings, .. }: Checked) -> ExitCode {
    service::run("superlink", &log, &warnings, Builder::new_multi_thread(), || {
        match raise_open_file_limit() {
            Ok(limit) => tracing::debug!(limit, "open files"),
            Err(error) => tracing::warn!(%error, "the limit of open files could not be raised: fewer SuperNodes fit"),
        }
        serve_until_stopped(config)
    })
}

async fn serve_until_stopped(config: Config) -> service::Outcome {
    if let StateLocation::Directory { directory, .. } = &config.state {
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
    serve(config, stop.requested()).await?;
    Ok(())
}

//! Checks the settings of a SuperLink together: returns its configuration, or all problems. Pure: the environment is an
//! argument.

mod addresses;
mod apps;
mod compatibility;
mod exposure;
mod security;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use trellis_diagnostic::Diagnostic;
use trellis_link::config::{Config, Keepalive, NativeApp};
use trellis_logging::LogSettings;

use super::state::StateLocation;
use super::table::SUPERLINK;
use crate::process::OWN_PROGRAM;
use crate::settings::{self, Given, System};

/// Database names for a state in memory: those of SQLite and Flower.
const IN_MEMORY: [&str; 2] = [":memory:", ":flwr-in-memory:"];

pub type Checker<'a> = settings::Checker<'a, Checked>;

/// Checked settings.
#[derive(Debug, Clone, Default)]
pub struct Checked {
    pub config: Config,
    pub state: StateLocation,
    /// The directory of native runs, if it is not that in the state directory.
    pub models: Option<PathBuf>,
    /// The file of the run defaults.
    pub run_defaults: Option<PathBuf>,
    pub log: LogSettings,
    /// The user accepts that others on the network can listen and interfere.
    pub insecure_network_allowed: bool,
    /// Remarks that are not errors.
    pub warnings: Vec<String>,
}

/// Runs all checks.
pub fn check(given: &Given, system: &System<'_>) -> Result<Checked, Vec<Diagnostic>> {
    let mut checker = Checker::new(&SUPERLINK, given, system, Checked::default());
    let addresses = checker.addresses();
    checker.tls();
    checker.plaintext(&addresses);
    checker.accounts(&addresses);
    checker.supernode_auth();
    checker.apps();
    checker.admin_token();
    checker.app_port(&addresses);
    checker.keepalive_of_link();
    checker.refused_flags();
    checker.ignored_flags();
    let (mut checked, warnings) = checker.finish()?;
    checked.config.sandbox.helper = OWN_PROGRAM.into();
    checked.config.native_app = Some(NativeApp {
        program: OWN_PROGRAM.into(),
        args: native_args(checked.run_defaults.as_deref()),
        models: checked.models.clone(),
    });
    Ok(Checked { warnings, ..checked })
}

/// Native ServerApps have settings that their apps do not have, and so read the defaults themselves.
fn native_args(run_defaults: Option<&Path>) -> Vec<OsString> {
    let defaults = run_defaults.map(|path| ["--run-defaults".into(), path.into()]);
    std::iter::once("serverapp".into()).chain(defaults.into_iter().flatten()).collect()
}

impl Checker<'_> {
    /// `--database` and `--state-dir`.
    pub(super) fn state(&mut self) {
        let in_memory = self.text("database").is_some_and(|name| IN_MEMORY.contains(&name));
        if in_memory {
            if self.is_on("check-state") {
                let advice = "leave out --database, or give the file to check";
                self.refuse(&["database"], "a state in memory cannot be checked: it does not exist yet", advice);
            }
            if self.is_given("state-dir") {
                self.warn("--state-dir is not used: the database is in memory and nothing survives a restart");
            }
            return;
        }
        let database = self.text("database").map(|path| self.resolve("database", path));
        let directory = match self.text("state-dir") {
            Some(path) => self.resolve("state-dir", path),
            None => self.state_dir_by_default(),
        };
        self.checked.state = StateLocation::Directory { directory, database };
    }

    fn state_dir_by_default(&mut self) -> PathBuf {
        self.system.default_state_dir("superlink").unwrap_or_else(|| {
            let what = "there is no directory for the state: neither HOME nor XDG_STATE_HOME is set";
            self.refuse(&["state-dir"], what, "give a directory with --state-dir, or use --database :memory:");
            PathBuf::new()
        })
    }

    fn keepalive_of_link(&mut self) {
        let default = Keepalive::default();
        let (interval, timeout) = self.keepalive((default.interval, default.timeout));
        let idle = self.checked.config.keepalive.idle;
        self.checked.config.keepalive = Keepalive { interval, timeout, idle };
    }
}

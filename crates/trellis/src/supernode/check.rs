//! Checks the settings of a SuperNode together: returns its configuration, or all problems. Pure: the environment is an
//! argument.

mod addresses;
mod apps;
mod compatibility;
mod identity;
mod link;
mod resources;
mod retry;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use trellis_client::{Security, Target, Trust};
use trellis_diagnostic::Diagnostic;
use trellis_flower::Isolation;
use trellis_node::config::{Config, WarmSettings};

use super::table::SUPERNODE;
use crate::process::OWN_PROGRAM;
use crate::settings::{self, Given, System};
pub use apps::{Lifecycle, OF_SANDBOX, OF_WARM_APPS};
pub use retry::{Zero, max_retries, max_wait};
use trellis_logging::LogSettings;

pub type Checker<'a> = settings::Checker<'a, Checked>;

/// Settings of an app that is part of this program.
type AppSettings = BTreeMap<String, String>;

/// The machine, as far as the checks need it.
pub struct Machine<'a> {
    pub system: &'a System<'a>,
    /// The text of a file.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
    /// The authorities in a file, or those of the system.
    pub trust: &'a dyn Fn(Option<&Path>) -> Result<Trust, String>,
    /// Why a file is no key of a node, if so.
    pub unusable_key: &'a dyn Fn(&Path) -> Option<String>,
    /// Everything that is wrong with an app of this program.
    pub native: &'a dyn Fn(&str, &AppSettings) -> Vec<Diagnostic>,
    /// The interpreter of the `flwr-clientapp` on PATH.
    pub python: &'a dyn Fn() -> Option<PathBuf>,
}

/// Checked settings.
#[derive(Debug, Clone)]
pub struct Checked {
    pub config: Config,
    pub isolation: Isolation,
    pub lifecycle: Lifecycle,
    /// For apps that stay loaded.
    pub warm: WarmSettings,
    pub log: LogSettings,
    /// The file with the authorities.
    pub root_certificates: Option<PathBuf>,
    /// The settings of the node as given, or their file.
    pub node_config: Option<String>,
    /// The file with the keys.
    pub trusted_entities: Option<PathBuf>,
    /// Remarks that are not errors.
    pub warnings: Vec<String>,
}

/// Runs all checks.
pub fn check(given: &Given, zero: Zero, machine: &Machine<'_>) -> Result<Checked, Vec<Diagnostic>> {
    let mut checker = Checker::new(&SUPERNODE, given, machine.system, unset());
    checker.superlink();
    checker.security(machine);
    checker.transport();
    checker.keepalive_of_link();
    checker.limits_of_retry(zero);
    checker.key(machine);
    checker.join();
    checker.node_config(machine);
    checker.trusted_entities(machine);
    checker.apps(machine);
    checker.addresses();
    checker.without_effect();
    checker.compatibility();
    let (checked, warnings) = checker.finish()?;
    Ok(Checked { warnings, ..checked })
}

/// The defaults.
fn unset() -> Checked {
    let superlink = Target { host: String::new(), port: 0, security: Security::Plaintext, token: None };
    let mut config = Config::new(superlink, PathBuf::new());
    config.apps.sandbox.helper = OWN_PROGRAM.into();
    Checked {
        config,
        isolation: Isolation::Subprocess,
        lifecycle: Lifecycle::Warm,
        warm: WarmSettings::default(),
        log: LogSettings::default(),
        root_certificates: None,
        node_config: None,
        trusted_entities: None,
        warnings: Vec::new(),
    }
}

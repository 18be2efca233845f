//! Turns what was asked for into a configuration, or into the list of everything that is wrong with it. Pure: what it
//! needs of the outside world is handed in.

mod addresses;
mod apps;
mod compatibility;
mod connections;
mod exposure;
mod security;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use trellis_link::config::{Config, Limits, NativeApp};

use super::args::SuperlinkArgs;
use super::state::StateLocation;
use crate::logging::LogSettings;
use crate::process::OWN_PROGRAM;
use crate::settings::{self, Problem, RawArgs, Surroundings};

/// Names that mean a state kept in memory only: SQLite's, and Flower's.
const IN_MEMORY: [&str; 2] = [":memory:", ":flwr-in-memory:"];
const MIB: u64 = 1 << 20;
/// Nobody has a machine for more.
const MAX_SERVERAPPS: u32 = 10_000;
/// Below it not even the messages around a model would pass.
const SMALLEST_MESSAGE: u64 = MIB;
/// Clients of gRPC cannot send more at once.
const LARGEST_MESSAGE: u64 = 1 << 31;

type Checker<'a> = settings::Checker<'a, SuperlinkArgs>;

/// What passed the checks.
#[derive(Debug, Clone)]
pub struct Checked {
    pub config: Config,
    pub state: StateLocation,
    /// The file that they come from.
    pub run_defaults: Option<PathBuf>,
    pub log: LogSettings,
    /// The user accepts that others on the network can listen and interfere.
    pub insecure_network_allowed: bool,
    /// What the user should know although it is not wrong.
    pub warnings: Vec<String>,
}

/// Checks everything, and says everything that is wrong.
pub fn check(raw: &RawArgs<SuperlinkArgs>, around: &Surroundings<'_>) -> Result<Checked, Vec<Problem>> {
    let mut checker = Checker::new(raw, around);

    // A refused value is replaced by its default so that the checks can go on; the result is then never used.
    let addresses = checker.addresses();
    let endpoints = checker.endpoints();
    let allowed_hosts = checker.allowed_hosts();
    let tls = checker.tls();
    checker.plaintext(&addresses);
    let accounts = checker.accounts(&addresses);
    let supernode_auth = checker.supernode_auth();
    let apps = checker.apps();
    let models = checker.models();
    let (run_defaults, defaults) = checker.run_defaults().unzip();
    let admin_token = checker.admin_token(accounts);
    checker.app_port(&addresses, apps.superexec_secret.is_some(), apps.trust);
    let state = checker.state();
    let keepalive = checker.connections();
    let limits = checker.limits();
    let log = checker.log(&raw.args.log);
    checker.refused_flags();
    checker.ignored_flags();

    let Checker { problems, warnings, .. } = checker;
    if !problems.is_empty() {
        return Err(problems);
    }
    let config = Config {
        control_address: addresses.control.text().unwrap_or_default(),
        fleet_address: addresses.fleet.text().unwrap_or_default(),
        serverappio_address: addresses.serverappio.text().unwrap_or_default(),
        http_address: addresses.http.text().unwrap_or_default(),
        metrics_address: addresses.metrics.text(),
        health_address: addresses.health.text(),
        tls,
        endpoints,
        allowed_hosts,
        accounts,
        isolation: apps.isolation,
        python: apps.python,
        dependency_installation: apps.dependency_installation,
        sandbox: apps.sandbox,
        native_app: Some(NativeApp { program: OWN_PROGRAM.into(), args: native_args(run_defaults.as_deref()), models }),
        superexec_secret: apps.superexec_secret,
        app_trust: apps.trust,
        admin_token,
        run_defaults: defaults.unwrap_or_default(),
        supernode_auth,
        keepalive,
        limits,
    };
    let insecure_network_allowed = raw.args.security.allow_insecure_network;
    Ok(Checked { config, state, run_defaults, log, insecure_network_allowed, warnings })
}

/// The native ServerApp knows settings that its app does not have, and reads the defaults of those itself.
fn native_args(run_defaults: Option<&Path>) -> Vec<OsString> {
    let defaults = run_defaults.map(|path| ["--run-defaults".into(), path.into()]);
    std::iter::once("serverapp".into()).chain(defaults.into_iter().flatten()).collect()
}

impl Checker<'_> {
    fn state(&mut self) -> StateLocation {
        let args = &self.raw.args.state;
        let in_memory = args.database.as_deref().is_some_and(|name| IN_MEMORY.contains(&name));
        if in_memory {
            if self.raw.args.inspection.check_state {
                let advice = "leave out --database, or give the file to check";
                self.refuse(&["database"], "a state in memory cannot be checked: there is none yet", advice);
            }
            if args.state_dir.is_some() {
                self.warn("--state-dir is not used: the database is kept in memory and nothing survives a restart");
            }
            return StateLocation::Memory;
        }
        let database = args.database.as_deref().map(|path| self.resolve("database", path));
        let directory = match args.state_dir.as_deref() {
            Some(path) => self.resolve("state-dir", path),
            None => self.state_dir_by_default(),
        };
        StateLocation::Directory { directory, database }
    }

    fn state_dir_by_default(&mut self) -> PathBuf {
        self.default_state_dir("superlink").unwrap_or_else(|| {
            let what = "there is no place for the state: neither HOME nor XDG_STATE_HOME is set";
            self.refuse(&["state-dir"], what, "give a directory with --state-dir, or use --database :memory:");
            PathBuf::new()
        })
    }

    fn limits(&mut self) -> Limits {
        let args = &self.raw.args.limits;
        let mut limits = Limits::default();
        if args.max_serverapps.is_some() {
            let count = self.count("max-serverapps", args.max_serverapps.as_deref(), 1, MAX_SERVERAPPS);
            limits.server_apps = usize::try_from(count).ok();
        }
        let message = args.max_message_size.as_deref();
        if let Some(bytes) = self.size("max-message-size", message, SMALLEST_MESSAGE, LARGEST_MESSAGE) {
            limits.message_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        if let Some(bytes) = self.size("max-object-size", args.max_object_size.as_deref(), MIB, u64::MAX) {
            limits.object_bytes = bytes;
        }
        if let Some(bytes) = self.size("object-cache-size", args.object_cache_size.as_deref(), 0, u64::MAX) {
            limits.object_cache_bytes = bytes;
        }
        limits
    }
}

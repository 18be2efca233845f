//! Turns what was asked for into a configuration, or into the list of everything that is wrong with it. Pure: what it
//! needs of the outside world is handed in.

mod addresses;
mod apps;
mod compatibility;
mod connections;
mod exposure;
mod log;
mod security;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use trellis_link::config::{Config, Limits, StateLocation};

use super::gather::RawArgs;
use super::problem::{Problem, Source};
use super::size;
use crate::logging::LogSettings;

/// Names that mean a state kept in memory only: SQLite's, and Flower's.
const IN_MEMORY: [&str; 2] = [":memory:", ":flwr-in-memory:"];
const MIB: u64 = 1 << 20;
/// Below it not even the messages around a model would pass.
const SMALLEST_MESSAGE: u64 = MIB;
/// Clients of gRPC cannot send more at once.
const LARGEST_MESSAGE: u64 = 1 << 31;

/// The outside world, as far as the checks need it.
pub struct Surroundings<'a> {
    pub current_dir: &'a Path,
    pub home: Option<&'a Path>,
    pub state_home: Option<&'a Path>,
    /// Why a file cannot be read, if so.
    pub unreadable: &'a dyn Fn(&Path) -> Option<String>,
    /// Why nothing can be written to a file, which need not exist, if so.
    pub unwritable: &'a dyn Fn(&Path) -> Option<String>,
}

/// What passed the checks.
#[derive(Debug, Clone)]
pub struct Checked {
    pub config: Config,
    pub log: LogSettings,
    /// The user accepts that others on the network can listen and interfere.
    pub insecure_network_allowed: bool,
    /// What the user should know although it is not wrong.
    pub warnings: Vec<String>,
}

/// Checks everything, and says everything that is wrong.
pub fn check(raw: &RawArgs, around: &Surroundings<'_>) -> Result<Checked, Vec<Problem>> {
    let mut checker = Checker { raw, around, problems: raw.problems.clone(), warnings: raw.warnings.clone() };

    // A refused value is replaced by its default so that the checks can go on; the result is then never used.
    let addresses = checker.addresses();
    let endpoints = checker.endpoints();
    let tls = checker.tls();
    checker.plaintext(&addresses);
    let accounts = checker.accounts(&addresses);
    let supernode_auth = checker.supernode_auth();
    let apps = checker.apps();
    checker.app_port(&addresses, apps.superexec_secret.is_some());
    let state = checker.state();
    let keepalive = checker.keepalive();
    let limits = checker.limits();
    let log = checker.log();
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
        accounts,
        isolation: apps.isolation,
        python: apps.python,
        dependency_installation: apps.dependency_installation,
        superexec_secret: apps.superexec_secret,
        state,
        supernode_auth,
        keepalive,
        limits,
    };
    let insecure_network_allowed = raw.args.security.allow_insecure_network;
    Ok(Checked { config, log, insecure_network_allowed, warnings })
}

struct Checker<'a> {
    raw: &'a RawArgs,
    around: &'a Surroundings<'a>,
    problems: Vec<Problem>,
    warnings: Vec<String>,
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
            return StateLocation::Ephemeral;
        }
        let database = args.database.as_deref().map(|path| self.resolve("database", path));
        let directory = match args.state_dir.as_deref() {
            Some(path) => self.resolve("state-dir", path),
            None => self.default_state_dir(),
        };
        StateLocation::Directory { directory, database }
    }

    fn default_state_dir(&mut self) -> PathBuf {
        // A relative XDG directory is to be ignored, says its specification.
        let home = self.around.state_home.filter(|path| path.is_absolute()).map(Path::to_owned);
        match home.or_else(|| self.around.home.map(|home| home.join(".local/state"))) {
            Some(home) => home.join("trellis/superlink"),
            None => {
                let what = "there is no place for the state: neither HOME nor XDG_STATE_HOME is set";
                self.refuse(&["state-dir"], what, "give a directory with --state-dir, or use --database :memory:");
                PathBuf::new()
            }
        }
    }

    fn limits(&mut self) -> Limits {
        let args = &self.raw.args.limits;
        let mut limits = Limits::default();
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

    fn size(&mut self, name: &str, given: Option<&str>, smallest: u64, largest: u64) -> Option<u64> {
        let given = given?;
        let Some(bytes) = size::parse(given) else {
            self.refuse(&[name], format!("--{name}: {given:?} is not a size"), "write it like 64MiB, 2GiB or 500MB");
            return None;
        };
        if bytes < smallest || bytes > largest {
            let advice = match largest {
                u64::MAX => format!("use at least {}", size::show(smallest)),
                _ => format!("use {} to {}", size::show(smallest), size::show(largest)),
            };
            let side = if bytes < smallest { "small" } else { "large" };
            self.refuse(&[name], format!("--{name}: {given} is too {side}"), advice);
            return None;
        }
        Some(bytes)
    }

    fn refuse(&mut self, flags: &[&str], what: impl Into<String>, advice: impl Into<String>) {
        let places: Vec<String> = flags.iter().map(|name| self.source(name).locate(name)).collect();
        self.problems.push(Problem::new(what, places.join("; "), advice));
    }

    fn warn(&mut self, what: impl Into<String>) {
        self.warnings.push(what.into());
    }

    fn source(&self, name: &str) -> &Source {
        self.raw.sources.get(name).unwrap_or(&Source::Default)
    }

    /// The absolute path meant by `path`. Apps run elsewhere, so a relative one would not last; one in a file starts
    /// from the file's directory.
    fn resolve(&self, name: &str, path: &str) -> PathBuf {
        if let (Some(rest), Some(home)) = (path.strip_prefix("~/"), self.around.home) {
            return home.join(rest);
        }
        let base = match self.source(name) {
            Source::File { path, .. } => self.around.current_dir.join(path.parent().unwrap_or(Path::new(""))),
            _ => self.around.current_dir.to_owned(),
        };
        base.join(path.strip_prefix("./").unwrap_or(path))
    }

    fn must_be_readable(&mut self, name: &str, path: &Path, advice: &str) {
        if let Some(why) = (self.around.unreadable)(path) {
            self.refuse(&[name], format!("--{name}: {} cannot be read: {why}", path.display()), advice);
        }
    }
}

fn dashed(flags: &[&str]) -> String {
    flags.iter().map(|name| format!("--{name}")).collect::<Vec<_>>().join(", ")
}

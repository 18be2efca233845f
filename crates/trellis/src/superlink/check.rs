//! Turns what was asked for into a configuration, or into the list of everything that is wrong with it. Pure: what it
//! needs of the outside world is handed in.

mod addresses;
mod security;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use trellis_link::config::{Config, Isolation, Limits, StateLocation};

use super::gather::RawArgs;
use super::problem::{Problem, Source};
use super::size;
use crate::logging::{self, LogFormat, LogSettings};

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
}

/// What passed the checks.
#[derive(Debug, Clone)]
pub struct Checked {
    pub config: Config,
    pub log: LogSettings,
    /// What the user should know although it is not wrong.
    pub warnings: Vec<String>,
}

/// Checks everything, and says everything that is wrong.
pub fn check(raw: &RawArgs, around: &Surroundings<'_>) -> Result<Checked, Vec<Problem>> {
    let mut checker = Checker { raw, around, problems: raw.problems.clone(), warnings: raw.warnings.clone() };

    // A refused value is replaced by its default so that the checks can go on; the result is then never used.
    let isolation = checker.isolation();
    let addresses = checker.addresses(isolation);
    let tls = checker.tls();
    let supernode_auth = checker.supernode_auth();
    let python = checker.python(isolation);
    let state = checker.state();
    let limits = checker.limits();
    let log = checker.log();
    checker.refused_flags();
    checker.ignored_flags();

    let Checker { problems, warnings, .. } = checker;
    if !problems.is_empty() {
        return Err(problems);
    }
    let config = Config {
        control_address: addresses.control,
        fleet_address: addresses.fleet,
        serverappio_address: addresses.serverappio,
        http_address: "127.0.0.1:0".to_owned(),
        metrics_address: None,
        health_address: addresses.health,
        endpoints: Vec::new(),
        accounts: false,
        dependency_installation: false,
        superexec_secret: None,
        keepalive: Default::default(),
        tls,
        isolation,
        python,
        state,
        supernode_auth,
        limits,
    };
    Ok(Checked { config, log, warnings })
}

struct Checker<'a> {
    raw: &'a RawArgs,
    around: &'a Surroundings<'a>,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

impl Checker<'_> {
    fn isolation(&mut self) -> Isolation {
        match self.raw.args.apps.isolation.as_deref() {
            None | Some("subprocess") => Isolation::Subprocess,
            Some("process") => Isolation::Process,
            Some(other) => {
                let what = format!("--isolation cannot be {other:?}");
                self.refuse(&["isolation"], what, "use subprocess or process");
                Isolation::Subprocess
            }
        }
    }

    fn python(&mut self, isolation: Isolation) -> Option<PathBuf> {
        let given = self.raw.args.apps.python.as_deref()?;
        if isolation == Isolation::Process {
            self.warn("--python has no effect with --isolation process: a flower-superexec starts the ServerApps");
        }
        if !given.contains('/') {
            // A name to be found on PATH.
            return Some(given.into());
        }
        let path = self.resolve("python", given);
        self.must_be_readable("python", &path, "give the path of a Python interpreter");
        Some(path)
    }

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

    fn log(&mut self) -> LogSettings {
        let args = &self.raw.args.output;
        let format = match args.log_format.as_deref() {
            None | Some("text") => LogFormat::Text,
            Some("json") => LogFormat::Json,
            Some(other) => {
                self.refuse(&["log-format"], format!("--log-format cannot be {other:?}"), "use text or json");
                LogFormat::Text
            }
        };
        let given = args.log_level.as_deref().unwrap_or("info");
        if logging::filter(given).is_none() {
            let what = format!("{given:?} is not a log level");
            self.refuse(&["log-level"], what, "use error, warn, info, debug or trace");
        }
        LogSettings { format, level: logging::plain_level(given).unwrap_or(given).to_owned() }
    }

    /// Flags that Flower 1.25 knows and that cannot be served.
    fn refused_flags(&mut self) {
        let args = &self.raw.args.compatibility;
        if args.auth_list_public_keys.is_some() {
            let advice = "use --enable-supernode-auth, and register each node: flwr supernode register PUBLIC-KEY";
            self.refuse(&["auth-list-public-keys"], "a list of public keys is no longer supported by Flower", advice);
        }
        let executor = [
            ("executor", args.executor.is_some()),
            ("executor-dir", args.executor_dir.is_some()),
            ("executor-config", args.executor_config.is_some()),
        ];
        let executor: Vec<&str> = executor.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect();
        if !executor.is_empty() {
            let what = format!("{}: executors are no longer supported by Flower", dashed(&executor));
            self.refuse(&executor, what, "leave it out; --isolation says who starts the apps");
        }
        let simulation =
            [("simulation", args.simulation), ("simulationio-api-address", args.simulationio_api_address.is_some())];
        let simulation: Vec<&str> = simulation.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect();
        if !simulation.is_empty() {
            let what = format!("{}: this SuperLink serves real SuperNodes, not simulations", dashed(&simulation));
            self.refuse(&simulation, what, "leave it out, or simulate with Flower's own flower-superlink");
        }
    }

    /// Flags that Flower 1.25 knows and that change nothing here.
    fn ignored_flags(&mut self) {
        let args = &self.raw.args.compatibility;
        match args.fleet_api_type.as_deref() {
            None | Some("grpc-rere") => {}
            Some(other @ ("rest" | "grpc-adapter")) => {
                let what = format!("--fleet-api-type {other} is not served");
                let advice = "leave it out, and start SuperNodes without --rest and --grpc-adapter";
                self.refuse(&["fleet-api-type"], what, advice);
            }
            Some(other) => {
                let what = format!("--fleet-api-type cannot be {other:?}");
                self.refuse(&["fleet-api-type"], what, "leave it out, or use grpc-rere");
            }
        }
        match args.fleet_api_num_workers.as_deref().map(str::parse::<i64>) {
            None | Some(Ok(1)) => {}
            Some(Ok(_)) => self.warn("--fleet-api-num-workers is ignored: all cores are used"),
            Some(Err(_)) => {
                let what = "--fleet-api-num-workers is not a number";
                self.refuse(&["fleet-api-num-workers"], what, "leave it out: all cores are used");
            }
        }
        if args.storage_dir.is_some() {
            self.warn("--storage-dir is ignored: apps are kept with the rest of the state (--state-dir)");
        }
        if args.flwr_dir.is_some() {
            self.warn("--flwr-dir is ignored");
        }
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

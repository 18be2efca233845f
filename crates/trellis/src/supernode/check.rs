//! Turns what was asked for into a configuration, or into the list of everything that is wrong with it. Pure: what it
//! needs of the outside world is handed in.

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

use trellis_client::{Target, Trust};
use trellis_node::config::{Config, Limits};

use super::args::SupernodeArgs;
use crate::logging::LogSettings;
use crate::settings::{self, Problem, RawArgs, Surroundings};
pub use retry::Zero;

type Checker<'a> = settings::Checker<'a, SupernodeArgs>;

/// Settings of an app that is part of this program.
type AppSettings = BTreeMap<String, String>;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const DISK_BYTES: u64 = 20 * GIB;
/// Less would not hold a model and the next one.
const SMALLEST_DISK_BYTES: u64 = 64 * MIB;
/// Flower refuses bundles above 10 MiB; unpacked they are text.
const APP_BYTES: u64 = 256 * MIB;
/// Slower, and a large model would not come through before its sender gives up.
const SMALLEST_BANDWIDTH: u64 = 1 << 10;
const PARALLEL_OBJECTS: u32 = 8;
const MOST_PARALLEL_OBJECTS: u32 = 64;

/// The machine, as far as the checks need it.
pub struct Machine<'a> {
    pub around: &'a Surroundings<'a>,
    /// The text of a file.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
    /// The authorities in a file, or those of the system.
    pub trust: &'a dyn Fn(Option<&Path>) -> Result<Trust, String>,
    /// Why a file is no key of a node, if so.
    pub unusable_key: &'a dyn Fn(&Path) -> Option<String>,
    /// Everything that is wrong with an app of this program.
    pub native: &'a dyn Fn(&str, &AppSettings) -> Vec<trellis_native::Problem>,
    /// The interpreter of the `flwr-clientapp` on PATH.
    pub python: &'a dyn Fn() -> Option<PathBuf>,
}

/// What passed the checks.
#[derive(Debug, Clone)]
pub struct Checked {
    pub config: Config,
    pub log: LogSettings,
    pub given: Given,
    /// What the user should know although it is not wrong.
    pub warnings: Vec<String>,
}

/// What the configuration does not keep, as it was given.
#[derive(Debug, Clone, Default)]
pub struct Given {
    pub root_certificates: Option<PathBuf>,
    pub node_config: Option<String>,
    pub trusted_entities: Option<PathBuf>,
}

/// Checks everything, and says everything that is wrong.
pub fn check(raw: &RawArgs<SupernodeArgs>, zero: Zero, machine: &Machine<'_>) -> Result<Checked, Vec<Problem>> {
    let mut checker = Checker::new(raw, machine.around);

    // A refused value is replaced by its default so that the checks can go on; the result is then never used.
    let target = checker.superlink();
    let (security, root_certificates) = checker.security(&target, machine);
    let transport = checker.transport();
    let keepalive = checker.link_keepalive();
    let retry = checker.retry(zero);
    let state_dir = checker.state_dir();
    let key = checker.key(machine);
    checker.join();
    let name = checker.name();
    let (node_config, given_node_config) = checker.node_config(machine);
    let (trusted_entities, trusted_entities_file) = checker.trusted_entities(machine);
    let apps = checker.apps(machine);
    let resources = checker.resources();
    let (health_address, metrics_address) = checker.other_addresses(&apps);
    let limits = checker.limits();
    let log = checker.log(&raw.args.log);
    checker.without_effect(&apps.mode);
    checker.compatibility();

    let Checker { problems, warnings, .. } = checker;
    let Some(security) = security.filter(|_| problems.is_empty()) else { return Err(problems) };
    let config = Config {
        superlink: Target { host: target.host.to_string(), port: target.port, security, token: None },
        transport,
        keepalive,
        retry,
        state_dir,
        temporary: None,
        key,
        name,
        node_config,
        apps,
        resources,
        trusted_entities,
        health_address,
        metrics_address,
        limits,
    };
    let given = Given { root_certificates, node_config: given_node_config, trusted_entities: trusted_entities_file };
    Ok(Checked { config, log, given, warnings })
}

impl Checker<'_> {
    fn limits(&mut self) -> Limits {
        let args = &self.raw.args.limits;
        let disk = self.size("disk-limit", args.disk_limit.as_deref(), SMALLEST_DISK_BYTES, u64::MAX);
        let bandwidth = self.size("bandwidth-limit", args.bandwidth_limit.as_deref(), SMALLEST_BANDWIDTH, u64::MAX);
        let parallel = args.parallel_transfers.as_deref();
        let parallel = self.count("parallel-transfers", parallel, PARALLEL_OBJECTS, MOST_PARALLEL_OBJECTS);
        Limits {
            disk_bytes: disk.unwrap_or(DISK_BYTES),
            app_bytes: APP_BYTES,
            parallel_objects: parallel as usize,
            bandwidth,
        }
    }

    /// Whether any place gives a value.
    fn is_given(&self, name: &str) -> bool {
        self.raw.sources.contains_key(name)
    }
}

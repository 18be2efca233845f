//! The programs of a virtual machine as data: arguments, environment, files, and the probe of their readiness. Pure:
//! addresses, certificates and the discovered SuperLink are inputs.

mod containers;
pub mod submission;
mod superlink;
mod supernode;
pub mod unit;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trellis_client::fleet::Transport;
use trellis_flower::launch::{self, Keepalive, Launch, Sandbox};
use trellis_flower::{Program as Runs, Release};

use crate::discovery::Coordinator;
use crate::failure::{Code, Failure};
use crate::place::Place;
use crate::settings::{Common, FlowerBy, Role, RoleSettings, Runtime, Settings};

const NODE_CONFIG: &str = "node-config.toml";
const RUN_DEFAULTS: &str = "run-defaults.toml";

/// Inputs of a recipe beside the settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Advertised address of the SuperLink, without a port.
    pub advertised: Option<IpAddr>,
    /// SuperLink of a node.
    pub coordinator: Option<Coordinator>,
    /// Python with the packages of the framework is installed.
    pub python: bool,
    /// The machine has GPUs.
    pub gpu: bool,
    /// Key of a node that joined.
    pub node_key: Option<PathBuf>,
    /// Name of the node.
    pub name: Option<String>,
    /// Port of the SuperLink for its apps, if it is not the usual one.
    pub apps_port: Option<u16>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// Files that programs read. Unchanged files are not written.
    pub files: BTreeMap<PathBuf, String>,
    /// Directories that programs write to.
    pub directories: Vec<PathBuf>,
    /// The first program is the one of the role.
    pub programs: Vec<Program>,
    pub probe: Probe,
    /// Addresses that must be free.
    pub listens: Vec<SocketAddr>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Also part of the unit's name: `trellis-NAME.service`.
    pub name: String,
    pub description: String,
    pub path: PathBuf,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Commands that run before each start. Their exit codes are ignored.
    pub before: Vec<Vec<String>>,
    /// Log file, truncated at each start. `None` if the output goes to that of the agent.
    pub log: Option<PathBuf>,
    /// The program calls a daemon that only root may call.
    pub as_root: bool,
    /// The recipe works without this program if it is not installed.
    pub is_optional: bool,
}

/// How to probe the role's program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Probe {
    #[default]
    None,
    /// The Fleet API, and with `calls` the API of our own SuperLink.
    SuperLink { fleet: SocketAddr, http: bool, trust: Option<PathBuf>, calls: Option<Calls> },
    /// The socket of our own node.
    SuperNode { socket: PathBuf },
    /// The log of an official node, which reports the connection.
    FlowerSuperNode { log: PathBuf },
}

/// API of the SuperLink for runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    pub address: SocketAddr,
    /// HTTP, or gRPC for releases before 1.37.
    pub http: bool,
    /// Token of an account that may call; `None` if no account is needed.
    pub token: Option<PathBuf>,
}

/// Recipe of a SuperLink or a SuperNode. A gateway has no programs: see `tunnel`.
pub fn recipe(settings: &Settings, around: &Surroundings, place: &Place) -> Result<Recipe, Failure> {
    let common = &settings.common;
    let recipe = match &settings.role {
        RoleSettings::Gateway(_) => return Ok(Recipe::default()),
        RoleSettings::SuperLink(link) => superlink::recipe(common, link, around, place),
        RoleSettings::SuperNode(node) => supernode::recipe(common, node, around, place)?,
    };
    let mut recipe = match common.runtime {
        Runtime::Flower { by: by @ (FlowerBy::Docker | FlowerBy::Podman) } => containers::contain(recipe, by, common),
        Runtime::Trellis | Runtime::Flower { by: FlowerBy::Packages } => recipe,
    };
    if let RoleSettings::SuperNode(node) = &settings.role
        && node.dcgm
    {
        recipe.programs.push(gpu_exporter());
    }
    Ok(recipe)
}

/// Exports GPU metrics to Prometheus. Only root may ask the driver.
fn gpu_exporter() -> Program {
    let exporter = Program::new("dcgm", "Exporter of GPU metrics", "/usr/bin/dcgm-exporter");
    Program { as_root: true, is_optional: true, ..exporter.flag("--address", ":9400") }
}

/// Whose apps run.
pub fn flower_version(common: &Common) -> &str {
    common.flower_version.as_deref().unwrap_or(Release::NEWEST_TEXT)
}

/// Settings that both programs share.
fn describe_common(role: Role, common: &Common, around: &Surroundings, place: &Place) -> launch::Common {
    let program = match common.runtime {
        Runtime::Trellis => Runs::Trellis,
        // The version is validated when the context is read.
        Runtime::Flower { .. } => Runs::Flower(Release::read(flower_version(common)).unwrap_or(Release::NEWEST)),
    };
    let seconds = |duration: Duration| u32::try_from(duration.as_secs().max(1)).unwrap_or(u32::MAX);
    launch::Common {
        python: around.python.then(|| place.python()),
        // The kernels of the appliance images support all rules of the sandbox.
        sandbox: around.python.then_some(Sandbox::Required),
        keepalive: Some(Keepalive {
            interval_s: seconds(common.keepalive.interval),
            timeout_s: seconds(common.keepalive.timeout),
        }),
        json_logs: common.json_logs,
        log_level: Some(common.log_level),
        home: Some(place.service(role).join("flower-home")),
        search_path: Some(format!("{}:/usr/local/bin:/usr/bin:/bin", flower_programs(common, place).display()).into()),
        program,
        isolation: common.isolation,
        ..launch::Common::default()
    }
}

fn flower_programs(common: &Common, place: &Place) -> PathBuf {
    place.flower(flower_version(common))
}

/// The SuperLink of a node, which is mandatory.
fn coordinator(around: &Surroundings) -> Result<&Coordinator, Failure> {
    let missing = || Failure::new(Code::DiscoveryTimeout, "no SuperLink was found");
    around.coordinator.as_ref().ok_or_else(missing)
}

/// Local address of a program that listens at `address`.
pub fn reached(address: SocketAddr) -> SocketAddr {
    let here = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(here, address.port())
}

/// The node config of apps, with the shard unless the user sets one.
fn node_config(said: &BTreeMap<String, toml::Value>, shard: Option<(u32, u32)>) -> String {
    let mut config: toml::Table = said.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    if let Some((own, count)) = shard
        && !config.contains_key("partition-id")
    {
        config.insert("partition-id".into(), toml::Value::Integer(own.into()));
        config.entry("num-partitions").or_insert(toml::Value::Integer(count.into()));
    }
    toml::to_string(&config).expect("a table of plain values is TOML")
}

impl Recipe {
    /// Digest of the files. Programs read them only at their start.
    pub fn digest(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        self.files.hash(&mut hasher);
        hasher.finish()
    }
}

impl Program {
    /// The program of a role.
    fn of(role: Role, launch: &Launch, common: &Common, place: &Place) -> Program {
        let description = match role {
            Role::SuperLink => "SuperLink of a Flower federation",
            Role::SuperNode => "SuperNode of a Flower federation",
            Role::Gateway => "Gateway of a Flower federation",
        };
        Program::new(role.name(), description, "").started(launch, common, place)
    }

    fn superexec(launch: &Launch, common: &Common, place: &Place) -> Program {
        Program::new("superexec", "Launcher of Flower apps", "").started(launch, common, place)
    }

    fn started(self, launch: &Launch, common: &Common, place: &Place) -> Program {
        let path = match common.runtime {
            Runtime::Trellis => place.program.clone(),
            Runtime::Flower { .. } => flower_programs(common, place).join(launch.command[0]),
        };
        let text = |text: &OsString| text.to_string_lossy().into_owned();
        let env = launch.env.iter().map(|(name, value)| (name.clone(), text(value))).collect();
        Program { path, args: launch.words().iter().map(text).collect(), env, ..self }
    }

    pub fn new(name: &str, description: &str, path: impl Into<PathBuf>) -> Program {
        Program { name: name.to_owned(), description: description.to_owned(), path: path.into(), ..Program::default() }
    }

    pub fn arg(mut self, arg: impl Into<String>) -> Program {
        self.args.push(arg.into());
        self
    }

    /// `--name value`
    pub fn flag(self, name: &str, value: impl ToString) -> Program {
        self.arg(name).arg(value.to_string())
    }

    pub fn env(mut self, name: &str, value: impl Into<String>) -> Program {
        self.env.insert(name.to_owned(), value.into());
        self
    }
}

impl Probe {
    pub fn transport(http: bool) -> Transport {
        if http { Transport::Http } else { Transport::Grpc }
    }
}

#[cfg(test)]
mod tests;

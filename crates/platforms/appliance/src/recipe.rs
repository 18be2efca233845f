//! What is started in a virtual machine, as plain data: programs with arguments and environment, the files they read, and whom
//! to ask whether they work. Pure: addresses, certificates and a found SuperLink are there when a recipe is asked for.

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
use crate::place::Place;
use crate::settings::{Common, FlowerBy, Role, RoleSettings, Runtime, Settings};
use crate::trouble::{Code, Trouble};

const NODE_CONFIG: &str = "node-config.toml";
const RUN_DEFAULTS: &str = "run-defaults.toml";

/// What the machine and others have said, beside the settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The SuperLink's address that is told to others, without a port.
    pub advertised: Option<IpAddr>,
    /// Of a node: whom it joins.
    pub coordinator: Option<Coordinator>,
    /// A Python with the packages of the framework is there.
    pub python: bool,
    /// GPUs are there.
    pub gpu: bool,
    /// Of a node: its key, where it was made known.
    pub node_key: Option<PathBuf>,
    /// What the node is called.
    pub name: Option<String>,
    /// Of a SuperLink: where its apps connect, if not at the usual port.
    pub apps_port: Option<u16>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// Readable by the programs; written where they differ.
    pub files: BTreeMap<PathBuf, String>,
    /// Writable by the programs.
    pub directories: Vec<PathBuf>,
    /// The first is the role's own.
    pub programs: Vec<Program>,
    pub probe: Probe,
    /// Nothing else may listen there.
    pub listens: Vec<SocketAddr>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Also of its unit: `trellis-NAME.service`.
    pub name: String,
    pub description: String,
    pub path: PathBuf,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Run to their end before each start; whether they succeed does not matter.
    pub before: Vec<Vec<String>>,
    /// Where its output goes, emptied at each start; `None`: where ours goes.
    pub log: Option<PathBuf>,
    /// It speaks to a daemon that only root may speak to.
    pub as_root: bool,
    /// Where it is not installed, the rest works without it.
    pub is_optional: bool,
}

/// Whom to ask whether the role works.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Probe {
    #[default]
    Nobody,
    /// The Fleet API as nodes use it, and the rest where the SuperLink is ours.
    SuperLink { fleet: SocketAddr, http: bool, trust: Option<PathBuf>, calls: Option<Calls> },
    /// The socket of our own node.
    SuperNode { socket: PathBuf },
    /// The log of an official one, which says when it is connected.
    FlowerSuperNode { log: PathBuf },
}

/// Where a SuperLink is asked for its runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    pub address: SocketAddr,
    /// Over HTTP, or gRPC as before 1.37.
    pub http: bool,
    /// Of an account that may ask; `None`: everybody may.
    pub token: Option<PathBuf>,
}

/// The recipe of a SuperLink or a SuperNode. A gateway has no programs of its own: see `tunnel`.
pub fn recipe(settings: &Settings, around: &Surroundings, place: &Place) -> Result<Recipe, Trouble> {
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

/// Numbers of NVIDIA's GPUs for Prometheus. It asks the driver, which root alone may.
fn gpu_exporter() -> Program {
    let exporter = Program::new("dcgm", "Exporter of GPU metrics", "/usr/bin/dcgm-exporter");
    Program { as_root: true, is_optional: true, ..exporter.flag("--address", ":9400") }
}

/// Whose apps run.
pub fn flower_version(common: &Common) -> &str {
    common.flower_version.as_deref().unwrap_or(Release::NEWEST_TEXT)
}

/// What both programs have because of the settings and the machine.
fn describe_common(role: Role, common: &Common, around: &Surroundings, place: &Place) -> launch::Common {
    let program = match common.runtime {
        Runtime::Trellis => Runs::Trellis,
        // Versions are checked when the context is read.
        Runtime::Flower { .. } => Runs::Flower(Release::read(flower_version(common)).unwrap_or(Release::NEWEST)),
    };
    let seconds = |duration: Duration| u32::try_from(duration.as_secs().max(1)).unwrap_or(u32::MAX);
    launch::Common {
        python: around.python.then(|| place.python()),
        // The kernels of the appliance images support every rule of the sandbox.
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

/// The SuperLink that a node cannot do without.
fn coordinator(around: &Surroundings) -> Result<&Coordinator, Trouble> {
    let missing = || Trouble::new(Code::DiscoveryTimeout, "no SuperLink was found");
    around.coordinator.as_ref().ok_or_else(missing)
}

/// Where something that listens at `address` is reached from this machine.
pub fn reached(address: SocketAddr) -> SocketAddr {
    let here = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(here, address.port())
}

/// The settings of a node for its apps, its shard included where nobody named one.
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
    /// Another for other contents of its files: programs read them at their start.
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

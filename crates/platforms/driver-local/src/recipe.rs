//! Recipes: what is started for a part, as plain data. Programs with arguments and environment, and the probe of the part.
//!
//! Pure: a recipe opens nothing and starts nothing. Ports, certificates and keys exist already; the [`PartContext`] has their paths.
//! `trellis_flower::launch` defines the arguments.

mod containers;
mod node_config;
mod superlink;
mod supernode;
#[cfg(test)]
pub mod testing;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trellis_client::fleet::Transport;
use trellis_flower::Isolation;
use trellis_flower::launch::{Common, Launch, Sandbox};
use trellis_plan::{Addresses, CoordinatorSpec, NodeSpec, ResourceId, Spec};
use trellis_spec::Runtime;

use self::containers::Engine;
pub use self::superlink::admin_token;
use crate::packages;

const FLOWER_HOME: &str = "flower-home";

/// Everything about this machine that a recipe needs.
#[derive(Debug, Clone, PartialEq)]
pub struct PartContext {
    pub id: ResourceId,
    /// Our own program.
    pub program: PathBuf,
    /// The part's directory, deleted with the part.
    pub directory: PathBuf,
    /// Directory for state that survives restarts and replacements, within `directory`. Exists.
    pub state: PathBuf,
    /// Directory for packages and other files of all federations. May not exist.
    pub shared: PathBuf,
    /// Directory for models of native runs. Kept when the part is deleted.
    pub models: PathBuf,
    /// The ports of the coordinator; of a node, the port for its apps.
    pub ports: Ports,
    /// The address to listen on: loopback, or all.
    pub listen: IpAddr,
    /// `None` without TLS.
    pub tls: Option<TlsFiles>,
    /// The registered key of the node; `None` without node authentication.
    pub node_key: Option<PathBuf>,
    /// The node's GPUs of this machine, as `nvidia-smi` numbers them.
    pub gpus: Vec<u32>,
    /// Nodes: the address of the SuperLink for users and the driver, if it is on this machine.
    pub coordinator_http: Option<SocketAddr>,
}

/// The ports of a part. They are kept until it is deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    pub fleet: u16,
    pub control: u16,
    pub app: u16,
    pub http: u16,
    pub health: u16,
    /// 0 without a port for metrics.
    pub metrics: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate and key; only the coordinator has them.
    pub served: Option<ServedFiles>,
    /// The authorities that nodes and users trust; `None`: those of the system.
    pub trust: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// How to start and stop a part.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// Written before each start, readable by the owner only.
    pub files: BTreeMap<PathBuf, String>,
    /// Run one after the other before each start, for example to install packages. Meanwhile the part is `Starting`; if one fails,
    /// the part has failed.
    pub before: Vec<Program>,
    /// Run concurrently. The first one is the part itself. If one ends, the part has failed, and the others are terminated.
    pub programs: Vec<Program>,
    /// Run before each start and when the part is deleted, to clean up what signals do not terminate, such as containers.
    pub after: Vec<Program>,
    pub probe: Probe,
    /// The version of the program, if the program does not report it.
    pub version: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    pub args: Vec<OsString>,
    /// Added to the environment of the driver, from which variables that begin with `TRELLIS_` are removed.
    pub env: BTreeMap<String, OsString>,
}

/// How to check the readiness and status of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// Our SuperLink: by its HTTP API.
    SuperLink {
        address: SocketAddr,
        tls: bool,
        /// The authorities; `None`: those of the system.
        trust: Option<PathBuf>,
        /// File with the token of the first administrator.
        token: PathBuf,
    },
    /// Our SuperNode: by the socket in its state directory.
    SuperNode { socket: PathBuf },
    /// An official SuperLink: by its Control API.
    FlowerSuperLink {
        address: SocketAddr,
        transport: Transport,
        tls: bool,
        /// The authorities; `None`: those of the system.
        trust: Option<PathBuf>,
        /// Several interfaces may share one address.
        addresses: Addresses,
    },
    /// An official SuperNode: by its log, which contains the node id once the node is connected.
    FlowerSuperNode {
        /// File with the path of that log, and the offset at which the last start begins.
        note: PathBuf,
    },
}

/// The recipe of a coordinator, or all errors.
pub fn coordinator(spec: &CoordinatorSpec, context: &PartContext) -> Result<Recipe, Vec<String>> {
    if let Some(engine) = Engine::of(spec.containers) {
        return containers::coordinator(engine, spec, context);
    }
    superlink::recipe(spec, context, Programs::Machine)
}

/// The recipe of a node, or all errors.
pub fn node(spec: &NodeSpec, context: &PartContext) -> Result<Recipe, Vec<String>> {
    if let Some(engine) = Engine::of(spec.containers) {
        return containers::node(engine, spec, context);
    }
    Ok(supernode::recipe(spec, context, Programs::Machine))
}

pub fn recipe(spec: &Spec, context: &PartContext) -> Result<Recipe, Vec<String>> {
    match spec {
        Spec::Coordinator(spec) => coordinator(spec, context),
        Spec::Node(spec) => node(spec, context),
    }
}

impl PartContext {
    /// The address on which a program of this part listens.
    pub fn listens(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.listen, port)
    }

    /// The address of that port for clients of this machine.
    pub fn reached(&self, port: u16) -> SocketAddr {
        reached(self.listens(port))
    }

    /// The address for apps: loopback only, since it has no TLS.
    pub fn app_address(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.ports.app)
    }

    pub fn trust(&self) -> Option<&Path> {
        self.tls.as_ref().and_then(|tls| tls.trust.as_deref())
    }
}

fn reached(address: SocketAddr) -> SocketAddr {
    let ip = if address.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { address.ip() };
    SocketAddr::new(ip, address.port())
}

/// The version of a program that does not report it.
fn version(runtime: &Runtime) -> Option<String> {
    match runtime {
        Runtime::Trellis => None,
        Runtime::Flower(release) => Some(release.to_string()),
    }
}

/// Where the programs are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Programs {
    /// On this machine. Official ones are found or installed before each start.
    Machine,
    /// In a container image.
    Image,
}

impl Programs {
    /// The settings of both programs that depend on this machine.
    fn common(self, runtime: &Runtime, isolation: Isolation, context: &PartContext) -> Common {
        Common {
            // Best effort: old kernels support only a part of the sandbox.
            sandbox: (isolation == Isolation::Subprocess).then_some(Sandbox::BestEffort),
            home: Some(context.state.join(FLOWER_HOME)),
            search_path: (self == Programs::Machine).then(|| search_path(context)),
            program: runtime.program(),
            isolation,
            ..Common::default()
        }
    }

    fn program(self, launch: &Launch, context: &PartContext) -> Program {
        let name = launch.command[0];
        let path = match self {
            // The first word is the name of our program, and the second its command.
            _ if launch.command.len() > 1 => context.program.clone(),
            Programs::Machine => packages::programs(context).join(name),
            Programs::Image => PathBuf::from(name),
        };
        Program { path, args: launch.words(), env: launch.env.clone() }
    }

    fn provide(self, runtime: &Runtime, python: Option<&Path>, context: &PartContext) -> Vec<Program> {
        match (self, runtime) {
            (Programs::Machine, Runtime::Flower(release)) => vec![packages::provide(*release, python, context)],
            (Programs::Machine, Runtime::Trellis) | (Programs::Image, _) => Vec::new(),
        }
    }
}

/// PATH with the official programs, which start each other by name.
fn search_path(context: &PartContext) -> OsString {
    let mut path = OsString::from(packages::programs(context));
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    path
}

impl Program {
    pub fn new(path: impl Into<PathBuf>) -> Program {
        Program { path: path.into(), ..Program::default() }
    }

    pub fn arg(mut self, arg: impl Into<OsString>) -> Program {
        self.args.push(arg.into());
        self
    }

    /// `--name value`
    pub fn flag(self, name: &str, value: impl Into<OsString>) -> Program {
        self.arg(name).arg(value)
    }
}

#[cfg(test)]
mod tests;

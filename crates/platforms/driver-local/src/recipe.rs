//! What is started for a part, as plain data: programs with arguments and environment, and whom to ask whether they work.
//!
//! Pure: a recipe opens nothing and starts nothing. Ports, certificates and keys exist already; the [`Place`] says where they
//! are. Which arguments say so is in `trellis_flower::launch`.

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
pub struct Place {
    pub id: ResourceId,
    /// Our own program.
    pub program: PathBuf,
    /// The part's directory. Goes with the part.
    pub directory: PathBuf,
    /// Of what must survive restarts and replacements, within it. It exists.
    pub state: PathBuf,
    /// For packages and the like that parts of all federations share. May not exist.
    pub shared: PathBuf,
    /// For models of native runs. They stay when the part goes.
    pub models: PathBuf,
    /// Where the coordinator listens; a node has one for its apps.
    pub ports: Ports,
    /// The address to listen on: this machine's own, or all.
    pub listen: IpAddr,
    /// `None`: without TLS.
    pub tls: Option<TlsFiles>,
    /// The key that the SuperLink knows the node by, registered already; `None`: without node authentication.
    pub node_key: Option<PathBuf>,
    /// GPUs of this machine that are the node's own, as `nvidia-smi` counts them.
    pub gpus: Vec<u32>,
    /// Of a node: where users and the driver find its SuperLink, if that is on this machine.
    pub coordinator_http: Option<SocketAddr>,
}

/// Ports that were chosen for a part. They stay its own as long as it is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    pub fleet: u16,
    pub control: u16,
    pub app: u16,
    pub http: u16,
    pub health: u16,
    /// 0: no metrics are served apart.
    pub metrics: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and its key: the coordinator alone has them.
    pub served: Option<ServedFiles>,
    /// Whom nodes and users trust; `None`: whom the system trusts.
    pub trust: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// How a part comes to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// Written before each start, readable by their owner only.
    pub files: BTreeMap<PathBuf, String>,
    /// Run to their end, one after the other, before each start: installing packages, removing what a crash left. The part
    /// is `Starting` meanwhile; one that fails is the part's failure.
    pub before: Vec<Program>,
    /// Kept running together. The first is the part; where one ends, the part has failed and the others are ended too.
    pub programs: Vec<Program>,
    /// Run to their end where nothing may be left of it, before each start and when the part goes: for what no signal ends,
    /// like containers.
    pub after: Vec<Program>,
    pub probe: Probe,
    /// The version that it will say it has, where it cannot be asked.
    pub version: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    pub args: Vec<OsString>,
    /// Beside what the driver itself has in its environment, without its variables that begin with `TRELLIS_`.
    pub env: BTreeMap<String, OsString>,
}

/// Whom to ask whether a part works, and how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// A SuperLink of ours: its HTTP API.
    SuperLink {
        address: SocketAddr,
        tls: bool,
        /// `None`: whom the system trusts.
        trust: Option<PathBuf>,
        /// File with the token of the first administrator.
        token: PathBuf,
    },
    /// A SuperNode of ours: the socket in its state directory.
    SuperNode { socket: PathBuf },
    /// An official SuperLink: its Control API.
    FlowerSuperLink {
        address: SocketAddr,
        transport: Transport,
        tls: bool,
        /// `None`: whom the system trusts.
        trust: Option<PathBuf>,
        /// Several of its interfaces may be one.
        addresses: Addresses,
    },
    /// An official SuperNode: nobody can be asked, but it writes into its log what the SuperLink calls it.
    FlowerSuperNode {
        /// Says where that log is, and where it begins.
        note: PathBuf,
    },
}

/// The recipe of a coordinator, or everything that stands in its way.
pub fn coordinator(spec: &CoordinatorSpec, place: &Place) -> Result<Recipe, Vec<String>> {
    if let Some(engine) = Engine::of(spec.containers) {
        return containers::coordinator(engine, spec, place);
    }
    superlink::recipe(spec, place, Programs::Machine)
}

/// The recipe of a node, or everything that stands in its way.
pub fn node(spec: &NodeSpec, place: &Place) -> Result<Recipe, Vec<String>> {
    if let Some(engine) = Engine::of(spec.containers) {
        return containers::node(engine, spec, place);
    }
    Ok(supernode::recipe(spec, place, Programs::Machine))
}

pub fn recipe(spec: &Spec, place: &Place) -> Result<Recipe, Vec<String>> {
    match spec {
        Spec::Coordinator(spec) => coordinator(spec, place),
        Spec::Node(spec) => node(spec, place),
    }
}

impl Place {
    /// Where something of this part listens.
    pub fn listens(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.listen, port)
    }

    /// Where it is reached from this machine.
    pub fn reached(&self, port: u16) -> SocketAddr {
        reached(self.listens(port))
    }

    /// Where apps connect: without TLS, so from this machine only.
    pub fn app_address(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.ports.app)
    }

    pub fn trust(&self) -> Option<&Path> {
        self.tls.as_ref().and_then(|tls| tls.trust.as_deref())
    }
}

/// Where something that listens is reached from this machine.
fn reached(address: SocketAddr) -> SocketAddr {
    let ip = if address.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { address.ip() };
    SocketAddr::new(ip, address.port())
}

/// The version that a program will say it has, where it cannot be asked.
fn version(runtime: &Runtime) -> Option<String> {
    match runtime {
        Runtime::Trellis => None,
        Runtime::Flower(release) => Some(release.to_string()),
    }
}

/// Where the programs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Programs {
    /// On this machine; official ones are found or installed before each start.
    Machine,
    /// In an image that brings them.
    Image,
}

impl Programs {
    /// What both programs have because of this machine.
    fn common(self, runtime: &Runtime, isolation: Isolation, place: &Place) -> Common {
        Common {
            // As far as this machine supports it.
            sandbox: (isolation == Isolation::Subprocess).then_some(Sandbox::BestEffort),
            home: Some(place.state.join(FLOWER_HOME)),
            search_path: (self == Programs::Machine).then(|| search_path(place)),
            program: runtime.program(),
            isolation,
            ..Common::default()
        }
    }

    fn program(self, launch: &Launch, place: &Place) -> Program {
        let name = launch.command[0];
        let path = match self {
            // The first word is our program's name, and the second its command.
            _ if launch.command.len() > 1 => place.program.clone(),
            Programs::Machine => packages::programs(place).join(name),
            Programs::Image => PathBuf::from(name),
        };
        Program { path, args: launch.words(), env: launch.env.clone() }
    }

    fn provide(self, runtime: &Runtime, python: Option<&Path>, place: &Place) -> Vec<Program> {
        match (self, runtime) {
            (Programs::Machine, Runtime::Flower(release)) => vec![packages::provide(*release, python, place)],
            (Programs::Machine, Runtime::Trellis) | (Programs::Image, _) => Vec::new(),
        }
    }
}

/// The programs start each other by name.
fn search_path(place: &Place) -> OsString {
    let mut path = OsString::from(packages::programs(place));
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

//! A SuperNode.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::{
    Apps, Arguments, CLIENTAPPIO_PORT, Common, Launch, Listen, LogLevel, NODE_CONFIG, Probe, SuperExec, description,
    gives, port, value,
};
use crate::changes::{APPS_BY_HTTP, SUPEREXEC_TLS};
use crate::{Isolation, Program};

/// The status socket of our SuperNode, in its state directory.
const SOCKET: &str = "node.sock";

description! {
    pub struct SuperNode {
        pub common: Common,
        /// `host:port` of the SuperLink.
        pub superlink: String,
        pub trust: Trust,
        /// Private key that identifies the node.
        pub key: Option<PathBuf>,
        /// Isolation of ClientApps; `None`: the default of the program.
        pub apps: Option<Listen>,
        /// How reports name the node.
        pub name: Option<String>,
        pub state: Option<PathBuf>,
        /// The only app, instead of those of runs.
        pub client_app: Option<String>,
        pub node_config: Option<NodeConfig>,
        /// Maximum number of connection attempts; `None`: unlimited.
        pub max_retries: Option<u64>,
        pub max_wait_s: Option<u64>,
        pub backoff: Option<Backoff>,
        /// Of each app.
        pub limits: Limits,
        pub gpus: Gpus,
        /// Whether apps start if requested GPUs are missing; `None`: the default of the program.
        pub gpus_may_be_missing: Option<bool>,
        pub gpu_memory_fraction: Option<f64>,
    }
}

/// How a SuperNode or SuperExec verifies its SuperLink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trust {
    /// Without TLS.
    #[default]
    Plain,
    Authority(PathBuf),
    /// The authorities of the system, or of the user's own arguments.
    Default,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeConfig {
    /// A TOML file and its content.
    File(PathBuf, String),
    /// `key=value key=value`.
    Inline(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backoff {
    Fixed { seconds: u64 },
    Exponential { max_seconds: u64 },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    pub cpu_millis: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Gpus {
    /// GPUs that are visible to the program are visible to apps.
    #[default]
    Unmanaged,
    None,
    All,
    Count(u32),
    Listed(Vec<u32>),
}

impl Program {
    /// Whether the SuperNode serves ClientApps to other machines by default. An image of unknown release may not have the flag for
    /// that, which a SuperExec requires.
    pub fn has_open_clientappio(self, isolation: Isolation) -> bool {
        self.before(APPS_BY_HTTP) || self == Program::Unknown && isolation == Isolation::Process
    }
}

impl SuperNode {
    pub fn launch(&self) -> Launch {
        let is_trellis = self.common.program.is_trellis();
        let mut arguments = Arguments::default();
        arguments.set("--superlink", &self.superlink);
        arguments.set("--isolation", self.common.isolation.name());
        match &self.trust {
            Trust::Plain => arguments.flag("--insecure"),
            Trust::Authority(file) => arguments.path("--root-certificates", &**file),
            Trust::Default => {}
        }
        match self.common.program.since(APPS_BY_HTTP) {
            true => arguments.host_and_port(self.apps),
            false => arguments.address("--clientappio-api-address", self.apps, CLIENTAPPIO_PORT),
        }
        arguments.path("--auth-supernode-private-key", self.key.as_deref());
        arguments.option("--max-retries", self.max_retries);
        if is_trellis {
            self.trellis(&mut arguments);
        } else {
            arguments.option("--max-wait-time", self.max_wait_s);
        }
        arguments.option("--health-server-address", self.common.health);
        match &self.node_config {
            Some(NodeConfig::File(path, _)) => arguments.path(NODE_CONFIG, &**path),
            Some(NodeConfig::Inline(pairs)) => arguments.set(NODE_CONFIG, pairs),
            None => {}
        }
        let mut launch = self.common.launch(["trellis", "supernode"], "flower-supernode", arguments, self.probe());
        if let Some(NodeConfig::File(path, text)) = &self.node_config {
            launch.files.insert(path.clone(), text.clone());
        }
        if !is_trellis {
            launch.env = self.official_environment();
        }
        launch
    }

    fn trellis(&self, arguments: &mut Arguments) {
        arguments.option("--max-wait-time", self.max_wait_s.map(|seconds| format!("{seconds}s")));
        arguments.option("--name", self.name.as_ref());
        arguments.path("--state-dir", self.state.as_deref());
        arguments.option("--client-app", self.client_app.as_ref());
        self.common.trellis(arguments);
        match self.backoff {
            None => {}
            Some(Backoff::Fixed { seconds }) => {
                arguments.set("--backoff", "fixed");
                arguments.set("--backoff-first", format_args!("{seconds}s"));
            }
            Some(Backoff::Exponential { max_seconds }) => {
                arguments.set("--backoff", "exponential");
                arguments.set("--backoff-max", format_args!("{max_seconds}s"));
            }
        }
        let cpus = self.limits.cpu_millis.map(|millis| format!("{}.{:03}", millis / 1000, millis % 1000));
        arguments.option("--app-cpus", cpus);
        arguments.option("--app-memory", self.limits.memory_bytes);
        arguments.option("--disk-limit", self.limits.disk_bytes);
        match &self.gpus {
            Gpus::Unmanaged => {}
            Gpus::None => arguments.set("--gpus", "none"),
            Gpus::All => arguments.set("--gpus", "all"),
            Gpus::Count(count) => arguments.set("--gpus", count),
            Gpus::Listed(list) => arguments.set("--cuda-visible-devices", joined(list)),
        }
        arguments.option("--gpu-missing", self.gpus_may_be_missing.map(|may| if may { "warn" } else { "refuse" }));
        arguments.option("--gpu-memory-fraction", self.gpu_memory_fraction);
    }

    fn official_environment(&self) -> std::collections::BTreeMap<String, std::ffi::OsString> {
        // At this level it writes that it is connected.
        let enough = |level| if level == LogLevel::Debug { level } else { LogLevel::Info };
        let mut env = self.common.environment(self.common.log_level.map(enough));
        let visible = match &self.gpus {
            Gpus::None => Some(String::new()),
            Gpus::Listed(list) => Some(joined(list)),
            Gpus::Unmanaged | Gpus::All | Gpus::Count(_) => None,
        };
        if let Some(visible) = visible {
            env.insert("CUDA_VISIBLE_DEVICES".to_owned(), visible.into());
        }
        env
    }

    fn probe(&self) -> Probe {
        let socket = self.state.as_ref().filter(|_| self.common.program.is_trellis()).map(|state| state.join(SOCKET));
        match (self.common.health(), socket) {
            (Some(port), _) => Probe::Health(port),
            (None, Some(socket)) => Probe::Socket(socket),
            (None, None) => Probe::Log,
        }
    }

    /// The SuperExec beside an official SuperNode of the same release, for process isolation.
    pub fn superexec(&self, address: SocketAddr) -> Option<SuperExec> {
        self.common.superexec(Apps::Client, address, self.apps_authority(self.common.program), self.launch().env)
    }

    /// The port at which a SuperExec finds ClientApps to start.
    pub fn apps_port(&self) -> u16 {
        let given = &self.common.extra_args;
        let usual = self.apps.and_then(|apps| apps.port).unwrap_or(CLIENTAPPIO_PORT);
        let flag = if gives(given, "--port") { "--port" } else { "--clientappio-api-address" };
        port(given, flag, usual)
    }

    /// The authority that a SuperExec trusts, if the user lets the node serve its apps with TLS.
    pub fn apps_authority(&self, superexec: Program) -> Option<PathBuf> {
        let given = |flag| value(&self.common.extra_args, flag).map(PathBuf::from);
        let file = given("--appio-ssl-ca-certfile").or_else(|| given("--ssl-ca-certfile"));
        file.filter(|_| superexec.since(SUPEREXEC_TLS))
    }
}

fn joined(list: &[u32]) -> String {
    list.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

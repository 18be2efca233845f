//! Settings: validated values with all defaults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trellis_flower::Isolation;
use trellis_flower::launch::LogLevel;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub common: Common,
    pub role: RoleSettings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    SuperLink,
    SuperNode,
    Gateway,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(clippy::large_enum_variant)]
pub enum RoleSettings {
    SuperLink(SuperLinkSettings),
    SuperNode(SuperNodeSettings),
    Gateway(GatewaySettings),
}

/// Settings of every role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Common {
    /// Part and generation of the assignment, if there is a controller.
    pub generation: Option<String>,
    pub part: Option<String>,
    pub runtime: Runtime,
    /// Release of the official programs, equal on both sides. `None` means the release of the image.
    pub flower_version: Option<String>,
    #[serde(with = "trellis_flower::isolation::lowercase")]
    pub isolation: Isolation,
    pub log_level: LogLevel,
    pub json_logs: bool,
    pub tls: bool,
    pub keepalive: Keepalive,
    pub report_ready: bool,
    /// A change waits until no round is running.
    pub defer_while_training: bool,
    /// Networks behind a gateway: destination, next hop.
    pub routes: Vec<Route>,
    /// Program that must exit with 0 before the VM is ready.
    pub ready_script: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// Programs of Trellis.
    Trellis,
    /// The official packages, or their images.
    Flower { by: FlowerBy },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowerBy {
    Packages,
    Docker,
    Podman,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keepalive {
    pub interval: Duration,
    pub timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// `10.66.0.0/24`
    pub destination: String,
    pub via: std::net::IpAddr,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SuperLinkSettings {
    pub fleet: SocketAddr,
    pub control: SocketAddr,
    /// API of Flower 1.37 and later, and of our own calls; nodes use it since 1.40.
    pub http: SocketAddr,
    /// Below the state directory.
    pub database: String,
    pub certificates: Certificates,
    pub node_auth: bool,
    /// Token of the first administrator, if a controller chose it.
    pub admin_token: Option<String>,
    /// `None` if there are no metrics.
    pub metrics_port: Option<u16>,
    pub training: Training,
    /// App that is submitted with `training` when enough nodes are connected. If `None`, `training` contains the defaults of
    /// all runs.
    pub use_case: Option<UseCase>,
    /// Networks that may reach the Fleet API beside those of the VM.
    pub allowed_networks: Vec<String>,
    /// Device for the state that outlives the VM; `None` means the VM's own disk.
    pub state_disk: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Certificates {
    /// The authority in the VM issues and renews them.
    Own { extra: Vec<Name> },
    /// PEM files, validated together: chain, key, names, dates.
    Operator { ca: String, certificate: String, key: String },
}

/// A name that a certificate covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Name {
    Ip(std::net::IpAddr),
    Dns(String),
}

/// Settings of runs: values of the user, and defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// Keys and values of the run config (`num-server-rounds`, `strategy`, ...) as TOML values.
    pub config: BTreeMap<String, toml::Value>,
    /// The keys that the user set.
    pub said: Vec<String>,
    pub min_available: u32,
    pub checkpoints: Option<Checkpoints>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoints {
    pub every_rounds: u32,
    pub directory: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UseCase {
    ImageClassification,
    AnomalyDetection,
    LlmFineTuning,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SuperNodeSettings {
    /// `host:port`; `None` if the node discovers it through OneGate.
    pub coordinator: Option<String>,
    /// PEM; `None` if the node discovers it through OneGate.
    pub trust: Option<String>,
    /// TOML values. `partition-id` is added if it is missing.
    pub node_config: BTreeMap<String, toml::Value>,
    pub max_retries: Limit,
    pub max_wait: Limit,
    pub framework: Framework,
    pub use_case: Option<UseCase>,
    pub gpu: Option<Gpu>,
    pub dcgm: bool,
    pub backoff: Backoff,
    /// Token for the join call, with node authentication.
    pub join_token: Option<String>,
    /// App of our own program, `native:mlp`, instead of the apps of runs.
    pub client_app: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    Unlimited,
    At(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Framework {
    None,
    PyTorch,
    TensorFlow,
    Sklearn,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// `None` means all GPUs.
    pub visible: Option<Vec<u32>>,
    pub memory_fraction: f64,
    /// Without a GPU: continue with the CPU, or do not become ready.
    pub fallback_to_cpu: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub exponential: bool,
    #[serde(rename = "longest")]
    pub max_interval: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewaySettings {
    pub private_key: String,
    /// Address in the tunnel, `10.66.0.2/24`.
    pub local_address: String,
    pub listen_port: u16,
    pub mtu: u16,
    pub peers: Vec<Peer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub public_key: String,
    /// `host:port`; `None` if the peer connects.
    pub endpoint: Option<String>,
    pub allowed_ips: Vec<String>,
    pub keepalive_s: Option<u16>,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::SuperLink, Role::SuperNode, Role::Gateway];

    pub fn name(self) -> &'static str {
        match self {
            Role::SuperLink => "superlink",
            Role::SuperNode => "supernode",
            Role::Gateway => "gateway",
        }
    }

    /// Parses a role, as in `/etc/trellis/role`.
    pub fn parse(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name().eq_ignore_ascii_case(name.trim()))
    }
}

impl Framework {
    pub fn name(self) -> &'static str {
        match self {
            Framework::None => "none",
            Framework::PyTorch => "pytorch",
            Framework::TensorFlow => "tensorflow",
            Framework::Sklearn => "sklearn",
        }
    }

    /// Name of the Python module.
    pub fn module(self) -> Option<&'static str> {
        match self {
            Framework::None => None,
            Framework::PyTorch => Some("torch"),
            Framework::TensorFlow => Some("tensorflow"),
            Framework::Sklearn => Some("sklearn"),
        }
    }
}

impl UseCase {
    pub fn name(self) -> &'static str {
        match self {
            UseCase::ImageClassification => "image-classification",
            UseCase::AnomalyDetection => "anomaly-detection",
            UseCase::LlmFineTuning => "llm-fine-tuning",
        }
    }
}

impl Settings {
    pub fn role(&self) -> Role {
        match self.role {
            RoleSettings::SuperLink(_) => Role::SuperLink,
            RoleSettings::SuperNode(_) => Role::SuperNode,
            RoleSettings::Gateway(_) => Role::Gateway,
        }
    }
}

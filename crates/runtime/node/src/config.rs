//! What a SuperNode must be told. Checked by whoever fills it in; here nothing is parsed.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use trellis_client::Target;
pub use trellis_client::fleet::retry::Backoff;
use trellis_wire::proto;

use crate::objects::PulledObjects;

#[derive(Debug, Clone)]
pub struct Config {
    pub superlink: Target,
    pub transport: TransportChoice,
    pub keepalive: Keepalive,
    pub retry: Retry,
    /// Everything that must survive a restart: key, messages, replies, contexts, apps.
    pub state_dir: PathBuf,
    /// The state does not outlive the process: nothing is written durably, and little at all. Nodes of one process share
    /// the objects that they pull.
    pub temporary: Option<PulledObjects>,
    /// The key that the node is known by; `None`: one in the state directory, made at the first start. A node whose key is
    /// given was registered by somebody else, and does not register itself.
    pub key: Option<PathBuf>,
    /// What the node is called in lists; `None`: as its owner calls it, if anyhow.
    pub name: Option<String>,
    pub node_config: BTreeMap<String, proto::Scalar>,
    pub apps: Apps,
    pub resources: Resources,
    /// Ed25519 keys (OpenSSH lines) by name; where there are any, only apps that one of them signed are carried out.
    pub trusted_entities: BTreeMap<String, String>,
    pub health_address: Option<SocketAddr>,
    pub metrics_address: Option<SocketAddr>,
    pub limits: Limits,
}

impl Config {
    /// A node of this SuperLink with the default settings, and with its state in a directory.
    pub fn new(superlink: Target, state_dir: PathBuf) -> Config {
        Config {
            superlink,
            transport: TransportChoice::Auto,
            keepalive: Keepalive::default(),
            retry: Retry {
                max_retries: None,
                max_wait: None,
                backoff: Backoff::Exponential { first: FIRST_BACKOFF, cap: MAX_BACKOFF },
            },
            state_dir,
            temporary: None,
            key: None,
            name: None,
            node_config: BTreeMap::new(),
            apps: Apps::default(),
            resources: Resources::default(),
            trusted_entities: BTreeMap::new(),
            health_address: None,
            metrics_address: None,
            limits: Limits::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportChoice {
    /// Found out at each connection.
    Auto,
    Grpc,
    Http,
}

/// Of HTTP/2 connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// A ping after so much silence; `None`: none.
    pub interval: Option<Duration>,
    /// Without an answer for so long the connection is given up.
    pub timeout: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { interval: Some(Duration::from_secs(30)), timeout: Duration::from_secs(20) }
    }
}

/// Default of the first pause between retries.
pub const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// Default of the longest pause. Below the 60 s after which a SuperLink counts a silent node as gone: one that comes back
/// is found in time.
pub const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// How a link that does not work is tried again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    /// Tries after the first one that failed, before the node gives up; `None`: it never does.
    pub max_retries: Option<u64>,
    /// Time without a working link before the node gives up; `None`: it never does.
    pub max_wait: Option<Duration>,
    pub backoff: Backoff,
}

/// Who carries out instructions.
#[derive(Debug, Clone)]
pub struct Apps {
    pub mode: AppMode,
    /// Apps at work at the same time, each for another run.
    pub max_concurrent: usize,
    /// Where official app processes find this node; port 0: any free one.
    pub address: SocketAddr,
    /// Python whose `flwr` the apps use.
    pub python: PathBuf,
    /// Without it the node does not start: its operator named it.
    pub python_required: bool,
    /// Where apps keep their own things; `None`: in the state directory.
    pub flwr_home: Option<PathBuf>,
    /// Time for one instruction; `None`: as long as its sender waits.
    pub timeout: Option<Duration>,
    pub allow_dependency_installation: bool,
    /// Sandbox of the apps that this node starts.
    pub sandbox: trellis_sandbox::Settings,
    /// Secret that SuperExecs prove themselves with, in process isolation.
    pub superexec_secret: Option<PathBuf>,
}

impl Default for Apps {
    fn default() -> Self {
        Self {
            mode: AppMode::Warm(WarmSettings::default()),
            max_concurrent: 1,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            python: "python3".into(),
            python_required: false,
            flwr_home: None,
            timeout: None,
            allow_dependency_installation: false,
            sandbox: trellis_sandbox::Settings::default(),
            superexec_secret: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum AppMode {
    /// Python workers that load an app once (subprocess isolation, the default).
    Warm(WarmSettings),
    /// A new official `flwr-clientapp` for each instruction (subprocess isolation).
    PerMessage,
    /// The operator runs `flower-superexec` (process isolation).
    Process,
    /// An app that is part of this program, by name and settings.
    Native { name: String, settings: BTreeMap<String, String> },
}

#[derive(Debug, Clone, PartialEq)]
pub struct WarmSettings {
    /// A worker that is not needed for so long is ended.
    pub idle: Duration,
    /// A worker above this resident size is replaced after its instruction; `None`: no limit.
    pub recycle_bytes: Option<u64>,
    /// Workers that are kept with nothing to do, each for its run.
    pub max_idle: usize,
    pub spare: Spare,
}

impl Default for WarmSettings {
    fn default() -> Self {
        Self { idle: Duration::from_secs(600), recycle_bytes: None, max_idle: 2, spare: Spare::EveryRun }
    }
}

/// An interpreter that is ready before a run needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spare {
    None,
    /// The one of the check at the start: for a node that serves one run.
    FirstRun,
    EveryRun,
}

/// What apps may use of the machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resources {
    pub gpus: Gpus,
    /// A GPU that was asked for is missing: refuse to start, or go on without.
    pub gpu_missing: WhenMissing,
    /// Share of a GPU's memory that an app may take, above 0 and up to 1.
    pub gpu_memory_fraction: Option<f64>,
    /// CPUs for each app; 1.5 is one and a half.
    pub app_cpus: Option<f64>,
    /// Memory for each app.
    pub app_memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Gpus {
    /// As the environment of the node says.
    #[default]
    Unset,
    None,
    All,
    Count(u32),
    /// Indices or UUIDs, as CUDA_VISIBLE_DEVICES takes them.
    These(Vec<String>),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenMissing {
    #[default]
    Warn,
    Refuse,
}

#[derive(Debug, Clone)]
pub struct Limits {
    /// For messages, replies and their objects. While it is exceeded no new instruction is taken.
    pub disk_bytes: u64,
    /// One bundle of an app, unpacked.
    pub app_bytes: u64,
    /// Objects of one message under way at once.
    pub parallel_objects: usize,
    /// Bytes of objects a second, each way; `None`: no limit.
    pub bandwidth: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        // Flower refuses bundles above 10 MiB; unpacked they are text.
        Self { disk_bytes: 20 << 30, app_bytes: 256 << 20, parallel_objects: 8, bandwidth: None }
    }
}

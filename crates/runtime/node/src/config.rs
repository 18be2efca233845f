//! The configuration of a SuperNode. The caller has validated it; nothing is parsed here.

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
    /// Everything that survives a restart: key, messages, replies, contexts, apps.
    pub state_dir: PathBuf,
    /// The state ends with the process: the node writes nothing durably and keeps small objects in memory. Nodes of one process
    /// share pulled objects.
    pub temporary: Option<PulledObjects>,
    /// The key of the node; `None`: one in the state directory, created at the first start. A node with a given key was
    /// registered by somebody else and does not register itself.
    pub key: Option<PathBuf>,
    /// The name of the node in lists; `None`: the name that its owner has given it, if any.
    pub name: Option<String>,
    pub node_config: BTreeMap<String, proto::Scalar>,
    pub apps: Apps,
    pub resources: Resources,
    /// Ed25519 keys (OpenSSH lines) by name. If there are any, only apps signed by one of them are executed.
    pub trusted_entities: BTreeMap<String, String>,
    pub health_address: Option<SocketAddr>,
    pub metrics_address: Option<SocketAddr>,
    pub limits: Limits,
}

impl Config {
    /// The default configuration of a node of this SuperLink.
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
    /// Detected at each connection.
    Auto,
    Grpc,
    Http,
}

/// HTTP/2 keepalive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// A ping is sent after this time without traffic; `None`: never.
    pub interval: Option<Duration>,
    /// The connection is closed if a ping is not answered within this time.
    pub timeout: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { interval: Some(Duration::from_secs(30)), timeout: Duration::from_secs(20) }
    }
}

/// The default delay before the first retry.
pub const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The default maximum delay. It is below the 60 s after which a SuperLink considers a silent node gone, so a returning node is
/// found in time.
pub const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// How calls over a broken link are retried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    /// Retries before the node gives up; `None`: unlimited.
    pub max_retries: Option<u64>,
    /// Time without a working link before the node gives up; `None`: unlimited.
    pub max_wait: Option<Duration>,
    pub backoff: Backoff,
}

/// How instructions are executed.
#[derive(Debug, Clone)]
pub struct Apps {
    pub mode: AppMode,
    /// Concurrent apps, each for another run.
    pub max_concurrent: usize,
    /// The address of the API for official app processes; port 0: any free one.
    pub address: SocketAddr,
    /// The Python with the `flwr` that apps use.
    pub python: PathBuf,
    /// Whether the node refuses to start without it, because the operator named it.
    pub python_required: bool,
    /// The directory for the apps' own files; `None`: in the state directory.
    pub flwr_home: Option<PathBuf>,
    /// The timeout of one instruction; `None`: the TTL of its message.
    pub timeout: Option<Duration>,
    pub allow_dependency_installation: bool,
    /// The sandbox of apps that the node starts.
    pub sandbox: trellis_sandbox::Settings,
    /// The secret that authenticates SuperExecs, in process isolation.
    pub superexec_secret: Option<PathBuf>,
    /// The output of apps stays on this machine.
    pub keeps_logs: bool,
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
            keeps_logs: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum AppMode {
    /// Python workers that load an app once (subprocess isolation; the default).
    Warm(WarmSettings),
    /// A new official `flwr-clientapp` for each instruction (subprocess isolation).
    PerMessage,
    /// The operator runs `flower-superexec` (process isolation).
    Process,
    /// A built-in app, by name and settings.
    Native { name: String, settings: BTreeMap<String, String> },
}

#[derive(Debug, Clone, PartialEq)]
pub struct WarmSettings {
    /// A worker that is idle for this long is stopped.
    pub idle: Duration,
    /// A worker above this resident size is replaced after its instruction; `None`: no limit.
    pub recycle_bytes: Option<u64>,
    /// Idle workers, each for its run.
    pub max_idle: usize,
    pub spare: Spare,
}

impl Default for WarmSettings {
    fn default() -> Self {
        Self { idle: Duration::from_secs(600), recycle_bytes: None, max_idle: 2, spare: Spare::EveryRun }
    }
}

/// An interpreter that is started before a run needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spare {
    None,
    /// The interpreter of the check at the start: for a node that serves one run.
    FirstRun,
    EveryRun,
}

/// What apps may use of the machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resources {
    pub gpus: Gpus,
    /// Whether the node starts if a requested GPU is missing.
    pub gpu_missing: WhenMissing,
    /// The fraction of a GPU's memory that an app may use, above 0 and up to 1.
    pub gpu_memory_fraction: Option<f64>,
    /// CPUs per app; 1.5 is one and a half.
    pub app_cpus: Option<f64>,
    /// Memory per app.
    pub app_memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Gpus {
    /// Determined by the environment of the node.
    #[default]
    Unset,
    None,
    All,
    Count(u32),
    /// Indices or UUIDs, as in CUDA_VISIBLE_DEVICES.
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
    /// The disk space of messages, replies and their objects. Above it, no new instruction is taken.
    pub disk_bytes: u64,
    /// The size of one unpacked app.
    pub app_bytes: u64,
    /// Concurrent object transfers of one message.
    pub parallel_objects: usize,
    /// Bytes of objects per second and direction; `None`: no limit.
    pub bandwidth: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        // Flower refuses bundles above 10 MiB; they contain text.
        Self { disk_bytes: 20 << 30, app_bytes: 256 << 20, parallel_objects: 8, bandwidth: None }
    }
}

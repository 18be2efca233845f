//! The validated configuration of a SuperLink.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub use trellis_flower::Isolation;
pub use trellis_front::Keepalive;
pub use trellis_sandbox::Settings as SandboxSettings;

#[derive(Debug, Clone, Default)]
pub struct Config {
    /// `host:port` of the Control API (the `flwr` command line).
    pub control_address: String,
    /// `host:port` of the Fleet API (SuperNodes).
    pub fleet_address: String,
    /// `host:port` of the ServerAppIo API (ServerApps and SuperExecs), never TLS. Apps of every version work over it.
    pub serverappio_address: String,
    /// `host:port` of the HTTP API: Control, Fleet and Runtime as Flower 1.35 and later speak them, health and metrics.
    pub http_address: String,
    /// `host:port` where metrics are served without TLS, beside the HTTP API.
    pub metrics_address: Option<String>,
    /// `host:port` of the plaintext health service, if wanted.
    pub health_address: Option<String>,
    /// TLS for Control, Fleet and HTTP; `None` is plaintext.
    pub tls: Option<TlsFiles>,
    /// Names and addresses by which clients reach this SuperLink; the certificate must cover them.
    pub endpoints: Vec<String>,
    /// Additional accepted host names of HTTP requests, beside `endpoints` and the names of the certificate.
    pub allowed_hosts: Vec<String>,
    /// Control calls require the token of an account.
    pub accounts: bool,
    /// The component that starts ServerApps.
    pub isolation: Isolation,
    /// The Python interpreter that runs ServerApps; `None`: that of the `flwr-serverapp` on PATH.
    pub python: Option<PathBuf>,
    /// ServerApps may install their dependencies from a package index (Flower 1.30 and later).
    pub dependency_installation: bool,
    /// Sandbox of Python ServerApps on this machine. Their network is never restricted.
    pub sandbox: SandboxSettings,
    /// The program of native runs, which the SuperLink starts for every `isolation`; `None`: another launcher starts
    /// them.
    pub native_app: Option<NativeApp>,
    /// The secret with which SuperExecs sign; `None`: `app_trust` decides which callers may take a run.
    pub superexec_secret: Option<PathBuf>,
    /// Which SuperExecs and ServerApps without a secret are trusted.
    pub app_trust: AppTrust,
    /// The file with the first administrator's token; `None`: generated in the state directory.
    pub admin_token: Option<PathBuf>,
    /// Defaults of runs, which override those of their apps.
    pub run_defaults: trellis_wire::fab::Config,
    /// Nodes must be registered through the Control API first.
    pub supernode_auth: bool,
    pub keepalive: Keepalive,
    pub limits: Limits,
}

#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub ca_certificate: PathBuf,
}

/// The program of native ServerApps. It gets its run, token and address as environment variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeApp {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// Directory of models, with a directory for each run; `None`: in the state directory.
    pub models: Option<PathBuf>,
}

/// Which SuperExecs without a secret may take runs, and which ServerApps without a token (Flower 1.25 to 1.27) may act
/// for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AppTrust {
    /// Callers of the SuperLink's own user, and of root, on this machine.
    #[default]
    User,
    /// Callers of every user of this machine: for a pod, whose network has no other users.
    Machine,
    /// Every caller that can reach the ServerAppIo port.
    Network,
}

/// Limits, each with its unit. The defaults suit a machine with 2 GiB of free memory.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum size of a gRPC message except objects, which are streamed.
    pub message_bytes: usize,
    /// Maximum size of an object.
    pub object_bytes: u64,
    /// Maximum number of bytes of request bodies in memory, over all peers; one peer gets a part of it.
    pub buffered_bytes: usize,
    /// Memory for recently used objects.
    pub object_cache_bytes: u64,
    /// Maximum number of concurrent requests without held polls; further requests are refused with UNAVAILABLE.
    pub requests_in_flight: usize,
    /// Maximum number of concurrent requests per connection.
    pub requests_per_connection: u32,
    /// Maximum number of concurrent ServerApps of this SuperLink; further runs stay pending. `None`: by the cores and
    /// the memory of the machine.
    pub server_apps: Option<usize>,
    /// Maximum number of open connections from one address, on each port. Loopback connections are not counted.
    pub connections_per_address: usize,
    /// Hold time of a node's pull without an instruction.
    pub hold_node_pull: Duration,
    /// Hold time over HTTP, where clients time out after 30 s.
    pub hold_node_pull_http: Duration,
    /// Hold time of a pull of a Flower ServerApp with missing replies. `send_and_receive` checks its timeout only
    /// between two pulls, so a long hold would exceed it.
    pub hold_app_pull: Duration,
    /// Hold time for native ServerApps, which measure their timeouts themselves.
    pub hold_native_app_pull: Duration,
    /// Hold time of a SuperExec's request for runs.
    pub hold_launch_poll: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 512 << 20,
            object_bytes: 2 << 30,
            buffered_bytes: 64 << 20,
            object_cache_bytes: 64 << 20,
            requests_in_flight: 4096,
            requests_per_connection: 128,
            server_apps: None,
            connections_per_address: trellis_front::listen::CONNECTIONS_PER_ADDRESS,
            hold_node_pull: Duration::from_secs(120),
            hold_node_pull_http: Duration::from_secs(25),
            hold_app_pull: Duration::from_millis(300),
            hold_native_app_pull: Duration::from_secs(20),
            hold_launch_poll: Duration::from_secs(20),
        }
    }
}

//! A checked federation: the content of a document with all defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trellis_flower::{Isolation, Program, Release};

use crate::expression::Expression;
use crate::schedule::Schedule;
use crate::site_kind::SiteConfig;

#[derive(Debug, Clone, PartialEq)]
pub struct Federation {
    pub name: Name,
    pub runtime: Runtime,
    pub coordinator: Coordinator,
    pub security: Security,
    /// At least one. The first is the default site.
    pub sites: Vec<Site>,
    /// At least one.
    pub pools: Vec<Pool>,
    pub training: Training,
    pub monitoring: Monitoring,
    pub upgrade: Upgrade,
}

impl Federation {
    /// Visits every path on the machine of the control plane, with its field in the document.
    pub fn visit_paths(&mut self, mut visit: impl FnMut(PathField, &mut PathBuf)) {
        let plain = |name: &str| PathField { name: format!("spec.{name}"), is_program: false };
        let program = |name: &str| PathField { is_program: true, ..plain(name) };
        let coordinator = &mut self.coordinator;
        if let Some(python) = &mut coordinator.python {
            visit(program("coordinator.python"), python);
        }
        if let Persistence::Disk { path: Some(path), .. } = &mut coordinator.persistence {
            visit(plain("coordinator.persistence.path"), path);
        }
        if let Tls::Files { certificate, key, trust } = &mut self.security.tls {
            for (field, path) in [("certificate", certificate), ("key", key), ("trust", trust)] {
                visit(plain(&format!("security.tls.{field}")), path);
            }
        }
        for (index, site) in self.sites.iter_mut().enumerate() {
            let kind = site.config.kind();
            site.config.visit_paths(&mut |field, path| visit(plain(&format!("sites[{index}].{kind}.{field}")), path));
        }
        for (index, pool) in self.pools.iter_mut().enumerate() {
            if let Some(python) = &mut pool.python {
                visit(program(&format!("pools[{index}].python")), python);
            }
        }
    }
}

/// A field of a document that holds a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathField {
    pub name: String,
    /// A name without a directory is searched in PATH.
    pub is_program: bool,
}

/// A name that every driver supports: 1 to 40 of a-z, 0-9 and `-`, beginning with a letter, not ending with `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Name(String);

impl Name {
    pub const MAX_CHARS: usize = 40;

    /// `None` if the text is not a valid name.
    pub fn new(text: &str) -> Option<Name> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let sound = text.len() <= Self::MAX_CHARS
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && !text.ends_with('-')
            && text.chars().all(allowed);
        sound.then(|| Name(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Name, String> {
        Name::new(&text).ok_or_else(|| format!("`{text}` is not a name"))
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The programs to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Runtime {
    Trellis,
    /// The official packages or images of this version.
    Flower(Release),
}

impl Runtime {
    pub fn program(&self) -> Program {
        match self {
            Runtime::Trellis => Program::Trellis,
            Runtime::Flower(release) => Program::Flower(*release),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Coordinator {
    /// Index into the sites.
    pub site: usize,
    pub image: Option<String>,
    pub endpoints: Endpoints,
    pub persistence: Persistence,
    pub isolation: Isolation,
    pub resources: Resources,
    pub env: BTreeMap<String, String>,
    /// The interpreter of Python ServerApps, if the driver starts processes.
    pub python: Option<PathBuf>,
    pub extra_args: Vec<String>,
}

/// `None`: the driver chooses a free port and keeps it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    pub fleet: Option<NonZeroU16>,
    pub control: Option<NonZeroU16>,
    pub app: Option<NonZeroU16>,
    pub http: Option<NonZeroU16>,
    /// Names and addresses under which others reach the coordinator; its certificate covers them.
    pub advertise: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Persistence {
    /// On disk; `None`: a directory that the driver chooses.
    Disk { path: Option<PathBuf>, size_bytes: Option<u64> },
    /// Lost when the process ends.
    Memory,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    pub tls: Tls,
    /// Only nodes with registered keys are accepted.
    pub node_auth: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tls {
    /// Our own authority issues and renews certificates.
    Auto,
    Files {
        certificate: PathBuf,
        key: PathBuf,
        trust: PathBuf,
    },
    Off,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Site {
    pub name: Name,
    /// The driver of the site, with its fields.
    #[serde(rename = "driver")]
    pub config: SiteConfig,
    /// Maximum number of nodes; `None`: no limit.
    pub max_nodes: Option<u32>,
    /// Connection between the site and the coordinator's site.
    pub link: Link,
    /// Idle timeout of firewalls on the path; `None`: there is none.
    pub idle_timeout: Option<Duration>,
}

/// Connection between a site and the coordinator's site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Link {
    /// By the addresses that the coordinator advertises.
    Direct,
    /// Through a tunnel between gateways, one at each site.
    WireGuard(WireGuardLink),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireGuardLink {
    /// `host:port` of the site's gateway for others; `None`: the gateway is behind NAT and connects to them.
    pub endpoint: Option<String>,
    pub listen_port: u16,
    /// Networks of the site that are routed through the tunnel.
    pub networks: Vec<String>,
    pub mtu: u16,
    /// 0: no keepalive packets.
    pub keepalive_s: u16,
    /// Addresses of the gateways in the tunnel. Only set at the coordinator's site.
    pub subnet: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Containers {
    /// Processes.
    No,
    Podman,
    Docker,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    pub name: Name,
    /// Index into the sites.
    pub site: usize,
    /// Desired nodes, within the bounds of `scaling`.
    pub count: u32,
    /// Indices of nodes that take no new work.
    pub drained: BTreeSet<u32>,
    pub scaling: Option<Scaling>,
    pub image: Option<String>,
    pub framework: Option<Framework>,
    /// A built-in ClientApp (`native:mlp`), used instead of the apps of runs.
    pub client_app: Option<String>,
    pub isolation: Isolation,
    pub resources: Resources,
    pub gpu: Option<Gpu>,
    pub node_config: BTreeMap<String, ConfigTemplate>,
    pub env: BTreeMap<String, String>,
    pub python: Option<PathBuf>,
    pub extra_args: Vec<String>,
}

/// A value of the node config. Text may contain `{index} {replicas} {pool} {site} {node}`.
#[derive(Debug, Clone, PartialEq)]
pub enum ConfigTemplate {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Framework {
    PyTorch,
    TensorFlow,
    Sklearn,
}

/// Limits of one node or of the coordinator; `None`: no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    pub cpu_millis: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    pub vendor: GpuVendor,
    pub count: u32,
    /// Share of each GPU's memory that an app may use, above 0 and up to 1.
    pub memory_fraction: Option<f64>,
    /// Whether the node uses the CPU if there is no GPU, or fails.
    pub fallback_to_cpu: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GpuVendor {
    Nvidia,
    Amd,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Scaling {
    pub min: u32,
    pub max: u32,
    pub policy: ScalingPolicy,
    /// Minimum time between two changes of the count.
    pub cooldown: Duration,
    /// Only with policy `Manual`. Rules on metrics are supported at OpenNebula sites only.
    pub rules: Vec<SiteRule>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ScalingPolicy {
    /// The count of the document within bounds, or that of the rules.
    Manual,
    /// This many nodes for each active run.
    PerRun { nodes: u32 },
    /// Removes nodes that are idle for this long.
    Idle { after: Duration },
    /// Adds a node while rounds take longer than this.
    RoundTime { longest: Duration },
    /// As many nodes as runs wait for.
    Waiting,
}

/// A rule that does not depend on training. OpenNebula sites evaluate rules themselves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SiteRule {
    Metric(MetricRule),
    /// Sets the count until the next schedule is due.
    Schedule {
        at: Schedule,
        count: u32,
    },
}

/// Changes the count after the condition held for this many periods in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricRule {
    /// On the average of the machines.
    pub when: Expression,
    pub period_s: u32,
    pub periods: u32,
    pub change: Change,
    /// `None`: the cooldown of the pool.
    pub cooldown_s: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    By(i32),
    Percent(i32),
    To(u32),
}

impl Pool {
    /// Whether the site scales the pool: the pool has rules, and the site evaluates them.
    pub fn is_sized_by(&self, site: &Site) -> bool {
        let has_rules = self.scaling.as_ref().is_some_and(|scaling| !scaling.rules.is_empty());
        has_rules && site.config.traits().runs_scaling_rules
    }
}

/// Default settings of runs: keys and values of the run config.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Training {
    pub defaults: BTreeMap<String, ConfigTemplate>,
    /// Number of partitions of the data; `None`: the number of nodes.
    pub partitions: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Monitoring {
    pub metrics: bool,
    pub json_logs: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upgrade {
    /// Maximum number of nodes that actions make unavailable at once.
    pub max_unavailable: u32,
    /// How long a node may finish its work before it is stopped.
    pub drain_timeout: Duration,
}

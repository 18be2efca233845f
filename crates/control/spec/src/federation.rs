//! A federation as its document says it, with every default filled in.

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
    /// At least one; the first is where the coordinator is unless it says otherwise.
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
    /// A name without a directory is looked up in PATH.
    pub is_program: bool,
}

/// A name that every driver can use: 1 to 40 of a-z, 0-9 and `-`, beginning with a letter, not ending with `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Name(String);

impl Name {
    pub const MAX_CHARS: usize = 40;

    /// `None`: not such a name.
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

/// Whose programs run.
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
    /// The interpreter of Python ServerApps, where the driver starts processes.
    pub python: Option<PathBuf>,
    pub extra_args: Vec<String>,
}

/// `None`: a port that is free is chosen, and stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    pub fleet: Option<NonZeroU16>,
    pub control: Option<NonZeroU16>,
    pub app: Option<NonZeroU16>,
    pub http: Option<NonZeroU16>,
    /// Names and addresses by which others reach the coordinator; its certificate covers them.
    pub advertise: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Persistence {
    /// On disk; `None`: where the driver keeps such things.
    Disk { path: Option<PathBuf>, size_bytes: Option<u64> },
    /// Gone with the process.
    Memory,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    pub tls: Tls,
    /// Only nodes whose keys are registered take part.
    pub node_auth: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tls {
    /// Our own authority makes and renews certificates.
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
    /// What makes things exist there.
    #[serde(rename = "driver")]
    pub config: SiteConfig,
    /// Most nodes that the site may hold; `None`: as many as the driver can.
    pub max_nodes: Option<u32>,
    /// How the site and the coordinator's reach each other.
    pub link: Link,
    /// Firewalls on the way forget a connection that is silent so long; `None`: there are none.
    pub idle_timeout: Option<Duration>,
}

/// How a site and the coordinator's reach each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Link {
    /// By the addresses that the coordinator advertises.
    Direct,
    /// Through a tunnel between gateways, one at each site.
    WireGuard(WireGuardLink),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireGuardLink {
    /// `host:port` where others reach the site's gateway; `None`: it is behind NAT, and calls them.
    pub endpoint: Option<String>,
    pub listen_port: u16,
    /// Networks of the site that others reach through the tunnel.
    pub networks: Vec<String>,
    pub mtu: u16,
    /// 0: none are sent.
    pub keepalive_s: u16,
    /// Addresses of the gateways in the tunnel. Only the coordinator's site says so.
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
    /// Nodes wanted; within `scaling` where there is one.
    pub count: u32,
    /// Numbers of nodes that take no new work.
    pub drained: BTreeSet<u32>,
    pub scaling: Option<Scaling>,
    pub image: Option<String>,
    pub framework: Option<Framework>,
    /// A ClientApp of the program itself (`native:mlp`), instead of those that runs bring.
    pub client_app: Option<String>,
    pub isolation: Isolation,
    pub resources: Resources,
    pub gpu: Option<Gpu>,
    pub node_config: BTreeMap<String, ConfigTemplate>,
    pub env: BTreeMap<String, String>,
    pub python: Option<PathBuf>,
    pub extra_args: Vec<String>,
}

/// A value of the node config. Text may hold `{index} {replicas} {pool} {site} {node}`.
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

/// What one node, or the coordinator, may use; `None`: no limit.
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
    /// Share of each GPU's memory that an app may take, above 0 and up to 1.
    pub memory_fraction: Option<f64>,
    /// Without a GPU: go on with the CPU, or do not start.
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
    /// After a change of the count, the next one waits so long.
    pub cooldown: Duration,
    /// The count follows them; with policy `Manual` only. Those on metrics are at OpenNebula sites only.
    pub rules: Vec<SiteRule>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ScalingPolicy {
    /// The count that the user sets, within bounds; or what the rules make of it.
    Manual,
    /// So many nodes for each run that is at work.
    PerRun { nodes: u32 },
    /// Idle nodes go after so long.
    Idle { after: Duration },
    /// One more while rounds take longer than that.
    RoundTime { longest: Duration },
    /// As many as runs wait for.
    Waiting,
}

/// A rule that needs no knowledge of training: OpenNebula sites run it themselves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SiteRule {
    Metric(MetricRule),
    /// From then on so many, until the next one is due.
    Schedule {
        at: Schedule,
        count: u32,
    },
}

/// A change after something was true of the pool's machines for so many periods in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricRule {
    /// Of the average over the machines.
    pub when: Expression,
    pub period_s: u32,
    pub periods: u32,
    pub change: Change,
    /// `None`: that of the pool.
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
    /// The site itself decides how many there are: it has rules, and can run them.
    pub fn is_sized_by(&self, site: &Site) -> bool {
        let has_rules = self.scaling.as_ref().is_some_and(|scaling| !scaling.rules.is_empty());
        has_rules && site.config.traits().runs_scaling_rules
    }
}

/// Settings of runs that do not say otherwise. Keys and values of the run config.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Training {
    pub defaults: BTreeMap<String, ConfigTemplate>,
    /// Partitions that the data is divided into; `None`: as many as nodes.
    pub partitions: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Monitoring {
    pub metrics: bool,
    pub json_logs: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upgrade {
    /// Nodes that may be away at once because of us.
    pub max_unavailable: u32,
    /// How long a node may finish what it works on before it is taken away.
    pub drain_timeout: Duration,
}

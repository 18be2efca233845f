//! A federation as its document says it, with every default filled in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trellis_flower::Release;

use crate::expression::Expression;
use crate::schedule::Schedule;

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    Subprocess,
    Process,
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
    pub driver: Driver,
    /// Most nodes that the site may hold; `None`: as many as the driver can.
    pub max_nodes: Option<u32>,
    /// How the site and the coordinator's reach each other.
    pub link: Link,
    /// Firewalls on the way forget a connection that is silent so long; `None`: there are none.
    pub idle_timeout: Option<Duration>,
}

/// What makes things exist at a site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Driver {
    Local { containers: Containers },
    OpenNebula(OneSite),
    Kubernetes(KubeSite),
}

/// A zone of an OpenNebula cloud, and what VMs there are made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneSite {
    /// Of the XML-RPC API.
    pub endpoint: String,
    /// Of OneFlow; `None`: port 2474 of the same host.
    pub flow: Option<String>,
    pub zone: Option<String>,
    /// File with `user:password` or `user:token`; `None`: as OpenNebula's own programs (`ONE_AUTH`, `~/.one/one_auth`).
    pub auth_file: Option<PathBuf>,
    /// Credentials may be sent over `http://` to another machine.
    #[serde(default)]
    pub allow_plain_http: bool,
    /// The virtual network of the VMs, by name or number.
    pub network: String,
    /// Datastore of images, by name or number; `None`: the default one.
    pub datastore: Option<String>,
    /// Images by name or number, or files that are uploaded; `None`: those that `trellis image build` names.
    pub images: OneImages,
}

impl OneSite {
    /// The fields whose URL sends the credentials to another machine without encryption, each with its URL.
    pub fn plain_http(&self) -> Vec<(&'static str, &str)> {
        let urls = [("endpoint", Some(self.endpoint.as_str())), ("flow", self.flow.as_deref())];
        urls.into_iter()
            .filter_map(|(field, url)| Some((field, url?)))
            .filter(|(_, url)| url.strip_prefix("http://").is_some_and(|rest| !is_loopback(rest)))
            .collect()
    }
}

/// Whether the host at the start of `rest`, a URL without its scheme, is this machine.
fn is_loopback(rest: &str) -> bool {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    // In `localhost@host`, the part before `@` is a user name.
    !authority.contains('@') && (host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()))
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneImages {
    pub superlink: Option<String>,
    pub supernode: Option<String>,
}

/// A namespace of a Kubernetes cluster, and what pods there are made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeSite {
    /// `None`: as kubectl finds it, or the cluster that we run in.
    #[serde(default)]
    pub kubeconfig: Option<PathBuf>,
    /// Of the kubeconfig; `None`: the current one.
    pub context: Option<String>,
    pub namespace: String,
    /// How the coordinator is reached from outside of the cluster.
    #[serde(default)]
    pub exposure: Exposure,
    /// Annotations of the coordinator's Service, for whoever provides load balancers.
    #[serde(default)]
    pub service_annotations: BTreeMap<String, String>,
    /// `None`: the cluster's default one.
    #[serde(default)]
    pub storage_class: Option<String>,
    #[serde(default)]
    pub images: KubeImages,
    /// Names of secrets.
    #[serde(default)]
    pub image_pull_secrets: Vec<String>,
    /// Labels of the machines that pods may be on.
    #[serde(default)]
    pub node_selector: BTreeMap<String, String>,
}

impl KubeSite {
    /// A namespace of the cluster that is found without being told.
    pub fn of(namespace: &str) -> KubeSite {
        KubeSite {
            kubeconfig: None,
            context: None,
            namespace: namespace.to_owned(),
            exposure: Exposure::default(),
            service_annotations: BTreeMap::new(),
            storage_class: None,
            images: KubeImages::default(),
            image_pull_secrets: Vec::new(),
            node_selector: BTreeMap::new(),
        }
    }
}

/// From where the coordinator's Service is reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exposure {
    #[default]
    Cluster,
    NodePort,
    LoadBalancer,
}

/// `None`: those that are named after our programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeImages {
    pub superlink: Option<String>,
    pub supernode: Option<String>,
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
        has_rules && matches!(site.driver, Driver::OpenNebula(_))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_clear_text_are_found_wherever_they_leave_this_machine() {
        let site = |endpoint: &str, flow: Option<&str>| OneSite {
            endpoint: endpoint.to_owned(),
            flow: flow.map(str::to_owned),
            zone: None,
            auth_file: None,
            allow_plain_http: false,
            network: "private".to_owned(),
            datastore: None,
            images: OneImages::default(),
        };
        for (endpoint, flow, expected) in [
            ("https://one.example.org:2633/RPC2", None, &[][..]),
            ("http://127.0.0.1:2633/RPC2", Some("http://localhost:2474"), &[]),
            ("http://[::1]:2633/RPC2", None, &[]),
            ("http://one.example.org:2633/RPC2", None, &["endpoint"]),
            ("https://one.example.org/RPC2", Some("http://one.example.org:2474"), &["flow"]),
            ("http://127.0.0.1:80@one.example.org/RPC2", None, &["endpoint"]),
            ("http://127.0.0.1.example.org/RPC2", None, &["endpoint"]),
            ("http://localhost.example.org#@localhost", None, &["endpoint"]),
        ] {
            let site = site(endpoint, flow);
            let found: Vec<&str> = site.plain_http().into_iter().map(|(field, _)| field).collect();
            assert_eq!(found, expected, "{endpoint} {flow:?}");
        }
    }
}

//! Resources: the coordinator and the nodes of a federation, their identities and their desired state.
//!
//! Drivers create and delete what a resource needs besides, such as certificates, volumes and networks.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use trellis_flower::launch::Keepalive;
use trellis_spec::{
    ConfigValue, Containers, Endpoints, Framework, Gpu, Isolation, Name, Persistence, Resources, Runtime, SiteRule, Tls,
};

/// Permanent identity of a node: its index in its pool. Its machine and its site may change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct NodeKey {
    pub pool: Name,
    pub index: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    Coordinator,
    Node(NodeKey),
}

/// One resource at one site. As text: `federation/site/coordinator`, `federation/site/node/pool-3`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ResourceId {
    pub federation: Name,
    pub site: Name,
    pub part: Part,
}

/// Hash of a spec. If the hash changes, the resource must be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Generation(pub u64);

/// The desired state of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Desired {
    pub id: ResourceId,
    pub generation: Generation,
    pub spec: Spec,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
// Few exist at a time, and a box would complicate every driver.
#[allow(clippy::large_enum_variant)]
pub enum Spec {
    Coordinator(CoordinatorSpec),
    Node(NodeSpec),
}

/// The tunnel of a site, for its gateway. The driver has the keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// The gateway's address in the tunnel, with prefix length: `10.66.0.2/24`.
    pub address: String,
    pub listen_port: u16,
    pub mtu: u16,
    pub peers: Vec<TunnelPeer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelPeer {
    pub site: Name,
    /// `None`: the peer connects.
    pub endpoint: Option<String>,
    pub allowed: Vec<String>,
    pub keepalive_s: Option<u16>,
}

/// Everything that a driver needs to start the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoordinatorSpec {
    pub runtime: Runtime,
    /// The version of our own program, if the coordinator runs it.
    pub program: Option<String>,
    pub image: Option<String>,
    /// How the driver of the site runs containers, if it runs processes or containers with a program of this machine.
    pub containers: Option<Containers>,
    pub endpoints: Endpoints,
    pub persistence: Persistence,
    pub isolation: Isolation,
    pub resources: Resources,
    pub env: BTreeMap<String, String>,
    pub python: Option<PathBuf>,
    pub extra_args: Vec<String>,
    pub tls: Tls,
    pub node_auth: bool,
    pub metrics: bool,
    pub json_logs: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Keepalive>,
}

/// Everything that a driver needs to start a SuperNode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeSpec {
    pub runtime: Runtime,
    pub program: Option<String>,
    pub image: Option<String>,
    pub containers: Option<Containers>,
    pub framework: Option<Framework>,
    pub client_app: Option<String>,
    pub isolation: Isolation,
    pub resources: Resources,
    /// The assigned GPUs: `None` also if the pool falls back to the CPU.
    pub gpu: Option<Gpu>,
    pub shard: u32,
    pub shards: u32,
    /// With all placeholders replaced; includes `partition-id` and `num-partitions`.
    pub node_config: BTreeMap<String, ConfigValue>,
    pub env: BTreeMap<String, String>,
    pub python: Option<PathBuf>,
    pub extra_args: Vec<String>,
    /// Host and port of the coordinator, as seen from this site.
    pub coordinator: String,
    pub tls: Tls,
    pub node_auth: bool,
    pub metrics: bool,
    pub json_logs: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Keepalive>,
    /// If the site scales the pool: its rules. Not part of the generation; drivers receive changes by
    /// [`crate::Driver::set_desired`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<PoolRules>,
}

/// Rules by which a site scales a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolRules {
    pub min: u32,
    pub max: u32,
    pub cooldown_s: u32,
    pub rules: Vec<SiteRule>,
}

impl Desired {
    pub fn new(id: ResourceId, spec: Spec) -> Desired {
        let generation = Generation::of(&spec);
        Desired { id, generation, spec }
    }
}

impl Spec {
    pub fn shard(&self) -> Option<u32> {
        match self {
            Spec::Coordinator(_) => None,
            Spec::Node(node) => Some(node.shard),
        }
    }

    pub fn shards(&self) -> Option<u32> {
        match self {
            Spec::Coordinator(_) => None,
            Spec::Node(node) => Some(node.shards),
        }
    }
}

impl Generation {
    /// FNV-1a over the canonical JSON: fields in the order of their declaration, maps by key.
    pub fn of(spec: &Spec) -> Generation {
        let without_rules = match spec {
            Spec::Node(node) if node.rules.is_some() => Some(Spec::Node(NodeSpec { rules: None, ..node.clone() })),
            Spec::Node(_) | Spec::Coordinator(_) => None,
        };
        let text = serde_json::to_vec(without_rules.as_ref().unwrap_or(spec))
            .expect("a spec has only text keys, so it always has a JSON form");
        Generation(trellis_digest::fnv1a(&text))
    }
}

impl ResourceId {
    pub fn coordinator(federation: &Name, site: &Name) -> ResourceId {
        ResourceId { federation: federation.clone(), site: site.clone(), part: Part::Coordinator }
    }

    pub fn node(federation: &Name, site: &Name, key: &NodeKey) -> ResourceId {
        ResourceId { federation: federation.clone(), site: site.clone(), part: Part::Node(key.clone()) }
    }

    pub fn node_key(&self) -> Option<&NodeKey> {
        match &self.part {
            Part::Coordinator => None,
            Part::Node(key) => Some(key),
        }
    }
}

impl Part {
    /// The name for users: `coordinator`, `pool-3`.
    pub fn name(&self) -> String {
        match self {
            Part::Coordinator => "coordinator".to_owned(),
            Part::Node(key) => key.to_string(),
        }
    }
}

impl fmt::Display for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pool, self.index)
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.part {
            Part::Coordinator => write!(f, "{}/{}/coordinator", self.federation, self.site),
            Part::Node(key) => write!(f, "{}/{}/node/{key}", self.federation, self.site),
        }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<NodeKey> for String {
    fn from(key: NodeKey) -> String {
        key.to_string()
    }
}

impl From<ResourceId> for String {
    fn from(id: ResourceId) -> String {
        id.to_string()
    }
}

impl From<Generation> for String {
    fn from(generation: Generation) -> String {
        generation.to_string()
    }
}

impl TryFrom<String> for NodeKey {
    type Error = String;

    fn try_from(text: String) -> Result<NodeKey, String> {
        // Pool names may contain dashes; the index follows the last one.
        let parts = text.rsplit_once('-').and_then(|(pool, index)| Some((Name::new(pool)?, index.parse().ok()?)));
        let key = parts.map(|(pool, index)| NodeKey { pool, index });
        key.filter(|key| key.to_string() == text).ok_or_else(|| format!("`{text}` is not a node: expected pool-number"))
    }
}

impl TryFrom<String> for ResourceId {
    type Error = String;

    fn try_from(text: String) -> Result<ResourceId, String> {
        let wrong =
            || format!("`{text}` is not a resource: expected federation/site/coordinator or .../node/pool-number");
        let parts: Vec<&str> = text.split('/').collect();
        let (federation, site, part) = match parts[..] {
            [federation, site, "coordinator"] => (federation, site, Part::Coordinator),
            [federation, site, "node", key] => (federation, site, Part::Node(NodeKey::try_from(key.to_owned())?)),
            _ => return Err(wrong()),
        };
        let federation = Name::new(federation).ok_or_else(wrong)?;
        let site = Name::new(site).ok_or_else(wrong)?;
        Ok(ResourceId { federation, site, part })
    }
}

impl TryFrom<String> for Generation {
    type Error = String;

    fn try_from(text: String) -> Result<Generation, String> {
        let number = (text.len() == 16).then(|| u64::from_str_radix(&text, 16).ok()).flatten();
        number.map(Generation).ok_or_else(|| format!("`{text}` is not a generation: expected 16 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_its_text() {
        for text in ["fed/lab/coordinator", "fed/lab/node/a-1-0", "fed/lab/node/clinic-17"] {
            let id = ResourceId::try_from(text.to_owned()).expect("an id");
            assert_eq!(id.to_string(), text);
        }
        for text in
            ["", "fed/lab", "fed/lab/node", "fed/lab/node/clinic", "fed/lab/node/clinic-01", "Fed/lab/coordinator"]
        {
            assert!(ResourceId::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_generation_is_its_text() {
        let generation = Generation(0xab);
        assert_eq!(generation.to_string(), "00000000000000ab");
        assert_eq!(Generation::try_from(generation.to_string()), Ok(generation));
        assert!(Generation::try_from("ab".to_owned()).is_err());
    }
}

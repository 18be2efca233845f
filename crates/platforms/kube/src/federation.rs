//! The `Federation` resource as users write it: `flwr.exalsius.ai/v1`, and the optional fields of ours.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trellis_flower::Isolation;

use crate::crd;

pub const GROUP: &str = "flwr.exalsius.ai";
pub const VERSION: &str = "v1";
pub const API_VERSION: &str = "flwr.exalsius.ai/v1";
pub const KIND: &str = "Federation";
pub const PLURAL: &str = "federations";

/// A value of a core type of Kubernetes, as it was written.
pub type Raw = Value;

/// One resource, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Federation {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub generation: i64,
    pub deleted: bool,
    pub annotations: BTreeMap<String, String>,
    pub spec: Spec,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    pub mode: Mode,
    #[serde(with = "trellis_flower::isolation::lowercase")]
    pub isolation_mode: Isolation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Absent is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure: Option<bool>,
    pub superlink: SuperLink,
    pub supernodes: SuperNodes,
    // Ours, from here on. Left out, everything is as the operator this one takes the place of has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    #[serde(default)]
    pub security: Security,
    #[serde(default)]
    pub persistence: Persistence,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    #[serde(default)]
    pub monitoring: Monitoring,
    #[serde(default)]
    pub upgrade: Upgrade,
    /// Nodes outside of the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<Site>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    DaemonSet,
    StatefulSet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    Trellis,
    Flower,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SuperLink {
    pub image: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superexec_image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Raw>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superexec_resources: Option<Raw>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<Raw>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_args: Vec<String>,
    /// Ours: the sidecar's, which the other operator has no way to give.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superexec_extra_args: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<Raw>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Raw>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<Raw>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superexec_volume_mounts: Vec<Raw>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_claim_templates: Vec<Raw>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Ports>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Zero and absent are the defaults: 9092, 9091, 9093.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ports {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<i32>,
    #[serde(default, rename = "serverAppIO", skip_serializing_if = "Option::is_none")]
    pub server_app_io: Option<i32>,
    /// Of the Control API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<i32>,
    /// Ours: of the HTTP API (Flower 1.35 and later); 8000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<i32>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SuperNodes {
    pub image: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<Raw>,
    pub pools: Vec<Pool>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    #[serde(default, deserialize_with = "or_default")]
    pub images: Images,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supernode_resources: Option<Raw>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superexec_resources: Option<Raw>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<Raw>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_args: Vec<String>,
    /// Ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superexec_extra_args: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<Raw>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Raw>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<Raw>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superexec_volume_mounts: Vec<Raw>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_claim_templates: Vec<Raw>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_config: BTreeMap<String, String>,
}

/// Null is as good as absent.
fn or_default<'de, T: Default + Deserialize<'de>, D: serde::Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Images {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supernode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superexec_client_app: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gpu {
    /// Absent is false, but for `mountAll`, which is then enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<Vendor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    #[serde(default)]
    pub mount_all: bool,
    /// Ours: a claim of dynamic resource allocation takes the place of an extended resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_claim_template: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    Nvidia,
    Amd,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Security {
    #[serde(default)]
    pub tls: Tls,
    /// Only nodes whose keys are known may join; needs TLS.
    #[serde(default)]
    pub node_auth: bool,
    #[serde(default)]
    pub network_policy: NetworkPolicy,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Absent: `auto` where `insecure` is false and no certificate is given by `extraArgs`, else `off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<TlsMode>,
    /// Of mode `secret`: `tls.crt`, `tls.key`, `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// Of mode `certManager`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_ref: Option<Raw>,
    /// Names and addresses beside those of the Service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_names: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TlsMode {
    Off,
    Auto,
    CertManager,
    Secret,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    #[serde(default)]
    pub enabled: bool,
    /// Who may use the Control API, beside the operator: peers as in a NetworkPolicy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<Raw>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Persistence {
    /// Absent: a claim where the cluster has a default storage class, else the pod's own directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(default, deserialize_with = "quantity", skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// What becomes of claims, of the SuperLink and of pools, when the federation or the pool is deleted; absent: they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_deleted: Option<Retention>,
    /// What becomes of the claims of nodes that a smaller pool no longer has; absent: they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_scaled: Option<Retention>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retention {
    Retain,
    Delete,
}

impl Retention {
    /// Retention policy of a StatefulSet. Data are deleted only on request.
    pub fn policy(said: Option<Retention>) -> &'static str {
        match said {
            Some(Retention::Delete) => "Delete",
            Some(Retention::Retain) | None => "Retain",
        }
    }
}

/// How many nodes one pool has; `replicas` is what the scale subresource writes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scaling {
    /// Empty: the only one ([`Spec::scaled_pool`]), since the scale subresource cannot say it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<ScalingRule>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooldown_seconds: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalingRule {
    pub metric: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i32>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Monitoring {
    /// Of Trellis images: metrics on this port of every pod.
    #[serde(default)]
    pub metrics: bool,
    #[serde(default)]
    pub json_logs: bool,
    /// A ServiceMonitor or PodMonitor of the Prometheus operator.
    #[serde(default)]
    pub pod_monitor: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// Nodes of a pool that may be away at once: a number or a share; absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<Raw>,
    /// For how long a node may finish what it does; absent: 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_timeout_seconds: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Site {
    pub name: String,
    /// How many nodes may join from there.
    pub nodes: i32,
    /// Networks that its nodes call from, as the cluster sees them. None: from anywhere.
    #[serde(default)]
    pub cidrs: Vec<String>,
}

/// A quantity is text, or a number that somebody wrote without quotes.
fn quantity<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(value)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => return Err(serde::de::Error::custom("a quantity is text or a number")),
    })
}

/// A resource that cannot be read: the definition in the cluster let something pass that ours would not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

impl Unreadable {
    /// Of a resource that its type does not take. Our definition finds all that is wrong, and where; if it finds nothing, what the
    /// type said must do.
    pub(crate) fn explained(definition: &Value, resource: &Value, said: &serde_json::Error) -> Unreadable {
        let faults = crd::faults(definition, resource);
        Unreadable(if faults.is_empty() { format!("spec: {said}") } else { faults.join("; ") })
    }
}

impl Federation {
    /// From the resource as the API server gives it.
    pub fn read(resource: &Value) -> Result<Federation, Unreadable> {
        let meta = &resource["metadata"];
        let text = |field: &str| meta[field].as_str().unwrap_or_default().to_owned();
        let spec = Spec::deserialize(&resource["spec"]);
        Ok(Federation {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            generation: meta["generation"].as_i64().unwrap_or_default(),
            deleted: meta["deletionTimestamp"].is_string(),
            annotations: BTreeMap::deserialize(&meta["annotations"]).unwrap_or_default(),
            spec: spec.map_err(|error| Unreadable::explained(&crd::federation(), resource, &error))?,
        })
    }

    pub fn superlink_name(&self) -> String {
        format!("{}-superlink", self.name)
    }

    pub fn pool_name(&self, pool: &str) -> String {
        format!("{}-supernode-{pool}", self.name)
    }
}

impl Spec {
    /// The pool that `scaling` is about: the one it names, or the only one.
    pub fn scaled_pool(&self) -> Option<&Pool> {
        let pools = &self.supernodes.pools;
        match self.scaling.as_ref()?.pool.as_str() {
            "" if pools.len() == 1 => pools.first(),
            name => pools.iter().find(|pool| pool.name == name),
        }
    }
}

#[cfg(test)]
mod tests;

//! The `Federation` resource: `flwr.exalsius.ai/v1` with optional fields of Trellis.

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

/// A value of a core type of Kubernetes, unparsed.
pub type Raw = Value;

/// A parsed resource.
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
    /// Absent: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure: Option<bool>,
    pub superlink: SuperLink,
    pub supernodes: SuperNodes,
    // Fields of Trellis. Without them the resource means the same as for the operator that this one replaces.
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
    /// Trellis: arguments of the SuperExec.
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

/// Zero and absent mean the defaults: 9092, 9091, 9093.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ports {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<i32>,
    #[serde(default, rename = "serverAppIO", skip_serializing_if = "Option::is_none")]
    pub server_app_io: Option<i32>,
    /// Port of the Control API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<i32>,
    /// Trellis: port of the HTTP API (Flower 1.35 and later); 8000.
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
    /// Trellis: arguments of the SuperExec.
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

/// Null means absent.
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
    /// Absent: the value of `mountAll`.
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
    /// Trellis: a claim template of dynamic resource allocation replaces the extended resource.
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
    /// Only nodes with registered keys may join; needs TLS.
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
    /// For mode `secret`: a Secret with `tls.crt`, `tls.key`, `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// For mode `certManager`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_ref: Option<Raw>,
    /// Names and addresses in addition to those of the Service.
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
    /// Clients of the Control API in addition to the operator: peers as in a NetworkPolicy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<Raw>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Persistence {
    /// Absent: a claim if the cluster has a default storage class, else a directory of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(default, deserialize_with = "quantity", skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// Retention of claims of the SuperLink and of pools when the federation or the pool is deleted; absent: retain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_deleted: Option<Retention>,
    /// Retention of claims of nodes that a smaller pool no longer has; absent: retain.
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

/// Size of one pool; the scale subresource writes `replicas`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scaling {
    /// Empty: the only pool ([`Spec::scaled_pool`]), because the scale subresource cannot name one.
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
    /// Metrics of Trellis programs on a port of every pod.
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
    /// Nodes of a pool that may be unavailable at once: a number or a percentage; absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<Raw>,
    /// Drain time of a node; absent: 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_timeout_seconds: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Site {
    pub name: String,
    /// Number of nodes that may join from the site.
    pub nodes: i32,
    /// Networks of its nodes, as the cluster sees them. Empty: any.
    #[serde(default)]
    pub cidrs: Vec<String>,
}

/// A quantity is a text or a number.
fn quantity<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(value)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => return Err(serde::de::Error::custom("a quantity is text or a number")),
    })
}

/// A resource that cannot be parsed, because the definition in the cluster admits more than ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

impl Unreadable {
    /// Explains a parse failure with all violations of our definition; without any, with the message of the parser.
    pub(crate) fn explained(definition: &Value, resource: &Value, said: &serde_json::Error) -> Unreadable {
        let faults = crd::faults(definition, resource);
        Unreadable(if faults.is_empty() { format!("spec: {said}") } else { faults.join("; ") })
    }
}

impl Federation {
    /// Parses the resource as the API server returns it.
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
    /// The pool that `scaling` names, or the only one.
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

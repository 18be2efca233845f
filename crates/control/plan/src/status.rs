//! One status, from which the REST body, the Kubernetes status, the command's table and the page are made.

use serde::{Deserialize, Serialize};

use crate::Millis;
use crate::observed::Addresses;
use crate::report::Why;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Status {
    pub federation: String,
    /// Everything that is wanted works.
    pub ready: Condition,
    /// Something is being done, or waits for something.
    pub reconciling: Condition,
    /// Somebody must do something, or it stays as it is.
    pub stalled: Condition,
    /// The federation was to go, and nothing of it is left.
    pub gone: bool,
    pub coordinator: CoordinatorStatus,
    pub pools: Vec<PoolStatus>,
    pub sites: Vec<SiteStatus>,
    pub nodes: Vec<NodeStatus>,
    /// Parts that the data is divided into.
    pub shards: u32,
    /// Those that no node has.
    #[serde(default)]
    pub orphaned_shards: u32,
    /// Nodes that are away because of us, and how many may be.
    pub away: u32,
    pub max_unavailable: u32,
    pub at_ms: Millis,
    /// The report: what was not done, and why.
    pub messages: Vec<Why>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Condition {
    pub met: bool,
    /// One word, for programs.
    pub reason: String,
    pub message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CoordinatorStatus {
    pub site: String,
    /// `absent`, `unknown`, `starting`, `ready`, `failed` or `stopping`.
    pub phase: String,
    /// It is of the wanted generation.
    pub updated: bool,
    pub version: Option<String>,
    pub addresses: Addresses,
    pub runs: Option<u32>,
    pub since_ms: Option<Millis>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PoolStatus {
    pub name: String,
    pub site: String,
    pub wanted: u32,
    pub present: u32,
    pub ready: u32,
    pub updated: u32,
    pub busy: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SiteStatus {
    pub name: String,
    pub reachable: bool,
    pub why: Option<String>,
    /// Nodes that are there, wanted or not.
    pub nodes: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeStatus {
    pub name: String,
    pub pool: String,
    pub site: String,
    pub wanted: bool,
    pub shard: Option<u32>,
    /// What the SuperLink calls it.
    pub id: Option<String>,
    pub phase: String,
    pub why: Option<String>,
    pub updated: bool,
    pub busy: Option<bool>,
    pub draining: bool,
    /// The document, or a user, keeps it from new work.
    #[serde(default)]
    pub drained: bool,
    /// It joined the SuperLink from elsewhere: no pool has it.
    #[serde(default)]
    pub joined: bool,
    pub version: Option<String>,
    pub since_ms: Option<Millis>,
}

/// The message about shards without a node, with the advice.
pub(crate) fn orphaned(orphaned: u32, shards: u32) -> String {
    format!(
        "{orphaned} of {shards} shards have no node, so that no run trains on their data; \
         `trellis scale POOL=COUNT --repartition` divides the data among the nodes that there are"
    )
}

impl Status {
    /// What users should know of shards without a node.
    pub fn orphan_note(&self) -> Option<String> {
        (self.orphaned_shards > 0).then(|| orphaned(self.orphaned_shards, self.shards))
    }

    /// Something starts, stops or finishes its work: another look will soon show something else.
    pub fn is_in_motion(&self) -> bool {
        let passing = |phase: &str| matches!(phase, "starting" | "stopping");
        // A drained node without work stays as it is.
        let finishes = |node: &NodeStatus| node.draining && node.busy != Some(false);
        passing(&self.coordinator.phase) || self.nodes.iter().any(|node| passing(&node.phase) || finishes(node))
    }
}

impl Condition {
    pub(crate) fn new(met: bool, reason: &str, message: impl Into<String>) -> Condition {
        Condition { met, reason: reason.to_owned(), message: message.into() }
    }
}

//! The status of a federation. The REST body, the Kubernetes status, the table of the command and the page are made from it.

use serde::{Deserialize, Serialize};

use crate::Millis;
use crate::observed::Addresses;
use crate::report::Why;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Status {
    pub federation: String,
    /// All desired parts are ready.
    pub ready: Condition,
    /// Actions are in progress or waiting.
    pub reconciling: Condition,
    /// Progress needs a user.
    pub stalled: Condition,
    /// The federation was deleted, and no part is left.
    pub gone: bool,
    pub coordinator: CoordinatorStatus,
    pub pools: Vec<PoolStatus>,
    pub sites: Vec<SiteStatus>,
    pub nodes: Vec<NodeStatus>,
    /// Number of shards of the data.
    pub shards: u32,
    /// Shards without a node.
    #[serde(default)]
    pub orphaned_shards: u32,
    /// Nodes that are unavailable because of actions, and the limit.
    pub away: u32,
    pub max_unavailable: u32,
    pub at_ms: Millis,
    /// The report of the plan.
    pub messages: Vec<Why>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Condition {
    pub met: bool,
    /// A stable word for programs.
    pub reason: String,
    pub message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CoordinatorStatus {
    pub site: String,
    /// `absent`, `unknown`, `starting`, `ready`, `failed` or `stopping`.
    pub phase: String,
    /// It has the desired generation.
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
    /// Present nodes, desired or not.
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
    /// Its id in the SuperLink.
    pub id: Option<String>,
    pub phase: String,
    pub why: Option<String>,
    pub updated: bool,
    pub busy: Option<bool>,
    pub draining: bool,
    /// Drained by the document or a user.
    #[serde(default)]
    pub drained: bool,
    /// It joined the SuperLink by itself and belongs to no pool.
    #[serde(default)]
    pub joined: bool,
    pub version: Option<String>,
    pub since_ms: Option<Millis>,
}

/// The message about shards without a node, with advice.
pub(crate) fn orphaned(orphaned: u32, shards: u32) -> String {
    format!(
        "{orphaned} of {shards} shards have no node, so that no run trains on their data; \
         `trellis scale POOL=COUNT --repartition` divides the data among the present nodes"
    )
}

impl Status {
    /// The message about shards without a node, if there are any.
    pub fn orphan_note(&self) -> Option<String> {
        (self.orphaned_shards > 0).then(|| orphaned(self.orphaned_shards, self.shards))
    }

    /// Whether a part starts, stops or drains, so that the next observation will differ soon.
    pub fn is_in_motion(&self) -> bool {
        let passing = |phase: &str| matches!(phase, "starting" | "stopping");
        // A drained node without work does not change.
        let finishes = |node: &NodeStatus| node.draining && node.busy != Some(false);
        passing(&self.coordinator.phase) || self.nodes.iter().any(|node| passing(&node.phase) || finishes(node))
    }
}

impl Condition {
    pub(crate) fn new(met: bool, reason: &str, message: impl Into<String>) -> Condition {
        Condition { met, reason: reason.to_owned(), message: message.into() }
    }
}

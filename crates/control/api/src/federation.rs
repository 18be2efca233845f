//! Federations, their nodes, and how to reach them.

use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use trellis_plan::Status;
use utoipa::ToSchema;

/// A federation in one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FederationSummary {
    pub name: String,
    pub state: State,
    /// Why it is in this state: the message of the condition that decides.
    pub message: String,
    /// Grows with every change of the document.
    pub revision: u64,
    /// `trellis`, or `flower:1.39.0`.
    pub runtime: String,
    pub sites: u32,
    pub nodes: NodeCounts,
    /// Runs that are not over; none: nobody could ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_runs: Option<u32>,
    pub changed_at: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nobody has looked at it yet.
    New,
    /// Everything that is wanted works.
    Ready,
    /// Something is being done, or waits for something.
    Reconciling,
    /// Somebody must do something, or it stays as it is.
    Stalled,
    /// It is being deleted.
    Leaving,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeCounts {
    pub wanted: u32,
    pub present: u32,
    pub ready: u32,
    pub busy: u32,
    /// Nodes that joined from elsewhere and are online; the other numbers are without them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub joined: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A federation that is gone, and whose runs are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PastFederation {
    pub name: String,
    pub runs: u32,
    /// When the last of them was submitted.
    pub last_run_at: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FederationDetail {
    pub summary: FederationSummary,
    /// The document in its canonical form, YAML.
    pub document: String,
    /// What was seen and decided last, without the nodes, which are a list of their own; none: nobody has looked yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// How many nodes a pool shall have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    #[schema(maximum = 100000)]
    #[serde(deserialize_with = "whole")]
    pub count: u32,
    /// Divides the data into as many shards as there are nodes, as a change of `training.partitions`.
    #[serde(default)]
    pub repartition: bool,
}

/// Whether a node is kept from new work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeChange {
    pub drained: bool,
}

/// To JSON, 4.0 is the same as 4.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let number = f64::deserialize(deserializer)?;
    let whole = number as u32;
    if f64::from(whole) == number {
        return Ok(whole);
    }
    Err(D::Error::invalid_value(Unexpected::Float(number), &"a whole number that is not negative"))
}

/// A node, as the plan and the SuperLink know it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// `pool-3`; of a node that no document names, what the SuperLink calls it.
    pub name: String,
    pub pool: String,
    pub site: String,
    /// What the SuperLink and reports of rounds call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    /// The document wants it.
    pub wanted: bool,
    /// `absent`, `unknown`, `starting`, `ready`, `failed` or `stopping`.
    pub phase: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// It is as the document says now.
    pub updated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<bool>,
    pub draining: bool,
    /// Drained by the document or a user.
    #[serde(default)]
    pub drained: bool,
    /// It joined from elsewhere: no pool has it, and its site is what it says of its place.
    #[serde(default)]
    pub joined: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
}

/// How users of a federation reach it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Connection {
    /// Host and port of the Control API, for `flwr`.
    pub control: Option<String>,
    /// Host and port of the HTTP API, for `flwr` from 1.37 on, and for ours.
    pub http: Option<String>,
    pub fleet: Option<String>,
    /// Without TLS.
    pub insecure: bool,
    /// PEM of the authorities to trust; none: those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_certificates: Option<String>,
    /// The same as a file on the server's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_certificates_path: Option<String>,
    /// File on the server's machine with the token that the SuperLink asks for; none: it asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_path: Option<String>,
}

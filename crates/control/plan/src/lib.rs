//! Brings a federation to the state that its document describes: the planner, the driver port, the controller.
//!
//! [`plan()`] makes all decisions. It is a pure function; time and the random seed are arguments. A [`Driver`] is the only code
//! that knows a platform, and makes no decisions. The [`Controller`] applies plans through drivers, a [`Store`] and a [`Clock`],
//! which are ports: this crate uses no async runtime, file or network.
//!
//! # Invariants
//! - A driver decides nothing: the planner alone restarts, drains and deletes. An object that could not be observed
//!   is not absent.
//! - A SuperLink is told of a renewed node before the renewal (`planner/selection.rs`). A policy never chooses a busy
//!   node for removal.
//! - A site that left the document keeps its driver until no part of it is left.

mod action;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod controller;
mod driver;
mod fleet;
mod inventory;
mod ledger;
mod observed;
mod orders;
mod planner;
mod report;
mod resource;
mod retry;
pub mod scaling;
mod seed;
mod shards;
pub mod simulated;
mod status;
mod store;
mod text;

pub use action::{Action, Order, Outcome, Verb};
pub use clock::Clock;
pub use controller::{Controller, Host, Preview, Reconciled, RunMetrics, Settings};
pub use driver::{
    Call, Driver, DriverContext, DriverKind, OpenDriver, OpenError, RejectedField, Rendering, TrustElsewhere, Wake,
};
pub use fleet::Fleet;
pub use inventory::{Capabilities, Inventory};
pub use ledger::{Applied, Attempts, JoinedNode, LEDGER_VERSION, Ledger, PoolMemory};
pub use observed::{Addresses, Capacity, Facts, LinkNode, Observation, Observed, ObservedSite, Phase, Presence};
pub use orders::Orders;
pub use planner::{DesiredState, Planned, Selection, blueprints, plan};
pub use report::{Weight, Why};
pub use resource::{
    CoordinatorSpec, Desired, Generation, NodeKey, NodeSpec, Part, PoolRules, ResourceId, Spec, Tunnel, TunnelPeer,
};
pub use retry::{DriverRetries, RetryBudget};
pub use shards::ShardTable;
pub use status::{Condition, CoordinatorStatus, NodeStatus, PoolStatus, SiteStatus, Status};
pub use store::{Lease, Store, StoreError, Stored};

/// Milliseconds since 1970; on a simulated clock, since its start.
pub type Millis = u64;

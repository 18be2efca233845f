//! What to do so that a federation becomes what its document says: decisions, the driver port, the controller.
//!
//! [`plan`] decides: it is a pure function, and time and chance are its arguments. A [`Driver`] is the only code that
//! knows an outside world, and decides nothing. The [`Controller`] carries plans out over drivers, a [`Store`] and a
//! [`Clock`], which are ports: nothing here names an async runtime, a file or a network.

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
mod seed;
mod shards;
pub mod simulated;
mod status;
mod store;
mod text;

pub use action::{Action, Order, Outcome, Verb};
pub use clock::Clock;
pub use controller::{Controller, Heard, Pass, Preview, Settings};
pub use driver::{
    Call, Driver, DriverContext, DriverKind, OpenDriver, OpenError, RejectedField, Rendering, TrustElsewhere, Wake,
};
pub use fleet::Fleet;
pub use inventory::{Capabilities, Inventory};
pub use ledger::{Applied, JoinedNode, LEDGER_VERSION, Ledger, PoolMemory, Tries};
pub use observed::{Addresses, Facts, LinkNode, Observation, Observed, Offer, Phase, Seen, Sighting};
pub use orders::Orders;
pub use planner::{Planned, Selection, Wanted, blueprints, plan};
pub use report::{Weight, Why};
pub use resource::{
    CoordinatorSpec, Desired, Generation, NodeKey, NodeSpec, Part, PoolRules, ResourceId, Spec, Tunnel, TunnelPeer,
};
pub use shards::ShardTable;
pub use status::{Condition, CoordinatorStatus, NodeStatus, PoolStatus, SiteStatus, Status};
pub use store::{Kept, Lease, Store, StoreError};

/// Milliseconds since 1970, or since whatever a clock begins with.
pub type Millis = u64;

//! Calls to a SuperLink: of commands, of nodes that join, of nodes at work, and of ServerApps. Our own calls are JSON over HTTP
//! ([`trellis_wire::call`]), one at a time. Flower's calls go over gRPC or HTTP: `control` has those of commands, `fleet` those of
//! nodes, `app` those of ServerApps. Connections are authenticated by `trust`, or not made.
//!
//! Knows no command lines, and nothing of the inside of a SuperLink.

mod address;
pub mod app;
mod connect;
mod control;
mod error;
mod exchange;
pub mod fleet;
mod grpc;
mod nearby;
pub mod node_key;
mod pieces;
mod rest;
mod signing_key;
mod superlink;
mod target;
mod trust;

pub use address::{Address, Host, parse_port};
pub use connect::handshake;
pub use control::{AcquiredTask, LogPart, LogStream};
pub use error::{Distrust, Error};
pub use nearby::{NearbyNode, announced_node};
pub use node_key::NodeKey;
pub use rest::{Asking, Reply, Rest, Trickle};
pub use signing_key::SigningKey;
pub use superlink::{SuperLink, Timeouts};
pub use target::{Security, Target};
pub use trust::{Trust, TrustError};

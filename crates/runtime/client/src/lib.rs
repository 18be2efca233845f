//! The side of those who call a SuperLink: people with a shell, nodes that want to join, nodes at work, and ServerApps. Our own
//! calls are JSON over HTTP ([`trellis_wire::call`]), made one at a time; Flower's go over gRPC or HTTP: those of people in `control`, those of
//! nodes in `fleet`, those of ServerApps in `app`. Connections are trusted or not made at all (`trust`).
//!
//! Knows nothing of command lines, and nothing of what is inside a SuperLink.

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

pub use connect::handshake;
pub use control::{AcquiredTask, LogPart, LogStream};
pub use error::{Distrust, Error};
pub use nearby::{NearbyNode, announced_node};
pub use node_key::NodeKey;
pub use rest::{Asking, Reply, Rest, Trickle};
pub use signing_key::SigningKey;
pub use superlink::{Patience, SuperLink};
pub use target::{Security, Target};
pub use trust::{Trust, TrustError};

//! The side of those who call a SuperLink: people with a shell, nodes that want to join, and nodes at work. Our own calls are
//! JSON over HTTP (`call`), made one at a time; Flower's, of nodes, go over gRPC or HTTP (`fleet`). Connections are trusted or
//! not made at all (`trust`).
//!
//! Knows nothing of command lines, and nothing of what is inside a SuperLink.

mod call;
mod connect;
mod error;
mod exchange;
pub mod fleet;
pub mod node_key;
mod superlink;
mod target;
mod trust;

pub use call::*;
pub use error::{Distrust, Error};
pub use node_key::NodeKey;
pub use superlink::{Patience, SuperLink};
pub use target::{Security, Target, Token, TokenError};
pub use trust::{Trust, TrustError};

//! The side of those who call a SuperLink: people with a shell, and nodes that want to join. Calls are JSON over HTTP
//! (`call`), made one at a time over connections that are trusted or not made at all (`trust`).
//!
//! Knows nothing of command lines, and nothing of what is inside a SuperLink.

mod call;
mod error;
mod exchange;
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

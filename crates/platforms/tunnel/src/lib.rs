//! WireGuard between sites: keys, configuration, and what brings a gateway up; what `wg` tells of it.
//!
//! Pure: nothing here runs a program, opens a file or knows a clock. Whoever has a [`Config`] need not check it again: no
//! value in it can break out of its line.

mod commands;
mod config;
mod key;
mod state;
mod unit;

pub use commands::{Device, down, forward, up};
pub use config::{Config, Draft, Peer, PeerDraft};
pub use key::{KeyError, PrivateKey, PublicKey};
pub use state::{PeerState, State};
pub use unit::unit;

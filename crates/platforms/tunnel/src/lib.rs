//! WireGuard between sites: keys, configuration, commands, and the state that `wg` reports.
//!
//! Pure: runs no program and opens no file. A [`Config`] is validated: no value in it can add a line.

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

//! The SuperLink: front ends over the link core.
//!
//! `link` joins core, store and waiting room; `state` is the store that the program chose; `api` holds the calls; `front` brings them over the wire, gRPC and HTTP;
//! `dialect` knows what differs between versions of Flower; `launch` starts ServerApps.

mod api;
mod app_trust;
mod changes;
mod clock;
pub mod config;
mod convert;
mod defaults;
mod dialect;
mod draining;
mod fab;
mod first_account;
mod front;
mod identity;
mod launch;
mod link;
pub mod log_tail;
mod objects;
mod refusals;
mod serve;
mod shards;
mod state;
mod upkeep;
mod wake;
pub mod watch;

/// Every call that is served, for those who test that none is forgotten.
pub mod calls {
    pub use crate::front::rpc::{ALL, Access, Api, On, Rpc};
    pub use trellis_front::Transport;
}

/// Decoders of data from unknown senders, exported for fuzzing.
pub mod decoders {
    pub use crate::dialect::Client;
    pub use crate::identity::{Identities, Signature, decode_key};
}

pub use first_account::chosen_token;
pub use launch::interpreter_of;
pub use serve::{Addresses, ServeError, SuperLink, serve};
pub use state::{Directory, OpenError, State};

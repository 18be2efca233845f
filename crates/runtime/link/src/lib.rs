//! The SuperLink: front ends on the link core.
//!
//! `link` joins core, store and waiting room; `state` is the store that the program chose; `api` holds the handlers;
//! `front` serves them over gRPC and HTTP; `dialect` implements the differences of Flower's releases; `launch` starts
//! ServerApps.
//!
//! # Invariants
//! - Only calls in the table `front/rpc.rs` are served; each row has its permission. A test makes every call as every
//!   caller without it.
//! - The sender of a call is known from its headers before its body is read or memory is taken (`front/sender.rs`). A
//!   loopback address proves no identity (`app_trust`).
//! - Handlers do not know the transport or the release of their caller: `dialect` has the differences between
//!   releases, `trellis-front` the framing.
//! - Errors map to numbers of Flower in `front/refusal.rs`, to gRPC codes and HTTP statuses in `trellis-front`.
//!   Transient errors are UNAVAILABLE, or 503.
//! - Every wait has a limit and ends on shutdown (`WaitingRoom`); every buffer has a limit (`config::Limits`).
//! - State in memory (hot objects, parsed keys, counters) may be lost or stale without harm.
//! - Object bytes are never whole in memory unless small, and never parsed beyond their header, except small records
//!   (metrics, round) for `watch`, on which no decision depends.
//! - A ServerApp outlives the SuperLink that started it; the next SuperLink finds it by a mark in its environment.
//!   While its process lives, no second one is started for the run.
//! - A run selects nodes of one numbering of the data. What the control plane assigns may be lost; then all nodes are
//!   selected.
//! - Link, node and train do not know each other: they meet on the wire.

mod api;
mod app_logs;
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

/// The table of calls, for tests that check every call.
pub mod calls {
    pub use crate::front::rpc::{ALL, Access, Api, On, Rpc};
    pub use trellis_front::Transport;
}

/// Decoders of data from unknown senders, exported for fuzzing.
pub mod decoders {
    pub use crate::dialect::Client;
    pub use crate::identity::{Identities, Signature, decode_key};
}

pub use first_account::configured_token;
pub use launch::{interpreter_of, on_path};
pub use serve::{Addresses, ServeError, SuperLink, serve};
pub use state::{Directory, OpenError, State};

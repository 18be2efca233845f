//! The SuperLink: front ends over the link core.
//!
//! `link` joins core, store and waiting room; `api` holds the calls; `grpc` brings them over the wire; `launch` starts
//! ServerApps. A new front end (another transport, another dialect) sits beside `grpc` and uses `api`.

mod api;
mod clock;
pub mod config;
mod convert;
mod fab;
mod grpc;
mod identity;
mod launch;
mod link;
mod objects;
mod serve;
mod upkeep;
mod wake;
pub mod watch;

pub use serve::{Addresses, ServeError, StateVerdict, SuperLink, check_state, serve};
pub use trellis_store_sqlite::crash::POINTS as CRASH_POINTS;

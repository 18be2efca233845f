//! The server of the control plane. `platform` reconciles federations and follows their runs; `http` serves the REST API and the
//! page.
//!
//! # Invariants
//! - The REST API is the only way to change a federation; reads are answered from memory.
//! - A preview creates no client, file or task, and observes only connections of the applied document. Without a
//!   server it uses a copy of the registry.
//! - Runs are stored as last observed, and outlive their federation until it is purged.
//! - Every SuperLink that we start requires accounts; only its owner can read its admin token.

mod http;
mod platform;

pub use http::{Bound, Limits, ServeError, ServeSettings, SignOnSettings, serve};
pub use platform::{
    Applied, Platform, PlatformSettings, Refusal, SimulatedSites, SiteDrivers, StartError, copy_command,
    register_site_kinds,
};

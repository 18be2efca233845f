//! OpenNebula as its callers see it. Knows nothing of federations: what a VM or a service means is for the callers.

mod backoff;
mod endpoint;
pub mod gate;
mod http;
pub mod keys;
mod trust;

pub use backoff::Backoff;
pub use endpoint::{Endpoint, EndpointError};
pub use http::{Patience, TransportError};
pub use trust::{Trust, TrustError};

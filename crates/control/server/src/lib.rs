//! The control plane at work. `platform` keeps federations as their documents say and knows their runs; `http` is the REST
//! API and the page in front of it.

mod http;
mod platform;

pub use http::{Bound, Limits, ServeError, ServeSettings, serve};
pub use platform::{
    Applied, Platform, PlatformSettings, Refusal, SimulatedSites, SiteDrivers, StartError, copy_command,
    register_site_kinds,
};

//! The control plane at work. `platform` keeps federations as their documents say and knows their runs; `http` is the REST
//! API and the page in front of it.

mod platform;

pub use platform::{Applied, Platform, PlatformSettings, Refusal, SimulatedSites, SiteDrivers, StartError};

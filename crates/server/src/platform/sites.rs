//! Which driver makes things exist at a site, and what is known about them beside what the driver port tells.
//!
//! A new driver has its place here, and nowhere else in the platform.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use trellis_driver_local::{LocalDriver, LocalSettings};
use trellis_driver_one::{HouseSettings, OneHouse};
use trellis_plan::{Driver, ResourceId};
use trellis_spec::{self as spec, Federation, Name};

use super::shared::Bells;
use super::simulated::{SimulatedDriver, SimulatedSites};
use super::{PlatformSettings, StartError};

/// Below the home: what the drivers of OpenNebula sites keep.
const OPENNEBULA: &str = "opennebula";

/// Who makes things exist.
#[derive(Debug, Clone, Default)]
pub enum SiteDrivers {
    /// The driver that each site names.
    #[default]
    Real,
    /// All sites are simulated, whatever they name.
    Simulated(Arc<SimulatedSites>),
}

pub struct Sites {
    kind: Kind,
}

/// Sites where something may be, as the last document had them that named them; `None`: none that was kept.
pub type Remembered = BTreeMap<Name, Option<spec::Site>>;

enum Kind {
    Real { local: Arc<LocalDriver>, one: Arc<OneHouse> },
    Simulated(Arc<SimulatedDriver>),
}

impl Sites {
    /// `bells` are rung when a driver notices something by itself.
    pub fn open(settings: &PlatformSettings, bells: Arc<Bells>) -> Result<Sites, StartError> {
        let kind = match &settings.sites {
            SiteDrivers::Simulated(sites) => Kind::Simulated(Arc::new(SimulatedDriver(Arc::clone(sites)))),
            SiteDrivers::Real => {
                let local = LocalSettings { directory: settings.directory.clone(), program: settings.program.clone() };
                let ring = Arc::new(move |federation: &Name| bells.ring(federation));
                let local = Arc::new(LocalDriver::open(local, ring.clone())?);
                let elsewhere = Arc::clone(&local);
                let house = HouseSettings {
                    trust: Arc::new(move |federation: &Name| elsewhere.trust_path(federation)),
                    ..HouseSettings::new(settings.directory.join(OPENNEBULA), ring)
                };
                Kind::Real { local, one: OneHouse::open(house) }
            }
        };
        Ok(Sites { kind })
    }

    /// The drivers of a federation's sites, and of those that left its document while something may still be there.
    pub fn drivers(&self, federation: Option<&Federation>, remembered: &Remembered) -> BTreeMap<Name, Arc<dyn Driver>> {
        let named = federation.iter().flat_map(|federation| &federation.sites);
        let named = named.filter_map(|site| Some((site.name.clone(), self.driver(site)?)));
        let left = remembered.iter().filter_map(|(name, site)| {
            let driver = match site {
                Some(site) => self.driver(site)?,
                // It left its document before sites were kept, when there was but this one.
                None => self.usual(),
            };
            Some((name.clone(), driver))
        });
        let mut drivers: BTreeMap<Name, Arc<dyn Driver>> = left.collect();
        drivers.extend(named);
        drivers
    }

    /// Why nothing can be made at a site.
    pub fn lacking(&self, site: &spec::Site) -> Option<String> {
        let word = match &site.driver {
            spec::Driver::Local { .. } => "local",
            spec::Driver::OpenNebula(_) => "opennebula",
            spec::Driver::Kubernetes(_) => "kubernetes",
        };
        let missing = self.driver(site).is_none();
        missing.then(|| format!("site {} wants the driver {word}, which this program does not have", site.name))
    }

    /// The driver of a site as a document has it; `None`: this program has none for it.
    pub fn driver(&self, site: &spec::Site) -> Option<Arc<dyn Driver>> {
        match (&self.kind, &site.driver) {
            (Kind::Simulated(_), _) | (Kind::Real { .. }, spec::Driver::Local { .. }) => Some(self.usual()),
            (Kind::Real { one, .. }, spec::Driver::OpenNebula(zone)) => Some(Arc::new(one.site(&site.name, zone))),
            (Kind::Real { .. }, spec::Driver::Kubernetes(_)) => None,
        }
    }

    fn usual(&self) -> Arc<dyn Driver> {
        match &self.kind {
            Kind::Real { local, .. } => Arc::clone(local) as Arc<dyn Driver>,
            Kind::Simulated(driver) => Arc::clone(driver) as Arc<dyn Driver>,
        }
    }

    /// Where a part writes what it says; `None`: not on this machine.
    pub fn log_path(&self, id: &ResourceId) -> Option<PathBuf> {
        match &self.kind {
            Kind::Real { one, .. } if one.keeps(&id.federation, &id.site) => None,
            Kind::Real { local, .. } => Some(local.log_path(id)),
            Kind::Simulated(_) => None,
        }
    }

    /// The authorities that users of a federation must trust, as a file; `None`: those of the system.
    pub fn trust_path(&self, federation: &Federation) -> Option<PathBuf> {
        match (&self.kind, &federation.security.tls) {
            (_, spec::Tls::Off) => None,
            (_, spec::Tls::Files { trust, .. }) => Some(trust.clone()),
            (Kind::Real { one, .. }, spec::Tls::Auto) if is_far(federation) => one.trust_path(&federation.name),
            (Kind::Real { local, .. }, spec::Tls::Auto) => local.trust_path(&federation.name),
            (Kind::Simulated(_), spec::Tls::Auto) => None,
        }
    }

    /// Where the SuperLink of a federation puts the token of its first administrator; `None`: it asks nobody who he is.
    pub fn token_path(&self, federation: &Federation) -> Option<PathBuf> {
        match &self.kind {
            Kind::Real { one, .. } if is_far(federation) => one.token_path(&federation.name),
            Kind::Real { local, .. } => local.token_path(&federation.name),
            Kind::Simulated(_) => None,
        }
    }
}

/// Whether the coordinator is a VM of an OpenNebula site.
fn is_far(federation: &Federation) -> bool {
    let site = federation.sites.get(federation.coordinator.site);
    site.is_some_and(|site| matches!(site.driver, spec::Driver::OpenNebula(_)))
}

//! Which driver makes things exist at a site, and what is known about them beside what the driver port tells.
//!
//! A new driver has its place here, and nowhere else in the platform.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use trellis_driver_kube::{KubeHouse, KubeHouseSettings};
use trellis_driver_local::{LocalDriver, LocalSettings};
use trellis_driver_one::{HouseSettings, OneHouse};
use trellis_plan::{Driver, ResourceId, Why};
use trellis_spec::{self as spec, Federation, Name};

use super::preview::{self, NO_SERVER, NOT_APPLIED, Observer, PreviewDriver};
use super::shared::Bells;
use super::simulated::{SimulatedDriver, SimulatedSites};
use super::view::View;
use super::{PlatformSettings, StartError};

/// Below the home: what the drivers of OpenNebula sites keep.
const OPENNEBULA: &str = "opennebula";
/// Below the home of simulated sites, as the local driver has it.
const MODELS: &str = "models";
/// Below the home: copies of what users of coordinators in clusters need.
const KUBERNETES: &str = "kubernetes";

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
    Real {
        local: Arc<LocalDriver>,
        one: Arc<OneHouse>,
        kube: Arc<KubeHouse>,
    },
    Simulated {
        driver: Arc<SimulatedDriver>,
        directory: PathBuf,
    },
    /// No driver is open: sites can be planned, not observed.
    Closed,
}

impl Sites {
    /// Sites for plans without a server.
    pub fn closed() -> Sites {
        Sites { kind: Kind::Closed }
    }

    /// `bells` are rung when a driver notices something by itself.
    pub fn open(settings: &PlatformSettings, bells: Arc<Bells>) -> Result<Sites, StartError> {
        let kind = match &settings.sites {
            SiteDrivers::Simulated(sites) => {
                let driver = Arc::new(SimulatedDriver(Arc::clone(sites)));
                Kind::Simulated { driver, directory: settings.directory.clone() }
            }
            SiteDrivers::Real => {
                let local = LocalSettings { directory: settings.directory.clone(), program: settings.program.clone() };
                let ring = Arc::new(move |federation: &Name| bells.ring(federation));
                let local = Arc::new(LocalDriver::open(local, ring.clone())?);
                // Nodes of each kind of site trust the coordinators of the others.
                let (near, home) = (Arc::clone(&local), settings.directory.join(KUBERNETES));
                let in_clusters = home.clone();
                let of_one = HouseSettings {
                    trust: Arc::new(move |federation: &Name| {
                        let in_cluster = trellis_driver_kube::trust_path(&in_clusters, federation);
                        in_cluster.or_else(|| near.trust_path(federation))
                    }),
                    ..HouseSettings::new(settings.directory.join(OPENNEBULA), ring)
                };
                let one = OneHouse::open(of_one);
                let (near, far) = (Arc::clone(&local), Arc::clone(&one));
                let of_kube = KubeHouseSettings {
                    trust: Arc::new(move |federation: &Name| {
                        far.trust_path(federation).or_else(|| near.trust_path(federation))
                    }),
                    ..KubeHouseSettings::new(home)
                };
                Kind::Real { local, one, kube: KubeHouse::open(of_kube) }
            }
        };
        Ok(Sites { kind })
    }

    /// The drivers of a federation's sites, and of those that left its document while something may still be there.
    pub fn drivers(&self, federation: Option<&Federation>, remembered: &Remembered) -> BTreeMap<Name, Arc<dyn Driver>> {
        let named = federation.iter().flat_map(|federation| &federation.sites);
        let named = named.map(|site| (site.name.clone(), self.driver(site)));
        // One that left its document before sites were kept did so when there was but the usual driver.
        let driver = |site: &Option<spec::Site>| site.as_ref().map_or_else(|| self.usual(), |site| self.driver(site));
        let left = remembered.iter().map(|(name, site)| (name.clone(), driver(site)));
        let mut drivers: BTreeMap<Name, Arc<dyn Driver>> = left.collect();
        drivers.extend(named);
        drivers
    }

    /// Read-only drivers for planning a document, and the sites that they do not observe. `applied` is the document
    /// that an administrator applied for the same federation; `known` are the sites that may have parts of it.
    pub fn preview_drivers(
        &self,
        federation: &Federation,
        applied: Option<&Federation>,
        known: &BTreeSet<Name>,
        remembered: &Remembered,
    ) -> (BTreeMap<Name, Arc<dyn Driver>>, Vec<Why>) {
        let mut drivers = self.drivers(None, remembered);
        let mut notes = Vec::new();
        for site in &federation.sites {
            let (is_local, is_known) = (matches!(site.driver, spec::Driver::Local { .. }), known.contains(&site.name));
            let observer = match &self.kind {
                // Both observe only processes that this server started.
                Kind::Simulated { .. } => Observer::Driver(self.usual()),
                Kind::Real { .. } if is_local => Observer::Driver(self.usual()),
                Kind::Closed if is_known => Observer::Unknown(NO_SERVER),
                Kind::Closed => Observer::Empty,
                Kind::Real { .. } => match preview::applied_as(site, applied) {
                    Some(applied) => Observer::Driver(self.driver(applied)),
                    None if is_known => Observer::Unknown(NOT_APPLIED),
                    None => Observer::Empty,
                },
            };
            if matches!(observer, Observer::Empty) && !is_local {
                notes.push(preview::not_observed(&site.name));
            }
            drivers.insert(site.name.clone(), PreviewDriver::new(&site.driver, observer));
        }
        (drivers, notes)
    }

    /// The driver of a site as a document has it.
    pub fn driver(&self, site: &spec::Site) -> Arc<dyn Driver> {
        match (&self.kind, &site.driver) {
            (Kind::Simulated { .. }, _) | (Kind::Real { .. }, spec::Driver::Local { .. }) => self.usual(),
            (Kind::Real { one, .. }, spec::Driver::OpenNebula(zone)) => Arc::new(one.site(&site.name, zone)),
            (Kind::Real { kube, .. }, spec::Driver::Kubernetes(place)) => Arc::new(kube.site(&site.name, place)),
            (Kind::Closed, driver) => PreviewDriver::new(driver, Observer::Unknown(NO_SERVER)),
        }
    }

    fn usual(&self) -> Arc<dyn Driver> {
        match &self.kind {
            Kind::Real { local, .. } => Arc::clone(local) as Arc<dyn Driver>,
            Kind::Simulated { driver, .. } => Arc::clone(driver) as Arc<dyn Driver>,
            Kind::Closed => {
                let local = spec::Driver::Local { containers: spec::Containers::No };
                PreviewDriver::new(&local, Observer::Unknown(NO_SERVER))
            }
        }
    }

    /// Where a part writes what it says; `None`: not on this machine.
    pub fn log_path(&self, id: &ResourceId) -> Option<PathBuf> {
        match &self.kind {
            Kind::Real { one, .. } if one.keeps(&id.federation, &id.site) => None,
            Kind::Real { kube, .. } if kube.keeps(&id.federation, &id.site) => None,
            Kind::Real { local, .. } => Some(local.log_path(id)),
            Kind::Simulated { .. } | Kind::Closed => None,
        }
    }

    /// Where a part writes what it says if that is not on this machine, in words.
    pub async fn log_place(&self, view: &View, id: &ResourceId) -> String {
        let site = view.federation.iter().flat_map(|federation| &federation.sites).find(|site| site.name == id.site);
        match (&self.kind, site.map(|site| &site.driver)) {
            (Kind::Real { one, .. }, _) if one.keeps(&id.federation, &id.site) => one.log_place(id).await,
            (Kind::Real { .. }, Some(spec::Driver::Kubernetes(kube))) => {
                let command = trellis_driver_kube::log_command(kube, id);
                format!("the log of {} is in the cluster of site {}: {command}", id.part.name(), id.site)
            }
            _ => format!("{} has no log on this machine", id.part.name()),
        }
    }

    /// Where the coordinator of a federation saves models; `None`: not on this machine.
    pub fn models_path(&self, federation: &Federation) -> Option<PathBuf> {
        match (&self.kind, coordinator(federation)) {
            (Kind::Real { .. }, Some(spec::Driver::OpenNebula(_) | spec::Driver::Kubernetes(_))) => None,
            (Kind::Real { local, .. }, _) => Some(local.models_path(&federation.name)),
            (Kind::Closed, _) => None,
            (Kind::Simulated { directory, .. }, _) => Some(directory.join(MODELS).join(federation.name.as_str())),
        }
    }

    /// The authorities that users of a federation must trust, as a file; `None`: those of the system.
    pub fn trust_path(&self, federation: &Federation) -> Option<PathBuf> {
        match (&self.kind, &federation.security.tls) {
            (_, spec::Tls::Off) => None,
            (_, spec::Tls::Files { trust, .. }) => Some(trust.clone()),
            (Kind::Real { local, one, kube }, spec::Tls::Auto) => match coordinator(federation) {
                Some(spec::Driver::OpenNebula(_)) => one.trust_path(&federation.name),
                Some(spec::Driver::Kubernetes(_)) => kube.trust_path(&federation.name),
                Some(spec::Driver::Local { .. }) | None => local.trust_path(&federation.name),
            },
            (Kind::Simulated { .. } | Kind::Closed, spec::Tls::Auto) => None,
        }
    }

    /// Where the SuperLink of a federation puts the token of its first administrator; `None`: it asks nobody who he is.
    pub fn token_path(&self, federation: &Federation) -> Option<PathBuf> {
        match &self.kind {
            Kind::Real { local, one, kube } => match coordinator(federation) {
                Some(spec::Driver::OpenNebula(_)) => one.token_path(&federation.name),
                Some(spec::Driver::Kubernetes(_)) => kube.token_path(&federation.name),
                Some(spec::Driver::Local { .. }) | None => local.token_path(&federation.name),
            },
            Kind::Simulated { .. } | Kind::Closed => None,
        }
    }
}

/// What makes the coordinator exist.
fn coordinator(federation: &Federation) -> Option<&spec::Driver> {
    federation.sites.get(federation.coordinator.site).map(|site| &site.driver)
}

//! The registry of drivers, and the drivers of sites.
//!
//! A new driver needs one line in [`DRIVERS`], and nothing else in the platform.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use trellis_api::Detail;
use trellis_plan::{Driver, DriverContext, DriverKind, DriverRetries, OpenDriver, ResourceId, Why};
use trellis_spec::{self as spec, Federation, Name, SiteConfig};

use super::document::wrong;
use super::preview::{self, NO_SERVER, NOT_APPLIED, Observer, PreviewDriver};
use super::shared::Wakers;
use super::simulated::{SimulatedDriver, SimulatedSites};
use super::view::View;
use super::{PlatformSettings, StartError};

/// All drivers. The first one is for sites without a kind.
const DRIVERS: &[&dyn DriverKind] = &[
    &trellis_driver_local::Local,
    #[cfg(feature = "opennebula")]
    &trellis_driver_one::OpenNebula,
    #[cfg(feature = "kubernetes")]
    &trellis_driver_kube::Kubernetes,
];

/// Registers the site kinds of all drivers with the parser of documents.
pub fn register_site_kinds() {
    DRIVERS.iter().for_each(|driver| driver.site_kind().register());
}

/// The command that copies a directory of a coordinator to this machine; `None` if it is on this machine.
pub fn copy_command(site: &SiteConfig, host: &str, directory: &str) -> Option<String> {
    of_kind(DRIVERS, site.kind())?.copy_command(site, host, directory)
}

fn of_kind(drivers: &[&'static dyn DriverKind], kind: &str) -> Option<&'static dyn DriverKind> {
    drivers.iter().copied().find(|driver| driver.site_kind().name == kind)
}

/// Which drivers the platform uses.
#[derive(Debug, Clone)]
pub enum SiteDrivers {
    /// The driver of the kind of each site.
    Real(Vec<&'static dyn DriverKind>),
    /// Simulates all sites, of any kind.
    Simulated(Arc<SimulatedSites>),
}

impl Default for SiteDrivers {
    fn default() -> SiteDrivers {
        SiteDrivers::Real(DRIVERS.to_vec())
    }
}

pub struct Sites {
    drivers: Vec<&'static dyn DriverKind>,
    /// By kind; empty if sites can only be planned, not observed.
    open: BTreeMap<&'static str, Arc<dyn OpenDriver>>,
    is_simulated: bool,
}

/// Sites where parts may exist, from the last document that had them; `None`: not stored.
pub type Remembered = BTreeMap<Name, Option<spec::Site>>;

impl Sites {
    /// Sites for plans without a server.
    pub fn closed() -> Sites {
        Sites::new(DRIVERS.to_vec())
    }

    fn new(drivers: Vec<&'static dyn DriverKind>) -> Sites {
        drivers.iter().for_each(|driver| driver.site_kind().register());
        Sites { drivers, open: BTreeMap::new(), is_simulated: false }
    }

    /// `wakers`: for drivers that notice a change.
    pub fn open(settings: &PlatformSettings, wakers: Arc<Wakers>) -> Result<Sites, StartError> {
        match &settings.sites {
            SiteDrivers::Simulated(sites) => {
                let (sites, directory) = (Arc::clone(sites), settings.directory.clone());
                let driver: Arc<dyn OpenDriver> = Arc::new(SimulatedDriver { sites, directory });
                let open = DRIVERS.iter().map(|kind| (kind.site_kind().name, Arc::clone(&driver)));
                Ok(Sites { open: open.collect(), is_simulated: true, ..Sites::closed() })
            }
            SiteDrivers::Real(drivers) => {
                let mut sites = Sites::new(drivers.clone());
                let trust = Arc::new(OnceLock::new());
                for driver in drivers {
                    let kind = driver.site_kind().name;
                    let wakers = Arc::clone(&wakers);
                    let context = DriverContext {
                        directory: settings.directory.clone(),
                        program: settings.program.clone(),
                        wake: Arc::new(move |federation: &Name| wakers.wake(federation)),
                        trust: trust_elsewhere(kind, &trust),
                        retries: DriverRetries::DEFAULT,
                    };
                    let open = driver.open(context).map_err(|source| StartError::Driver { kind, source })?;
                    sites.open.insert(kind, open);
                }
                let all = sites.open.iter().map(|(kind, driver)| (*kind, Arc::downgrade(driver)));
                trust.get_or_init(|| all.collect());
                Ok(sites)
            }
        }
    }

    /// The drivers of a federation's sites, and of sites that were removed from its document but may have parts.
    pub fn drivers(&self, federation: Option<&Federation>, remembered: &Remembered) -> BTreeMap<Name, Arc<dyn Driver>> {
        let named = federation.iter().flat_map(|federation| &federation.sites);
        let named = named.map(|site| (site.name.clone(), site.clone()));
        let removed =
            remembered.iter().map(|(name, site)| (name.clone(), site.clone().unwrap_or_else(|| not_stored(name))));
        let all = removed.chain(named);
        all.filter_map(|(name, site)| Some((name, self.driver(&site)?))).collect()
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
            let Some(kind) = of_kind(&self.drivers, site.config.kind()) else { continue };
            let (is_here, is_known) = (site.config.traits().on_this_machine, known.contains(&site.name));
            // Simulated sites and this machine only have parts that this server created.
            let observed = match self.is_simulated || is_here {
                true => self.driver(site),
                false => preview::applied_as(kind, site, applied).and_then(|applied| self.driver(applied)),
            };
            let observer = match observed {
                Some(driver) if !self.open.is_empty() => Observer::Driver(driver),
                _ if is_known && self.open.is_empty() => Observer::Unknown(NO_SERVER),
                _ if is_known => Observer::Unknown(NOT_APPLIED),
                _ => Observer::Empty,
            };
            if matches!(observer, Observer::Empty) && !is_here {
                notes.push(preview::not_observed(&site.name));
            }
            drivers.insert(site.name.clone(), PreviewDriver::new(kind, site, observer));
        }
        (drivers, notes)
    }

    /// The driver of a site; `None` if there is none of its kind.
    fn driver(&self, site: &spec::Site) -> Option<Arc<dyn Driver>> {
        match self.open.get(site.config.kind()) {
            Some(open) => Some(Arc::clone(open).site(site)),
            None if !self.open.is_empty() => None,
            None => {
                let kind = of_kind(&self.drivers, site.config.kind())?;
                Some(PreviewDriver::new(kind, site, Observer::Unknown(NO_SERVER)))
            }
        }
    }

    /// Fields of sites that the control plane must not use.
    pub fn reject(&self, federation: &Federation) -> Vec<Detail> {
        let mut details = Vec::new();
        for (index, site) in federation.sites.iter().enumerate() {
            let kind = site.config.kind();
            let rejected = of_kind(&self.drivers, kind).map(|driver| driver.reject(&site.config)).unwrap_or_default();
            details.extend(rejected.into_iter().map(|rejected| {
                wrong(&format!("spec.sites[{index}].{kind}.{}", rejected.field), rejected.what, rejected.advice)
            }));
        }
        details
    }

    /// The log of a part; `None`: it is not on this machine.
    pub fn log_path(&self, view: &View, id: &ResourceId) -> Option<PathBuf> {
        self.driver_of_part(view, id)?.log_path(id)
    }

    /// Describes where the log of a part is, if it is not on this machine.
    pub async fn describe_log(&self, view: &View, id: &ResourceId) -> String {
        match self.driver_of_part(view, id) {
            Some(driver) => driver.describe_log(site_of(view, &id.site), id).await,
            None => format!("{} has no log on this machine", id.part.name()),
        }
    }

    /// The driver that created a part, or else the driver of its site in the document.
    fn driver_of_part(&self, view: &View, id: &ResourceId) -> Option<&Arc<dyn OpenDriver>> {
        let creator = self.open.values().find(|driver| driver.has_parts(&id.federation, &id.site));
        creator.or_else(|| self.open.get(site_of(view, &id.site)?.config.kind()))
    }

    /// Where the coordinator of a federation saves models; `None`: not on this machine.
    pub fn models_path(&self, federation: &Federation) -> Option<PathBuf> {
        self.coordinator(federation)?.models_path(&federation.name)
    }

    /// The authorities that users of a federation must trust, as a file; `None`: those of the system.
    pub fn trust_path(&self, federation: &Federation) -> Option<PathBuf> {
        match &federation.security.tls {
            spec::Tls::Off => None,
            spec::Tls::Files { trust, .. } => Some(trust.clone()),
            spec::Tls::Auto => self.coordinator(federation)?.trust_path(&federation.name),
        }
    }

    /// Where the SuperLink of a federation puts the token of its first administrator; `None`: it has no accounts.
    pub fn token_path(&self, federation: &Federation) -> Option<PathBuf> {
        self.coordinator(federation)?.token_path(&federation.name)
    }

    /// The driver of the coordinator.
    fn coordinator(&self, federation: &Federation) -> Option<&Arc<dyn OpenDriver>> {
        let site = federation.sites.get(federation.coordinator.site)?;
        self.open.get(site.config.kind())
    }
}

type OpenDrivers = Vec<(&'static str, Weak<dyn OpenDriver>)>;

/// Finds the authorities of coordinators at sites of other kinds. Holds weak references, so that it does not keep drivers open.
fn trust_elsewhere(own: &'static str, drivers: &Arc<OnceLock<OpenDrivers>>) -> trellis_plan::TrustElsewhere {
    let drivers = Arc::clone(drivers);
    Arc::new(move |federation: &Name| {
        let others = drivers.get()?.iter().filter(|(kind, _)| *kind != own);
        others.filter_map(|(_, driver)| driver.upgrade()).find_map(|driver| driver.trust_path(federation))
    })
}

fn site_of<'a>(view: &'a View, name: &Name) -> Option<&'a spec::Site> {
    view.federation.as_ref()?.sites.iter().find(|site| site.name == *name)
}

/// Sites removed before the registry stored sites were all local.
fn not_stored(name: &Name) -> spec::Site {
    let (config, link) = (SiteConfig::default(), spec::Link::Direct);
    spec::Site { name: name.clone(), config, max_nodes: None, link, idle_timeout: None }
}

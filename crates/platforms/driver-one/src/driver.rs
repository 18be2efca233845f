//! The driver port on OpenNebula. A new driver continues what an earlier one started.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinSet;
use trellis_one::keys::FL_ERROR;
use trellis_plan::{
    Action, Call, Capabilities, Desired, Driver, DriverContext, DriverKind, DriverRetries, Observation, OpenDriver,
    OpenError, Outcome, RejectedField, Rendering, ResourceId, TrustElsewhere, Wake,
};
use trellis_spec::{Name, OneSite, Site, SiteConfig, SiteFields, SiteKind};

use crate::cloud::Cloud;
use crate::fleet::Fleet;
use crate::history::Limits;
use crate::home;
use crate::preview::preview;
use crate::reconciler::{self, PollIntervals};
use crate::view::VmView;

/// Kind of the sites in documents, and the driver's directory in the state directory of the control plane.
pub const KIND: &str = OneSite::NAME;

#[derive(Clone)]
pub struct OneSettings {
    /// Directory of all OpenNebula sites.
    pub directory: PathBuf,
    pub limits: Limits,
    pub retries: DriverRetries,
    pub intervals: PollIntervals,
    pub trust: TrustElsewhere,
    pub wake: Wake,
}

impl OneSettings {
    pub fn new(directory: PathBuf, wake: Wake) -> OneSettings {
        let (limits, intervals, trust) = (Limits::default(), PollIntervals::default(), Arc::new(|_: &Name| None));
        OneSettings { directory, limits, retries: DriverRetries::DEFAULT, intervals, trust, wake }
    }
}

/// All OpenNebula sites of a control plane. A federation is opened by its first call, and stays open.
pub struct OneSites {
    settings: OneSettings,
    fleets: Mutex<BTreeMap<(Name, Name), Arc<Fleet>>>,
    /// One for each configuration of a site.
    clouds: Mutex<Vec<Arc<Cloud>>>,
    reconcilers: Mutex<JoinSet<()>>,
}

/// One site of a document.
pub struct OneDriver {
    sites: Arc<OneSites>,
    site: Name,
    cloud: Arc<Cloud>,
}

impl OneSites {
    /// Requires a runtime when a site is used.
    pub fn open(settings: OneSettings) -> Arc<OneSites> {
        let reconcilers = Mutex::new(JoinSet::new());
        Arc::new(OneSites { settings, fleets: Mutex::default(), clouds: Mutex::default(), reconcilers })
    }

    pub fn zone(self: &Arc<Self>, site: &Name, one: &OneSite) -> OneDriver {
        let mut clouds = locked(&self.clouds);
        let known = clouds.iter().find(|cloud| cloud.one == *one).cloned();
        let cloud = known.unwrap_or_else(|| {
            let cloud = Arc::new(Cloud::new(one.clone()));
            clouds.push(Arc::clone(&cloud));
            cloud
        });
        OneDriver { sites: Arc::clone(self), site: site.clone(), cloud }
    }

    fn fleet(&self, federation: &Name, site: &Name, cloud: &Arc<Cloud>) -> Result<Arc<Fleet>, String> {
        let mut fleets = locked(&self.fleets);
        let key = (federation.clone(), site.clone());
        if let Some(fleet) = fleets.get(&key) {
            return Ok(Arc::clone(fleet));
        }
        let fleet = Fleet::open(&self.settings, federation, site, cloud);
        let fleet = Arc::new(fleet.map_err(|error| error.to_string())?);
        fleets.insert(key, Arc::clone(&fleet));
        locked(&self.reconcilers).spawn(reconciler::run(Arc::clone(&fleet)));
        Ok(fleet)
    }
}

impl OneDriver {
    fn fleet(&self, federation: &Name) -> Result<Arc<Fleet>, String> {
        self.sites.fleet(federation, &self.site, &self.cloud)
    }
}

impl Driver for OneDriver {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn observe<'a>(&'a self, federation: &'a Name, _site: &'a Name) -> Call<'a, Observation> {
        Box::pin(async move {
            match self.fleet(federation) {
                Ok(fleet) => fleet.observe(&self.cloud).await,
                Err(why) => Observation::Unreachable { why },
            }
        })
    }

    fn apply<'a>(&'a self, action: &'a Action) -> Call<'a, Outcome> {
        Box::pin(async move {
            let fleet = match self.fleet(&action.id().federation) {
                Ok(fleet) => fleet,
                Err(why) => return Outcome::Refused { why, retry: true },
            };
            fleet.set_cloud(&self.cloud);
            let outcome = fleet.apply(action).await;
            outcome.unwrap_or_else(|error| Outcome::Failed { why: error.to_string() })
        })
    }

    fn set_desired(&self, federation: &Name, _site: &Name, wanted: &[&Desired]) {
        if let Ok(fleet) = self.fleet(federation) {
            fleet.set_cloud(&self.cloud);
            fleet.hear(wanted);
        }
    }
}

impl OpenDriver for OneSites {
    fn site(self: Arc<Self>, site: &Site) -> Arc<dyn Driver> {
        let zone = zone(&site.config);
        Arc::new(self.zone(&site.name, &zone))
    }

    fn has_parts(&self, federation: &Name, site: &Name) -> bool {
        home::Home::new(&self.settings.directory, federation, site).site().is_dir()
    }

    fn describe_log<'a>(&'a self, _site: Option<&'a Site>, id: &'a ResourceId) -> Call<'a, String> {
        Box::pin(async move {
            let fleet = locked(&self.fleets).get(&(id.federation.clone(), id.site.clone())).cloned();
            let vm = match fleet {
                Some(fleet) => fleet.vm_of(id).await,
                None => None,
            };
            describe_log(id, vm.as_ref())
        })
    }

    fn trust_path(&self, federation: &Name) -> Option<PathBuf> {
        Some(home::trust(&self.settings.directory, federation)).filter(|path| path.exists())
    }

    fn token_path(&self, federation: &Name) -> Option<PathBuf> {
        Some(home::admin_token(&self.settings.directory, federation)).filter(|path| path.exists())
    }
}

/// The driver of OpenNebula, for the registry of drivers.
#[derive(Debug)]
pub struct OpenNebula;

impl DriverKind for OpenNebula {
    fn site_kind(&self) -> SiteKind {
        SiteKind::of::<OneSite>()
    }

    fn open(&self, context: DriverContext) -> Result<Arc<dyn OpenDriver>, OpenError> {
        let settings = OneSettings::new(context.directory.join(KIND), context.wake);
        Ok(OneSites::open(OneSettings { trust: context.trust, retries: context.retries, ..settings }))
    }

    fn is_same_connection(&self, one: &SiteConfig, other: &SiteConfig) -> bool {
        let (one, other) = (zone(one), zone(other));
        (one.endpoint, one.flow, one.zone, one.auth_file) == (other.endpoint, other.flow, other.zone, other.auth_file)
    }

    fn reject(&self, site: &SiteConfig) -> Vec<RejectedField> {
        let zone = zone(site);
        let urls = zone.plain_http().into_iter().filter(|_| !zone.allow_plain_http);
        let advice = "use https, or add allowPlainHttp: true if the whole network is trusted";
        let rejected = urls.map(|(field, url)| RejectedField {
            field,
            what: format!("{url} is on another machine, and the credentials would not be encrypted"),
            advice,
        });
        rejected.collect()
    }

    fn render(&self, federation: &Name, site: &Site, desired: &[Desired]) -> Vec<Rendering> {
        preview(&zone(&site.config), federation, &site.name, desired)
    }

    fn copy_command(&self, _site: &SiteConfig, host: &str, directory: &str) -> Option<String> {
        Some(format!("scp -r 'root@{host}:{directory}' ."))
    }
}

/// The fields of an OpenNebula site.
pub fn zone(site: &SiteConfig) -> OneSite {
    site.get().expect("the registry of drivers selects by kind")
}

fn describe_log(id: &ResourceId, vm: Option<&VmView>) -> String {
    let part = id.part.name();
    let Some(vm) = vm else { return format!("{part} has no VM at site {} and therefore no log", id.site) };
    let address = vm.addresses.first().map_or("ADDRESS", String::as_str);
    let said = vm.attribute(FL_ERROR).map(|error| format!("; its agent reports {error}")).unwrap_or_default();
    format!(
        "the log of {part} is in VM {} at site {} ({}, {address}): ssh root@{address} journalctl -u 'trellis-*'{said}",
        vm.id, id.site, vm.state
    )
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn the_place_of_a_log_names_the_vm_and_what_is_wrong_with_it() {
        let id = testing::id("f/lab/node/cpu-0");
        assert_eq!(describe_log(&id, None), "cpu-0 has no VM at site lab and therefore no log");
        let mut vm = testing::vm(4, &[(FL_ERROR, "port_busy: 9092")]);
        (vm.state, vm.addresses) = ("ACTIVE/RUNNING".to_owned(), vec!["10.0.0.4".to_owned()]);
        assert_eq!(
            describe_log(&id, Some(&vm)),
            "the log of cpu-0 is in VM 4 at site lab (ACTIVE/RUNNING, 10.0.0.4): ssh root@10.0.0.4 journalctl -u \
             'trellis-*'; its agent reports port_busy: 9092"
        );
    }
}

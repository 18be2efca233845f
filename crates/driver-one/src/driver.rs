//! The driver port on OpenNebula. Whoever opens it finds again what was begun, whatever became of who began it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinSet;
use trellis_one::keys::FL_ERROR;
use trellis_plan::{Action, Call, Capabilities, Desired, Driver, Observation, Outcome, Rendering, ResourceId};
use trellis_spec::{Name, OneSite};

use crate::cloud::Cloud;
use crate::fleet::Fleet;
use crate::home;
use crate::keeper::{self, Pace};
use crate::memory::Limits;
use crate::preview::preview;
use crate::view::VmSeen;

pub type Wake = Arc<dyn Fn(&Name) + Send + Sync>;
/// The authorities of a coordinator that is not at an OpenNebula site, as a file.
pub type TrustElsewhere = Arc<dyn Fn(&Name) -> Option<PathBuf> + Send + Sync>;

#[derive(Clone)]
pub struct HouseSettings {
    /// Where the drivers of all OpenNebula sites keep things.
    pub directory: PathBuf,
    pub limits: Limits,
    pub pace: Pace,
    pub trust: TrustElsewhere,
    /// Called with the name of a federation of which a part became ready, ended or went.
    pub wake: Wake,
}

impl HouseSettings {
    pub fn new(directory: PathBuf, wake: Wake) -> HouseSettings {
        let (limits, pace, trust) = (Limits::default(), Pace::default(), Arc::new(|_: &Name| None));
        HouseSettings { directory, limits, pace, trust, wake }
    }
}

/// All OpenNebula sites of a control plane. Federations are taken up when they are first asked for, and kept from then on.
pub struct OneHouse {
    settings: HouseSettings,
    fleets: Mutex<BTreeMap<(Name, Name), Arc<Fleet>>>,
    /// One for each way in which a site was ever described.
    clouds: Mutex<Vec<Arc<Cloud>>>,
    keepers: Mutex<JoinSet<()>>,
}

/// One site as a document has it.
pub struct OneDriver {
    house: Arc<OneHouse>,
    site: Name,
    cloud: Arc<Cloud>,
}

impl OneHouse {
    /// Needs a runtime when a site is used.
    pub fn open(settings: HouseSettings) -> Arc<OneHouse> {
        let keepers = Mutex::new(JoinSet::new());
        Arc::new(OneHouse { settings, fleets: Mutex::default(), clouds: Mutex::default(), keepers })
    }

    pub fn site(self: &Arc<Self>, site: &Name, one: &OneSite) -> OneDriver {
        let mut clouds = locked(&self.clouds);
        let known = clouds.iter().find(|cloud| cloud.one == *one).cloned();
        let cloud = known.unwrap_or_else(|| {
            let cloud = Arc::new(Cloud::new(one.clone()));
            clouds.push(Arc::clone(&cloud));
            cloud
        });
        OneDriver { house: Arc::clone(self), site: site.clone(), cloud }
    }

    /// Whom users of a federation must trust; `None`: it has no TLS, or its coordinator has not said so yet.
    pub fn trust_path(&self, federation: &Name) -> Option<PathBuf> {
        Some(home::trust(&self.settings.directory, federation)).filter(|path| path.exists())
    }

    /// Whether parts of a federation at a site are machines of ours.
    pub fn keeps(&self, federation: &Name, site: &Name) -> bool {
        home::Home::new(&self.settings.directory, federation, site).site().is_dir()
    }

    /// The token of the SuperLink's first admin.
    pub fn token_path(&self, federation: &Name) -> Option<PathBuf> {
        Some(home::admin_token(&self.settings.directory, federation)).filter(|path| path.exists())
    }

    /// A text that says where the log of a part is.
    pub async fn log_place(&self, id: &ResourceId) -> String {
        let fleet = locked(&self.fleets).get(&(id.federation.clone(), id.site.clone())).cloned();
        let vm = match fleet {
            Some(fleet) => fleet.vm_of(id).await,
            None => None,
        };
        log_place(id, vm.as_ref())
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
        locked(&self.keepers).spawn(keeper::keep(Arc::clone(&fleet)));
        Ok(fleet)
    }
}

impl OneDriver {
    fn fleet(&self, federation: &Name) -> Result<Arc<Fleet>, String> {
        self.house.fleet(federation, &self.site, &self.cloud)
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
            fleet.move_to(&self.cloud);
            let outcome = fleet.apply(action).await;
            outcome.unwrap_or_else(|error| Outcome::Failed { why: error.to_string() })
        })
    }

    fn hear(&self, federation: &Name, _site: &Name, wanted: &[&Desired]) {
        if let Ok(fleet) = self.fleet(federation) {
            fleet.move_to(&self.cloud);
            fleet.hear(wanted);
        }
    }

    fn preview(&self, federation: &Name, site: &Name, wanted: &[Desired]) -> Vec<Rendering> {
        preview(&self.cloud.one, federation, site, wanted)
    }
}

fn log_place(id: &ResourceId, vm: Option<&VmSeen>) -> String {
    let part = id.part.name();
    let Some(vm) = vm else { return format!("{part} has no VM at site {}, and so no log", id.site) };
    let address = vm.addresses.first().map_or("ADDRESS", String::as_str);
    let said = vm.attribute(FL_ERROR).map(|error| format!("; its agent says {error}")).unwrap_or_default();
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
        assert_eq!(log_place(&id, None), "cpu-0 has no VM at site lab, and so no log");
        let mut vm = testing::vm(4, &[(FL_ERROR, "port_busy: 9092")]);
        (vm.state, vm.addresses) = ("ACTIVE/RUNNING".to_owned(), vec!["10.0.0.4".to_owned()]);
        assert_eq!(
            log_place(&id, Some(&vm)),
            "the log of cpu-0 is in VM 4 at site lab (ACTIVE/RUNNING, 10.0.0.4): ssh root@10.0.0.4 journalctl -u \
             'trellis-*'; its agent says port_busy: 9092"
        );
    }
}

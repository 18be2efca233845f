//! The driver port on OpenNebula. Whoever opens it finds again what was begun, whatever became of who began it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinSet;
use trellis_plan::{Action, Call, Capabilities, Desired, Driver, Observation, Outcome, Rendering};
use trellis_spec::{Name, OneSite};

use crate::cloud::Cloud;
use crate::fleet::Fleet;
use crate::home;
use crate::keeper::{self, Pace};
use crate::memory::Limits;
use crate::preview::preview;

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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

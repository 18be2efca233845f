//! The driver port on OpenNebula. Whoever opens it finds again what was begun, whatever became of who began it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinSet;
use trellis_plan::{Action, Call, Capabilities, Desired, Driver, Observation, Outcome, Rendering};
use trellis_spec::{Name, OneSite};

use crate::fleet::Fleet;
use crate::home::Home;
use crate::keeper::{self, Pace};
use crate::memory::Limits;
use crate::preview::preview;

pub type Wake = Arc<dyn Fn(&Name) + Send + Sync>;
/// The authorities of a coordinator that is not at an OpenNebula site, as a file.
pub type TrustElsewhere = Arc<dyn Fn(&Name) -> Option<PathBuf> + Send + Sync>;

#[derive(Clone)]
pub struct OneSettings {
    /// Where the drivers of all OpenNebula sites keep things.
    pub directory: PathBuf,
    pub site: Name,
    pub one: OneSite,
    pub limits: Limits,
    pub pace: Pace,
    pub trust: TrustElsewhere,
}

impl OneSettings {
    pub fn new(directory: PathBuf, site: Name, one: OneSite) -> OneSettings {
        let (limits, pace, trust) = (Limits::default(), Pace::default(), Arc::new(|_: &Name| None));
        OneSettings { directory, site, one, limits, pace, trust }
    }
}

/// One site. Federations are taken up when they are first asked for.
pub struct OneDriver {
    settings: OneSettings,
    wake: Wake,
    fleets: Mutex<BTreeMap<Name, Arc<Fleet>>>,
    keepers: Mutex<JoinSet<()>>,
}

impl OneDriver {
    /// `wake` is called with the name of a federation of which a part became ready, ended or went. Needs a runtime.
    pub fn open(settings: OneSettings, wake: Wake) -> OneDriver {
        OneDriver { settings, wake, fleets: Mutex::default(), keepers: Mutex::new(JoinSet::new()) }
    }

    /// Whom users of a federation must trust; `None`: it has no TLS, or its coordinator has not said so yet.
    pub fn trust_path(&self, federation: &Name) -> Option<PathBuf> {
        Some(self.home(federation).trust()).filter(|path| path.exists())
    }

    /// The token of the SuperLink's first admin.
    pub fn token_path(&self, federation: &Name) -> Option<PathBuf> {
        Some(self.home(federation).admin_token()).filter(|path| path.exists())
    }

    fn home(&self, federation: &Name) -> Home {
        Home::new(&self.settings.directory, federation, &self.settings.site)
    }

    fn fleet(&self, federation: &Name) -> Result<Arc<Fleet>, String> {
        let mut fleets = locked(&self.fleets);
        if let Some(fleet) = fleets.get(federation) {
            return Ok(Arc::clone(fleet));
        }
        let OneSettings { directory, site, one, limits, pace, trust } = &self.settings;
        let trust = trust(federation);
        let fleet = Fleet::open(directory, federation, site, one, *limits, trust, Arc::clone(&self.wake));
        let fleet = Arc::new(fleet.map_err(|error| error.to_string())?);
        fleets.insert(federation.clone(), Arc::clone(&fleet));
        locked(&self.keepers).spawn(keeper::keep(Arc::clone(&fleet), *pace));
        Ok(fleet)
    }
}

impl Driver for OneDriver {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn observe<'a>(&'a self, federation: &'a Name, _site: &'a Name) -> Call<'a, Observation> {
        Box::pin(async move {
            match self.fleet(federation) {
                Ok(fleet) => fleet.observe().await,
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
            let outcome = fleet.apply(action).await;
            outcome.unwrap_or_else(|error| Outcome::Failed { why: error.to_string() })
        })
    }

    fn hear(&self, federation: &Name, _site: &Name, wanted: &[&Desired]) {
        if let Ok(fleet) = self.fleet(federation) {
            fleet.hear(wanted);
        }
    }

    fn preview(&self, federation: &Name, site: &Name, wanted: &[Desired]) -> Vec<Rendering> {
        preview(&self.settings.one, federation, site, wanted)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The driver port on Kubernetes. Whoever opens it finds again what was begun, whatever became of who began it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trellis_plan::{Action, Call, Capabilities, Desired, Driver, Observation, Outcome, Rendering};
use trellis_spec::{KubeSite, Name};

use crate::cluster::Cluster;
use crate::fleet::{Fleet, Memory};
use crate::home::Home;
use crate::preview::preview;

/// The authorities of a coordinator that is not at a Kubernetes site, as a file.
pub type TrustElsewhere = Arc<dyn Fn(&Name) -> Option<PathBuf> + Send + Sync>;

#[derive(Clone)]
pub struct KubeHouseSettings {
    /// Where copies are put of what users need.
    pub directory: PathBuf,
    pub trust: TrustElsewhere,
}

impl KubeHouseSettings {
    pub fn new(directory: PathBuf) -> KubeHouseSettings {
        KubeHouseSettings { directory, trust: Arc::new(|_: &Name| None) }
    }
}

/// All Kubernetes sites of a control plane.
pub struct KubeHouse {
    settings: KubeHouseSettings,
    /// One for each way in which a site was ever described.
    clusters: Mutex<Vec<Arc<Cluster>>>,
    memories: Mutex<BTreeMap<(Name, Name), Arc<Memory>>>,
}

/// One site as a document has it.
pub struct KubeDriver {
    house: Arc<KubeHouse>,
    site: Name,
    cluster: Arc<Cluster>,
}

impl KubeHouse {
    /// Nothing is asked before a site is used.
    pub fn open(settings: KubeHouseSettings) -> Arc<KubeHouse> {
        Arc::new(KubeHouse { settings, clusters: Mutex::default(), memories: Mutex::default() })
    }

    pub fn site(self: &Arc<Self>, site: &Name, kube: &KubeSite) -> KubeDriver {
        let mut clusters = locked(&self.clusters);
        let known = clusters.iter().find(|cluster| cluster.site == *kube).cloned();
        let cluster = known.unwrap_or_else(|| {
            let cluster = Arc::new(Cluster::new(kube.clone()));
            clusters.push(Arc::clone(&cluster));
            cluster
        });
        KubeDriver { house: Arc::clone(self), site: site.clone(), cluster }
    }

    /// Whom users of a federation must trust; `None`: it has no TLS, or its coordinator is not made yet.
    pub fn trust_path(&self, federation: &Name) -> Option<PathBuf> {
        trust_path(&self.settings.directory, federation)
    }

    /// The token of the SuperLink's first administrator.
    pub fn token_path(&self, federation: &Name) -> Option<PathBuf> {
        Some(self.home(federation).admin_token()).filter(|path| path.exists())
    }

    /// Whether parts of a federation at a site are pods.
    pub fn keeps(&self, federation: &Name, site: &Name) -> bool {
        locked(&self.memories).contains_key(&(federation.clone(), site.clone()))
    }

    fn home(&self, federation: &Name) -> Home {
        Home::new(&self.settings.directory, federation)
    }
}

/// The same, for those who only know where the copies are.
pub fn trust_path(directory: &Path, federation: &Name) -> Option<PathBuf> {
    Some(Home::new(directory, federation).trust()).filter(|path| path.exists())
}

impl KubeDriver {
    fn fleet(&self, federation: &Name) -> Fleet {
        let key = (federation.clone(), self.site.clone());
        let memory = Arc::clone(locked(&self.house.memories).entry(key).or_default());
        Fleet {
            federation: federation.clone(),
            site: self.site.clone(),
            cluster: Arc::clone(&self.cluster),
            home: self.house.home(federation),
            trust: Arc::clone(&self.house.settings.trust),
            memory,
        }
    }
}

impl Driver for KubeDriver {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn observe<'a>(&'a self, federation: &'a Name, _site: &'a Name) -> Call<'a, Observation> {
        Box::pin(async move { self.fleet(federation).observe().await })
    }

    fn apply<'a>(&'a self, action: &'a Action) -> Call<'a, Outcome> {
        Box::pin(async move {
            let outcome = self.fleet(&action.id().federation).apply(action).await;
            outcome.unwrap_or_else(|trouble| trouble.outcome())
        })
    }

    fn hear(&self, federation: &Name, _site: &Name, _wanted: &[&Desired]) {
        let fleet = self.fleet(federation);
        if fleet.memory.begin_tending() {
            tokio::spawn(async move { fleet.tend().await });
        }
    }

    fn preview(&self, federation: &Name, site: &Name, wanted: &[Desired]) -> Vec<Rendering> {
        preview(&self.cluster.site, federation, site, wanted)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

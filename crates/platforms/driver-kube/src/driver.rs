//! Implements the driver port on Kubernetes. All state is in the cluster, so a new process resumes what an earlier one started.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trellis_plan::{
    Action, Call, Capabilities, Desired, Driver, DriverContext, DriverKind, Observation, OpenDriver, OpenError,
    Outcome, Rendering, ResourceId, TrustElsewhere,
};
use trellis_spec::{KubeSite, Name, Site, SiteConfig, SiteKind};

use crate::client_files::ClientFiles;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::federation::{FederationAtSite, Memory};
use crate::names::log_command;
use crate::preview::preview;

/// Below the state directory of the control plane.
const DIRECTORY: &str = "kubernetes";

#[derive(Clone)]
pub struct KubeSettings {
    /// Directory of the files for clients.
    pub directory: PathBuf,
    pub trust: TrustElsewhere,
}

/// All Kubernetes sites of a control plane.
pub struct KubeSites {
    settings: KubeSettings,
    /// One for each distinct site configuration.
    clusters: Mutex<Vec<Arc<Cluster>>>,
    memories: Mutex<BTreeMap<(Name, Name), Arc<Memory>>>,
}

/// One site of a document.
pub struct KubeDriver {
    sites: Arc<KubeSites>,
    site: Name,
    cluster: Arc<Cluster>,
}

impl KubeSites {
    /// Calls no cluster before a site is used.
    pub fn open(settings: KubeSettings) -> Arc<KubeSites> {
        Arc::new(KubeSites { settings, clusters: Mutex::default(), memories: Mutex::default() })
    }

    pub fn namespace(self: &Arc<Self>, site: &Name, kube: &KubeSite) -> KubeDriver {
        let mut clusters = locked(&self.clusters);
        let known = clusters.iter().find(|cluster| cluster.site == *kube).cloned();
        let cluster = known.unwrap_or_else(|| {
            let cluster = Arc::new(Cluster::new(kube.clone()));
            clusters.push(Arc::clone(&cluster));
            cluster
        });
        KubeDriver { sites: Arc::clone(self), site: site.clone(), cluster }
    }

    fn files(&self, federation: &Name) -> ClientFiles {
        ClientFiles::new(&self.settings.directory, federation)
    }
}

impl KubeDriver {
    fn federation(&self, federation: &Name) -> FederationAtSite {
        let key = (federation.clone(), self.site.clone());
        let memory = Arc::clone(locked(&self.sites.memories).entry(key).or_default());
        FederationAtSite {
            federation: federation.clone(),
            site: self.site.clone(),
            cluster: Arc::clone(&self.cluster),
            files: self.sites.files(federation),
            trust: Arc::clone(&self.sites.settings.trust),
            memory,
        }
    }
}

impl Driver for KubeDriver {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn observe<'a>(&'a self, federation: &'a Name, _site: &'a Name) -> Call<'a, Observation> {
        Box::pin(async move { self.federation(federation).observe().await })
    }

    fn apply<'a>(&'a self, action: &'a Action) -> Call<'a, Outcome> {
        Box::pin(async move {
            let outcome = self.federation(&action.id().federation).apply(action).await;
            outcome.unwrap_or_else(Failure::outcome)
        })
    }

    fn set_desired(&self, federation: &Name, _site: &Name, _wanted: &[&Desired]) {
        let federation = self.federation(federation);
        if federation.memory.start_maintenance() {
            tokio::spawn(async move { federation.maintain().await });
        }
    }
}

impl OpenDriver for KubeSites {
    fn site(self: Arc<Self>, site: &Site) -> Arc<dyn Driver> {
        Arc::new(self.namespace(&site.name, &namespace(&site.config)))
    }

    fn has_parts(&self, federation: &Name, site: &Name) -> bool {
        locked(&self.memories).contains_key(&(federation.clone(), site.clone()))
    }

    fn describe_log<'a>(&'a self, site: Option<&'a Site>, id: &'a ResourceId) -> Call<'a, String> {
        let command = site.and_then(|site| site.config.get()).map(|site| log_command(&site, id));
        let command = command.map(|command| format!(": {command}")).unwrap_or_default();
        let place = format!("the log of {} is in the cluster of site {}{command}", id.part.name(), id.site);
        Box::pin(std::future::ready(place))
    }

    fn trust_path(&self, federation: &Name) -> Option<PathBuf> {
        Some(self.files(federation).trust()).filter(|path| path.exists())
    }

    fn token_path(&self, federation: &Name) -> Option<PathBuf> {
        Some(self.files(federation).admin_token()).filter(|path| path.exists())
    }
}

/// The driver of Kubernetes, for the registry of drivers.
#[derive(Debug)]
pub struct Kubernetes;

impl DriverKind for Kubernetes {
    fn site_kind(&self) -> SiteKind {
        SiteKind::of::<KubeSite>()
    }

    fn open(&self, context: DriverContext) -> Result<Arc<dyn OpenDriver>, OpenError> {
        let directory = context.directory.join(DIRECTORY);
        Ok(KubeSites::open(KubeSettings { directory, trust: context.trust }))
    }

    fn is_same_connection(&self, one: &SiteConfig, other: &SiteConfig) -> bool {
        let (one, other) = (namespace(one), namespace(other));
        (one.kubeconfig, one.context, one.namespace) == (other.kubeconfig, other.context, other.namespace)
    }

    fn render(&self, federation: &Name, site: &Site, desired: &[Desired]) -> Vec<Rendering> {
        preview(&namespace(&site.config), federation, desired)
    }

    fn copy_command(&self, site: &SiteConfig, _host: &str, directory: &str) -> Option<String> {
        let namespace = namespace(site).namespace;
        Some(format!("kubectl --namespace {namespace} cp POD:{directory} .  (POD: that of the coordinator)"))
    }
}

fn namespace(site: &SiteConfig) -> KubeSite {
    site.get().expect("the registry of drivers selects by kind")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

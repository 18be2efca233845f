//! A kubelet for tests, for any number of nodes: it registers nodes, renews their leases, and reports the pods on them
//! as running, or runs them as processes. Scheduling and creating pods is left to the control plane.
//!
//! `pretend` computes the status of pods that are not run, by the `rules` of the test; `processes` runs pods; `pods`
//! writes their status; `node` maintains nodes; `storage` provisions volumes.

mod node;
mod pods;
mod pretend;
pub mod processes;
pub mod rules;
mod storage;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use futures_util::{Stream, stream};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::sync::{oneshot, watch};

use node::Nodes;
use pods::Says;
use processes::{Engine, Network, ProcessSettings};
use rules::{Behaviour, Pods, Rules};
use storage::Places;

/// Concurrent requests. Tests create thousands of pods.
const POD_WORKERS: u16 = 32;
/// Subdirectory with the content of volumes, by name.
const CLAIMS: &str = "claims";

#[derive(Debug, Clone)]
pub struct Settings {
    pub nodes: Vec<NodeSettings>,
    pub storage: Storage,
    /// Runs pods as processes; `None`: only reports them as running.
    pub processes: Option<ProcessSettings>,
    /// For pods of a real kubelet on the same machine.
    pub service: Option<ServiceSettings>,
}

/// Replaces kube-proxy, a name server and a volume provisioner.
#[derive(Debug, Clone)]
pub struct ServiceSettings {
    pub name_server: SocketAddr,
    /// Directory with the content of volumes.
    pub volumes: PathBuf,
}

#[derive(Debug, Clone, Default)]
pub struct NodeSettings {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Further resources of a node: `nvidia.com/gpu`, `8`.
    pub resources: BTreeMap<String, String>,
}

/// Provisioning of volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// Claims stay pending: a cluster without a storage class.
    Nothing,
    /// A storage class with this name, whose claims get volumes.
    Class { name: String, is_default: bool },
}

impl Settings {
    /// Nodes `<prefix>-0` to `<prefix>-<count - 1>`, and a default storage class `standard`.
    pub fn nodes(prefix: &str, count: usize) -> Settings {
        let node = |index| NodeSettings { name: format!("{prefix}-{index}"), ..NodeSettings::default() };
        let storage = Storage::Class { name: "standard".to_owned(), is_default: true };
        Settings { nodes: (0..count).map(node).collect(), storage, processes: None, service: None }
    }
}

/// Runs until it is dropped, on a thread of its own, so that tests of any kind can share one.
pub struct Kubelet {
    rules: Arc<Rules>,
    nodes: Arc<Nodes>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Kubelet {
    /// Registers the nodes before it returns.
    ///
    /// # Panics
    /// If the API server cannot be called.
    pub fn start(kubeconfig: &Path, settings: Settings) -> Kubelet {
        let rules = Arc::new(Rules::default());
        let nodes = Arc::new(Nodes::new(settings.nodes.clone()));
        let (stop, stopped) = oneshot::channel();
        let (started, wait) = mpsc::channel();
        let (kubeconfig, for_rules, for_nodes) = (kubeconfig.to_owned(), Arc::clone(&rules), Arc::clone(&nodes));
        let thread = thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let work = Work::begin(&kubeconfig, settings, for_rules, for_nodes).await;
                let result = work.as_ref().map(|_| ()).map_err(String::clone);
                let _ = started.send(result);
                let Ok(work) = work else { return };
                tokio::select! {
                    () = work.go_on() => {}
                    _ = stopped => {}
                }
            });
        });
        wait.recv().expect("an answer").unwrap_or_else(|why| panic!("the kubelet cannot work: {why}"));
        Kubelet { rules, nodes, stop: Some(stop), thread: Some(thread) }
    }

    /// Sets the behaviour of pods, including existing ones. The last matching rule applies.
    pub fn let_pods(&self, pods: Pods, behaviour: Behaviour) {
        self.rules.add(pods, behaviour);
    }

    /// Simulates a lost machine: the node and its pods are not ready, and pods that are deleted stay.
    pub fn lose_node(&self, name: &str) {
        self.nodes.set_lost(name, true);
    }

    pub fn find_node(&self, name: &str) {
        self.nodes.set_lost(name, false);
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The tasks of the kubelet.
struct Work {
    client: Client,
    nodes: Arc<Nodes>,
    says: Says,
    engine: Option<Arc<Engine>>,
    network: Option<Network>,
    storage: Storage,
    places: Option<Places>,
}

impl Work {
    async fn begin(
        kubeconfig: &Path,
        settings: Settings,
        rules: Arc<Rules>,
        nodes: Arc<Nodes>,
    ) -> Result<Work, String> {
        let failed = |why: kube::Error| why.to_string();
        let config = config(kubeconfig).await?;
        let api_server = address_of(&config.cluster_url)?;
        let client = Client::try_from(config).map_err(failed)?;
        let own =
            settings.processes.as_ref().map(|own| Places { directory: own.directory.join(CLAIMS), are_made: false });
        let beside =
            settings.service.as_ref().map(|beside| Places { directory: beside.volumes.clone(), are_made: true });
        let places = own.or(beside);
        let network = match settings.service {
            None => None,
            Some(service) => Some(Network::start(&client, api_server, service.name_server).await?),
        };
        let (engine, says) = match settings.processes {
            None => (None, Says::Test(rules)),
            Some(processes) => {
                let engine = Arc::new(Engine::start(&client, processes, api_server).await?);
                (Some(Arc::clone(&engine)), Says::Engine(engine))
            }
        };
        nodes.register(&client).await.map_err(failed)?;
        storage::register(&client, &settings.storage).await.map_err(failed)?;
        Ok(Work { client, nodes, says, engine, network, storage: settings.storage, places })
    }

    /// Never returns.
    async fn go_on(self) {
        let Work { client, nodes, says, engine, network, storage, places } = self;
        let network = async {
            match (&engine, &network) {
                (Some(engine), _) => engine.serve().await,
                (None, Some(network)) => network.serve().await,
                (None, None) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = nodes.keep_alive(&client) => {}
            () = pods::serve(client.clone(), says, Arc::clone(&nodes)) => {}
            () = storage::serve(client.clone(), storage, places) => {}
            () = network => {}
        }
    }
}

/// Each change as an item. The value is only a signal.
fn changes_of(receiver: watch::Receiver<()>) -> impl Stream<Item = ()> + Send + 'static {
    stream::unfold(receiver, |mut receiver| async move { receiver.changed().await.ok().map(|()| ((), receiver)) })
}

async fn config(kubeconfig: &Path) -> Result<Config, String> {
    // Another library of this process may have installed a provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let read = Kubeconfig::read_from(kubeconfig).map_err(|why| why.to_string())?;
    Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(|why| why.to_string())
}

fn address_of(url: &http::Uri) -> Result<SocketAddr, String> {
    let text = format!("{}:{}", url.host().unwrap_or_default(), url.port_u16().unwrap_or(443));
    text.parse().map_err(|_| format!("the API server is at {url}, which is no address"))
}

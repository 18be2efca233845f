//! Runs pods as processes of this machine, each pod in a network namespace of its own, each container with its own view
//! of the file system. Images are directories with programs (`images`); a proxy serves service addresses.
//!
//! `expand`, `plan`, `names`, `dns` and `status` are pure; `sandbox`, `container`, `volumes`, `probe` and `proxy` act;
//! `life` runs one pod; `network` has services and names for pods of a real kubelet. Needs root and a private network
//! namespace. There are no cgroups: limits are not enforced.

mod command;
mod container;
mod dns;
mod expand;
pub mod images;
mod life;
mod names;
mod network;
mod plan;
mod probe;
mod proxy;
mod sandbox;
mod status;
mod volumes;
mod world;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio::sync::watch;

pub(crate) use network::Network;

use images::Images;
use life::Life;
use proxy::Proxy;
use status::SharedReport;
use world::World;

const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 244, 0, 1]);
/// Changes within this time are handled together.
const SETTLE: Duration = Duration::from_millis(30);
/// Hosts file of the network of the kubelet; pods have their own.
const HOSTS: &str = "hosts";

/// Directory of the pods, and content of their images.
#[derive(Debug, Clone)]
pub struct ProcessSettings {
    /// `hosts` is for programs outside of pods; `logs/<namespace>_<pod>/<container>.log` has the output of containers.
    pub directory: PathBuf,
    pub images: Images,
}

pub(crate) struct Engine {
    shared: Arc<Shared>,
    api_server: SocketAddr,
    pods: Mutex<HashMap<String, Entry>>,
    changed: Arc<watch::Sender<()>>,
}

struct Entry {
    report: Arc<SharedReport>,
    stop: watch::Sender<Option<Duration>>,
}

/// State that all pods share.
struct Shared {
    client: Client,
    world: Arc<World>,
    images: Images,
    directory: PathBuf,
    next_address: AtomicU32,
    /// Namespace and suffix of the hosts file, by the directory of the pod.
    named: Mutex<BTreeMap<PathBuf, (String, String)>>,
}

impl Engine {
    pub async fn start(client: &Client, settings: ProcessSettings, api_server: SocketAddr) -> Result<Engine, String> {
        sandbox::prepare_network().await?;
        let directory = settings.directory;
        fs::create_dir_all(&directory).map_err(|why| format!("{}: {why}", directory.display()))?;
        let shared = Shared {
            world: Arc::new(World::watch(client).await),
            client: client.clone(),
            images: settings.images,
            directory,
            next_address: AtomicU32::new(FIRST_ADDRESS),
            named: Mutex::default(),
        };
        Ok(Engine {
            shared: Arc::new(shared),
            api_server,
            pods: Mutex::default(),
            changed: Arc::new(watch::Sender::new(())),
        })
    }

    /// The status of a pod may have changed.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The status of a pod. Starts unknown pods.
    pub fn status_of(&self, pod: &Pod) -> Value {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = pods.entry(pod.uid().unwrap_or_default()).or_insert_with(|| self.begin(pod));
        entry.report.read(status::PodReport::status)
    }

    fn begin(&self, pod: &Pod) -> Entry {
        let changed = Arc::clone(&self.changed);
        let report = SharedReport::new(Life::first_report(pod), move || changed.send_replace(()));
        let (report, (stop, stopped)) = (Arc::new(report), watch::channel(None));
        let life =
            Life { shared: Arc::clone(&self.shared), pod: pod.clone(), report: Arc::clone(&report), stop: stopped };
        tokio::spawn(life.live());
        Entry { report, stop }
    }

    /// Terminates a pod; true when it has ended, else a later call returns it.
    pub fn end(&self, pod: &Pod) -> bool {
        let uid = pod.uid().unwrap_or_default();
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = pods.get(&uid) else { return true };
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or_default().max(1).unsigned_abs();
        entry.stop.send_if_modified(|stop| stop.is_none() && stop.replace(Duration::from_secs(grace)).is_none());
        let is_gone = entry.report.read(|report| report.is_gone);
        if is_gone {
            pods.remove(&uid);
        }
        is_gone
    }

    /// The status of a terminating pod.
    pub fn last_status_of(&self, pod: &Pod) -> Option<Value> {
        let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        pods.get(&pod.uid()?).map(|entry| entry.report.read(status::PodReport::status))
    }

    /// Updates names and addresses of services, and terminates pods that were removed from the API server. Never
    /// returns.
    pub async fn serve(&self) {
        let mut proxy = Proxy::default();
        let mut changed = self.shared.world.changes();
        loop {
            let world = &self.shared.world;
            let (services, slices) = (world.services.state(), world.slices.state());
            proxy.follow(names::routes(&services, &slices, self.api_server)).await;
            self.shared.update_names();
            self.end_removed();
            if changed.changed().await.is_err() {
                return std::future::pending().await;
            }
            tokio::time::sleep(SETTLE).await;
            changed.mark_unchanged();
        }
    }

    fn end_removed(&self) {
        let there: std::collections::HashSet<String> =
            self.shared.world.pods.state().iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        pods.retain(|uid, entry| {
            if !there.contains(uid) {
                entry.stop.send_if_modified(|stop| stop.is_none() && stop.replace(Duration::from_secs(1)).is_none());
            }
            there.contains(uid) || !entry.report.read(|report| report.is_gone)
        });
    }
}

impl Shared {
    /// Also returns a name for the interface of the pod.
    fn next_address(&self) -> (Ipv4Addr, String) {
        let number = self.next_address.fetch_add(1, Ordering::Relaxed);
        (Ipv4Addr::from(number), format!("pod{}", number - FIRST_ADDRESS))
    }

    fn claims(&self) -> PathBuf {
        self.directory.join(crate::CLAIMS)
    }

    fn directory_of(&self, pod: &Pod) -> PathBuf {
        let metadata = &pod.metadata;
        let name = [&metadata.namespace, &metadata.name, &metadata.uid]
            .map(|part| part.as_deref().unwrap_or_default())
            .join("_");
        self.directory.join("pods").join(name)
    }

    fn log_of(&self, pod: &Pod, container: &str) -> Result<PathBuf, String> {
        let directory =
            self.directory.join("logs").join(format!("{}_{}", pod.namespace().unwrap_or_default(), pod.name_any()));
        fs::create_dir_all(&directory).map_err(|why| format!("{}: {why}", directory.display()))?;
        Ok(directory.join(format!("{container}.log")))
    }

    /// Files that clients of the API server look for.
    fn service_variables(&self) -> [(String, String); 2] {
        let kubernetes = self.world.services.get(&ObjectRef::new("kubernetes").within("default"));
        let address = kubernetes.and_then(|service| service.spec.clone()?.cluster_ip).unwrap_or_default();
        [("KUBERNETES_SERVICE_HOST".to_owned(), address), ("KUBERNETES_SERVICE_PORT".to_owned(), "443".to_owned())]
    }

    fn write_names(&self, pod: &Pod, directory: &Path, address: Ipv4Addr) -> std::io::Result<()> {
        fs::create_dir_all(directory)?;
        let spec = pod.spec.clone().unwrap_or_default();
        let mut own = format!("{address} {}\n", plan::host_name(pod));
        for alias in spec.host_aliases.iter().flatten() {
            own +=
                &format!("{} {}\n", alias.ip, alias.hostnames.iter().flatten().cloned().collect::<Vec<_>>().join(" "));
        }
        // No name server: names are in the hosts file only.
        File::create(directory.join("resolv.conf"))?.write_all(b"")?;
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.insert(directory.to_owned(), (pod.namespace().unwrap_or_default(), own));
        drop(named);
        self.update_names();
        Ok(())
    }

    fn forget_hosts(&self, directory: &Path) {
        self.named.lock().unwrap_or_else(PoisonError::into_inner).remove(directory);
    }

    fn update_names(&self) {
        let (services, slices) = (self.world.services.state(), self.world.slices.state());
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let outside = (self.directory.clone(), (String::new(), String::new()));
        for (directory, (namespace, own)) in named.iter().chain([(&outside.0, &outside.1)]) {
            let content = names::hosts(namespace, &services, &slices) + own;
            if let Err(why) = overwrite(&directory.join(HOSTS), &content) {
                tracing::warn!(directory = %directory.display(), %why, "names are not up to date");
            }
        }
    }
}

/// Writes in place, because containers have mounted the file itself. Only its end is incomplete during the write.
fn overwrite(path: &Path, content: &str) -> std::io::Result<()> {
    let file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
    file.write_all_at(content.as_bytes(), 0)?;
    file.set_len(content.len() as u64)
}

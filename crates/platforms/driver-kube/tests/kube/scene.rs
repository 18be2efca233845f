//! A namespace of the shared control plane, and a driver with the permissions of the documented role.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use trellis_driver_kube::{KubeDriver, KubeSettings, KubeSites};
use trellis_fake_kubelet::{Kubelet, Settings};
use trellis_plan::conformance::specs;
use trellis_plan::{
    Action, CoordinatorSpec, Desired, Driver, Facts, NodeSpec, Observation, Order, Outcome, Phase, Presence,
    ResourceId, Spec, Verb,
};
use trellis_spec::{KubeSite, Name, Persistence};
use trellis_testing::kube::{ControlPlane, Parts, shared};

/// Longer than any step on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Kinds of objects of a federation.
const KINDS: &str = "statefulsets,pods,services,secrets,configmaps,persistentvolumeclaims,poddisruptionbudgets";

pub struct Scene {
    pub plane: &'static ControlPlane,
    pub kubelet: &'static Kubelet,
    pub namespace: String,
    kubeconfig: PathBuf,
    /// Replaced when the test loses the disk.
    directory: Mutex<TempDir>,
    driver: Mutex<Option<(Arc<KubeSites>, Arc<KubeDriver>)>>,
}

pub fn id(text: &str) -> ResourceId {
    ResourceId::try_from(text.to_owned()).expect("an id")
}

pub fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn cluster() -> Option<(&'static ControlPlane, &'static Kubelet)> {
    static KUBELET: OnceLock<Kubelet> = OnceLock::new();
    let plane = shared(Parts::WithScheduler)?;
    let kubelet = KUBELET.get_or_init(|| Kubelet::start(&plane.kubeconfig(), Settings::nodes("machine", 3)));
    Some((plane, kubelet))
}

impl Scene {
    /// `None`: no control plane is installed on this machine, which is printed.
    pub async fn new(prefix: &str) -> Option<Scene> {
        let (plane, kubelet) = tokio::task::spawn_blocking(cluster).await.expect("no panic")?;
        let namespace = plane.namespace(prefix);
        let user = format!("platform-of-{namespace}");
        let kubeconfig = plane.kubeconfig_for_user(&user, None);
        let scene = Scene {
            plane,
            kubelet,
            namespace,
            kubeconfig,
            directory: Mutex::new(TempDir::new().expect("a directory")),
            driver: Mutex::default(),
        };
        let role = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/kubernetes/platform-role.yaml");
        scene.kubectl(&["apply", "-f", &role.display().to_string()], "");
        scene.kubectl(&["create", "rolebinding", "platform", "--role=trellis-platform", &format!("--user={user}")], "");
        scene.open();
        Some(scene)
    }

    /// Runs kubectl as administrator in this namespace.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        let all: Vec<&str> = ["-n", &self.namespace].into_iter().chain(arguments.iter().copied()).collect();
        let output = self.plane.kubectl_with_input(&all, input);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Objects as JSON.
    pub fn get(&self, what: &[&str]) -> Value {
        let all: Vec<&str> = ["get"].into_iter().chain(what.iter().copied()).chain(["-o", "json"]).collect();
        serde_json::from_str(&self.kubectl(&all, "")).expect("JSON")
    }

    /// `kind/name` of everything that has our labels.
    pub fn ours(&self) -> Vec<String> {
        let text = self.kubectl(&["get", KINDS, "-l", "trellis.dev/federation", "-o", "name"], "");
        text.lines().map(str::to_owned).collect()
    }

    pub fn site(&self) -> KubeSite {
        KubeSite { kubeconfig: Some(self.kubeconfig.clone()), ..KubeSite::of(&self.namespace) }
    }

    /// Opens a driver with an empty disk.
    pub fn open(&self) {
        self.open_with(self.site());
    }

    pub fn open_with(&self, site: KubeSite) {
        let directory = TempDir::new().expect("a directory");
        let trust = directory.path().join("elsewhere.pem");
        std::fs::write(&trust, "-----BEGIN CERTIFICATE-----\n").expect("the file is written");
        let settings = KubeSettings {
            directory: directory.path().join("kubernetes"),
            trust: Arc::new(move |_: &Name| Some(trust.clone())),
        };
        let sites = KubeSites::open(settings);
        let driver = Arc::new(sites.namespace(&name("lab"), &site));
        *self.driver.lock().expect("nobody panics here") = Some((sites, driver));
        *self.directory.lock().expect("nobody panics here") = directory;
    }

    pub fn driver(&self) -> Arc<KubeDriver> {
        self.driver.lock().expect("nobody panics here").as_ref().expect("a driver is open").1.clone()
    }

    pub fn sites(&self) -> Arc<KubeSites> {
        self.driver.lock().expect("nobody panics here").as_ref().expect("a driver is open").0.clone()
    }

    pub async fn apply(&self, serial: u64, verb: Verb) -> Outcome {
        let order = Order { fence: 1, serial };
        self.driver().apply(&Action { order, verb }).await
    }

    pub async fn make(&self, serial: u64, verb: Verb) {
        let outcome = self.apply(serial, verb).await;
        assert!(matches!(outcome, Outcome::Done | Outcome::Started), "{outcome:?}");
    }

    pub async fn see(&self, id: &ResourceId) -> Presence {
        match self.driver().observe(&id.federation, &id.site).await {
            Observation::Unreachable { why } => panic!("the site cannot be reached: {why}"),
            Observation::Reached(seen) => seen.resources.get(id).cloned().unwrap_or(Presence::Absent),
        }
    }

    pub async fn until(&self, id: &ResourceId, what: &str, is_so: impl Fn(&Presence) -> bool) -> Presence {
        let begun = Instant::now();
        loop {
            let presence = self.see(id).await;
            if is_so(&presence) {
                return presence;
            }
            assert!(begun.elapsed() < TIMEOUT, "{id} does not become {what}: {presence:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub async fn until_ready(&self, desired: &Desired) -> Facts {
        let ready = |presence: &Presence| {
            let is_it = presence.generation() == Some(desired.generation);
            is_it && presence.facts().is_some_and(|facts| facts.phase == Phase::Ready)
        };
        let presence = self.until(&desired.id, "ready", ready).await;
        presence.facts().cloned().expect("it is ready")
    }

    pub async fn until_hindered(&self, id: &ResourceId, word: &str) -> String {
        let hindered = |presence: &Presence| {
            let waiting_for = presence.facts().and_then(|facts| facts.waiting_for.as_ref());
            waiting_for.is_some_and(|waiting_for| waiting_for.contains(word))
        };
        let presence = self.until(id, "hindered", hindered).await;
        presence.facts().and_then(|facts| facts.waiting_for.clone()).expect("it is hindered")
    }

    pub async fn until_absent(&self, id: &ResourceId) {
        self.until(id, "absent", |presence| *presence == Presence::Absent).await;
    }

    /// Waits until no object has our labels.
    pub async fn until_nothing_is_left(&self) {
        let begun = Instant::now();
        loop {
            let left = self.ours();
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < TIMEOUT, "there is still {left:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

pub fn desired(id: &ResourceId, variant: u32) -> Desired {
    match id.node_key() {
        None => Desired::new(id.clone(), Spec::Coordinator(coordinator(variant))),
        Some(key) => Desired::new(id.clone(), Spec::Node(node(key.index, variant))),
    }
}

pub fn coordinator(variant: u32) -> CoordinatorSpec {
    CoordinatorSpec {
        program: Some(format!("0.{variant}.0")),
        persistence: Persistence::Disk { path: None, size_bytes: Some(1 << 30) },
        ..specs::coordinator()
    }
}

pub fn node(shard: u32, variant: u32) -> NodeSpec {
    NodeSpec {
        program: Some(format!("0.{variant}.0")),
        client_app: Some("native:mlp".to_owned()),
        shard,
        shards: 3,
        ..specs::node("fl.example.org:9092")
    }
}

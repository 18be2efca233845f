//! A home with a running driver. Processes of the driver end with the test, even if it fails.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::Notify;
use trellis_driver_local::{LocalDriver, LocalSettings};
use trellis_plan::conformance::specs;
use trellis_plan::{
    Action, CoordinatorSpec, Desired, Driver, Facts, NodeSpec, Observation, OpenDriver, Order, Outcome, Part, Phase,
    Presence, ResourceId, Spec, Verb,
};
use trellis_spec::{Containers, Name, Tls};
use trellis_testing::processes;

const PATIENCE: Duration = Duration::from_secs(60);
/// Poll interval without a notification.
const LOOK: Duration = Duration::from_millis(50);

pub struct Scene {
    pub home: TempDir,
    pub woken: Arc<Notify>,
    driver: Option<Arc<LocalDriver>>,
}

impl Scene {
    pub fn new() -> Scene {
        let home = tempfile::tempdir().expect("a temporary directory");
        let mut scene = Scene { home, woken: Arc::new(Notify::new()), driver: None };
        scene.open();
        scene
    }

    /// Opens a driver after the previous one was dropped.
    pub fn open(&mut self) {
        self.driver = None;
        let woken = Arc::clone(&self.woken);
        let wake = Arc::new(move |_: &Name| woken.notify_one());
        let program = PathBuf::from(env!("CARGO_BIN_EXE_trellis"));
        let settings = LocalSettings { directory: self.home.path().to_owned(), program };
        self.driver = Some(Arc::new(LocalDriver::open(settings, wake).expect("a driver")));
    }

    /// Drops the driver, and nothing else.
    pub fn close(&mut self) {
        self.driver = None;
    }

    pub fn driver(&self) -> &Arc<LocalDriver> {
        self.driver.as_ref().expect("it is open")
    }

    pub async fn apply(&self, serial: u64, verb: Verb) -> Outcome {
        self.driver().apply(&Action { order: Order { fence: 1, serial }, verb }).await
    }

    pub async fn make(&self, serial: u64, verb: Verb) {
        let text = verb.to_string();
        let outcome = self.apply(serial, verb).await;
        assert!(matches!(outcome, Outcome::Done | Outcome::Started), "{text}: {outcome:?}");
    }

    pub async fn see(&self, id: &ResourceId) -> Presence {
        match self.driver().observe(&id.federation, &id.site).await {
            Observation::Reached(seen) => seen.resources.get(id).cloned().unwrap_or(Presence::Absent),
            Observation::Unreachable { why } => panic!("{why}"),
        }
    }

    /// Polls after each notification of the driver, and at an interval, until the condition holds.
    pub async fn until(&self, id: &ResourceId, is_so: impl Fn(&Presence) -> bool) -> Presence {
        let mut last = Presence::Absent;
        let wait = async {
            loop {
                last = self.see(id).await;
                if is_so(&last) {
                    return;
                }
                let _ = tokio::time::timeout(LOOK, self.woken.notified()).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        assert!(waited.is_ok(), "{id} stays {last:?}\n{}", self.log(id));
        last
    }

    pub async fn until_ready(&self, id: &ResourceId) -> Facts {
        let ready = |presence: &Presence| {
            let phase = presence.facts().map(|facts| &facts.phase);
            assert!(!matches!(phase, Some(Phase::Failed { .. })), "{id}: {phase:?}");
            phase == Some(&Phase::Ready)
        };
        self.until(id, ready).await.facts().cloned().expect("it is there")
    }

    pub async fn until_failed(&self, id: &ResourceId) -> String {
        let is_failed = |presence: &Presence| failure(presence).is_some();
        failure(&self.until(id, is_failed).await).expect("it failed")
    }

    pub fn log(&self, id: &ResourceId) -> String {
        std::fs::read_to_string(self.driver().log_path(id).expect("it is on this machine")).unwrap_or_default()
    }

    pub fn part(&self, id: &ResourceId) -> PathBuf {
        let path = self.home.path().join("federations").join(id.federation.as_str());
        path.join(id.site.as_str()).join(id.part.name())
    }

    pub fn record(&self, id: &ResourceId) -> Value {
        let text = std::fs::read(self.part(id).join("record.json")).expect("a record");
        serde_json::from_slice(&text).expect("JSON")
    }

    pub fn rewrite(&self, id: &ResourceId, change: impl Fn(&mut Value)) {
        let mut record = self.record(id);
        change(&mut record);
        std::fs::write(self.part(id).join("record.json"), record.to_string()).expect("a file");
    }

    pub fn pid(&self, id: &ResourceId) -> u32 {
        let pid = self.record(id)["processes"][0]["pid"].as_u64().expect("it was noted");
        u32::try_from(pid).expect("a pid")
    }

    /// Something cheap that works: another number, another generation.
    pub fn desired(&self, id: &ResourceId, superlink: &str, variant: u32) -> Desired {
        let env = BTreeMap::from([("VARIANT".to_owned(), variant.to_string())]);
        let spec = match &id.part {
            Part::Coordinator => Spec::Coordinator(CoordinatorSpec { env, ..coordinator() }),
            Part::Node(key) => Spec::Node(NodeSpec { env, shard: key.index, ..node(superlink) }),
        };
        Desired::new(id.clone(), spec)
    }

    pub fn create(&self, id: &ResourceId) -> Verb {
        Verb::Create(self.desired(id, "", 0))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.driver = None;
        processes::end(self.home.path());
    }
}

pub fn failure(presence: &Presence) -> Option<String> {
    match presence.facts().map(|facts| &facts.phase) {
        Some(Phase::Failed { why }) => Some(why.clone()),
        _ => None,
    }
}

pub fn id(text: &str) -> ResourceId {
    ResourceId::try_from(text.to_owned()).expect("an id")
}

pub fn restart(desired: &Desired, instance: u64) -> Verb {
    Verb::Restart { id: desired.id.clone(), generation: desired.generation, instance }
}

pub fn coordinator() -> CoordinatorSpec {
    CoordinatorSpec {
        program: Some("test".to_owned()),
        containers: Some(Containers::No),
        tls: Tls::Off,
        ..specs::coordinator()
    }
}

pub fn node(superlink: &str) -> NodeSpec {
    NodeSpec {
        program: Some("test".to_owned()),
        containers: Some(Containers::No),
        client_app: Some("native:echo".to_owned()),
        shards: 4,
        tls: Tls::Off,
        ..specs::node(superlink)
    }
}

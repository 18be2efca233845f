//! A simulated cloud with a driver.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use trellis_driver_one::{Limits, OneDriver, OneSettings, OneSites, PollIntervals};
use trellis_fake_one::hypervisor::PretendSettings;
use trellis_fake_one::{Config, FakeOne, Handle, Machines};
use trellis_plan::conformance::specs;
use trellis_plan::{
    Action, CoordinatorSpec, Desired, Driver, DriverRetries, Facts, NodeSpec, Observation, Order, Outcome, Phase,
    Presence, ResourceId, RetryBudget, Spec, Verb,
};
use trellis_spec::{Name, OneImages, OneSite, Persistence};

/// A timeout that suffices on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// An ordinary user, without administrator rights.
const USER: &str = "trellis";
/// The first free id after oneadmin and serveradmin.
pub const USER_ID: i64 = 2;

pub struct Scene {
    pub one: FakeOne,
    pub directory: TempDir,
    driver: Mutex<Option<(Arc<OneSites>, Arc<OneDriver>)>>,
    limits: Limits,
}

pub fn id(text: &str) -> ResourceId {
    ResourceId::try_from(text.to_owned()).expect("an id")
}

pub fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

const RETRIES: DriverRetries = DriverRetries {
    recovery: RetryBudget { max_attempts: Some(3), min_delay_ms: 50, max_delay_ms: 50 },
    observation: RetryBudget { max_attempts: None, min_delay_ms: 20, max_delay_ms: 100 },
};

/// Timeouts of the driver, shortened for tests.
pub fn limits() -> Limits {
    Limits { stuck_ms: 2_000, warning_ms: 50, faulty_ms: 1_000, silent_ms: 5_000 }
}

impl Scene {
    pub async fn new() -> Scene {
        Scene::of("7.5.80").await
    }

    pub async fn of(version: &str) -> Scene {
        let machines = Machines::Pretend(PretendSettings::default());
        let users = vec![(USER.to_owned(), "pw".to_owned())];
        let config = Config { machines, version: version.to_owned(), users, ..Config::default() };
        let one = FakeOne::start(config).await.expect("the fake starts");
        let scene =
            Scene { one, directory: TempDir::new().expect("a directory"), driver: Mutex::default(), limits: limits() };
        std::fs::write(scene.auth(), format!("{USER}:pw\n")).expect("the session is written");
        for image in ["trellis-superlink", "trellis-supernode"] {
            scene.add_image(image);
        }
        scene.open();
        scene
    }

    fn auth(&self) -> PathBuf {
        self.directory.path().join("one_auth")
    }

    pub fn cloud(&self) -> Handle {
        self.one.handle()
    }

    pub fn site(&self) -> OneSite {
        OneSite {
            endpoint: self.one.oned_url(),
            flow: Some(self.one.flow_url()),
            zone: None,
            auth_file: Some(self.auth()),
            allow_plain_http: false,
            network: "net1".to_owned(),
            datastore: None,
            images: OneImages::default(),
        }
    }

    pub fn add_image(&self, name: &str) {
        let text = format!("NAME=\"{name}\"\nTYPE=\"OS\"\nPATH=\"/var/tmp/{name}.qcow2\"");
        let template = trellis_fake_one::template::Template::parse(&text).expect("a template");
        let image = self.cloud().with(|cloud| cloud.add_image(0, template, 1)).expect("an image");
        // Like `oneimage chmod 604`.
        self.cloud().with(|cloud| cloud.images.get_mut(&image).expect("it is there").owned.permissions[6] = true);
    }

    /// Drops the driver in the middle of its work, like a crash.
    pub fn open(&self) {
        *self.driver.lock().expect("nobody panics here") = None;
        self.open_with(self.site());
    }

    pub fn open_with(&self, site: OneSite) {
        *self.driver.lock().expect("nobody panics here") = None;
        let millis = Duration::from_millis;
        let intervals = PollIntervals { busy: millis(10), idle: millis(50), full: millis(500) };
        let home = self.directory.path().join("opennebula");
        let wake = Arc::new(|_: &Name| {});
        let sites = OneSites::open(OneSettings {
            limits: self.limits,
            retries: RETRIES,
            intervals,
            ..OneSettings::new(home, wake)
        });
        let driver = Arc::new(sites.zone(&name("lab"), &site));
        *self.driver.lock().expect("nobody panics here") = Some((sites, driver));
    }

    pub fn close(&self) {
        *self.driver.lock().expect("nobody panics here") = None;
    }

    pub fn driver(&self) -> Arc<OneDriver> {
        self.driver.lock().expect("nobody panics here").as_ref().expect("a driver is open").1.clone()
    }

    pub fn sites(&self) -> Arc<OneSites> {
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
        let began = Instant::now();
        loop {
            let presence = self.see(id).await;
            if is_so(&presence) {
                return presence;
            }
            assert!(began.elapsed() < TIMEOUT, "{id} does not become {what}: {presence:?}");
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

    pub async fn until_absent(&self, id: &ResourceId) {
        self.until(id, "absent", |presence| *presence == Presence::Absent).await;
    }

    pub async fn until_failed(&self, id: &ResourceId) -> String {
        let failed =
            |presence: &Presence| matches!(presence.facts().map(|facts| &facts.phase), Some(Phase::Failed { .. }));
        match self.until(id, "failed", failed).await.facts().map(|facts| facts.phase.clone()) {
            Some(Phase::Failed { why }) => why,
            other => panic!("{other:?}"),
        }
    }

    /// VMs that are not done, the oldest first.
    pub fn vms(&self) -> Vec<i64> {
        let done = trellis_fake_one::cloud::VmState::Done;
        self.cloud().with(|cloud| cloud.vms.iter().filter(|(_, vm)| vm.state != done).map(|(id, _)| *id).collect())
    }

    /// The VM of a part.
    pub fn vm_of(&self, id: &ResourceId) -> Option<i64> {
        let marked = |vm: &i64| self.cloud().attribute(*vm, "TRELLIS_PART") == Some(id.to_string());
        self.vms().into_iter().find(marked)
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
        ..specs::node("192.168.150.10:9092")
    }
}

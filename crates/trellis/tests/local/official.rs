//! The official programs as parts: the promises of the port, and a federation with everything switched on. Releases that are
//! not installed are skipped, loudly.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use trellis_plan::conformance::{Subject, driver_cases};
use trellis_plan::{CoordinatorSpec, Desired, Driver, NodeSpec, Outcome, Part, ResourceId, Sighting, Spec, Verb};
use trellis_spec::{FlowerVersion, Isolation, Runtime, Tls};

use crate::scene::{RealClock, Scene, coordinator, id, node, restart};

/// What official programs cannot do, and nobody promises of them.
const NOT_THEIRS: [&str; 1] = ["who drains says so, and a restart ends it"];

struct Release {
    runtime: Runtime,
    python: PathBuf,
}

impl Release {
    /// `None`: it is not here.
    fn find(minor: u16) -> Option<Release> {
        let cache = std::env::var_os("TRELLIS_TEST_CACHE").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/trellis-test")))?;
        let python = cache.join(format!("flwr-1.{minor}/bin/python"));
        if !python.exists() {
            let what = "the local driver was not tested with it (tests/provision.py installs it)";
            let _ = writeln!(std::io::stderr(), "SKIP: official Flower 1.{minor} is not installed, {what}");
            return None;
        }
        let runtime = Runtime::Flower(FlowerVersion::parse(&format!("1.{minor}")).expect("a release"));
        Some(Release { runtime, python })
    }

    fn coordinator(&self) -> CoordinatorSpec {
        let (runtime, python) = (self.runtime.clone(), Some(self.python.clone()));
        CoordinatorSpec { runtime, program: None, python, ..coordinator() }
    }

    fn node(&self, superlink: &str) -> NodeSpec {
        let (runtime, python) = (self.runtime.clone(), Some(self.python.clone()));
        NodeSpec { runtime, program: None, client_app: None, python, ..node(superlink) }
    }

    /// The same as the scene makes it, by these programs.
    fn desired(&self, scene: &Scene, id: &ResourceId, superlink: &str, variant: u32) -> Desired {
        let spec = match (scene.desired(id, superlink, variant).spec, &id.part) {
            (Spec::Coordinator(made), _) => Spec::Coordinator(CoordinatorSpec { env: made.env, ..self.coordinator() }),
            (Spec::Node(made), Part::Node(key)) => {
                Spec::Node(NodeSpec { env: made.env, shard: key.index, ..self.node(superlink) })
            }
            (Spec::Node(_), Part::Coordinator) => unreachable!("a coordinator is no node"),
        };
        Desired::new(id.clone(), spec)
    }
}

async fn every_promise_is_kept(minor: u16) {
    let Some(release) = Release::find(minor).map(Arc::new) else { return };
    let around = Scene::new();
    let coordinator = id("around/local/coordinator");
    around.make(1, Verb::Create(release.desired(&around, &coordinator, "", 0))).await;
    let superlink = around.until_ready(&coordinator).await.addresses.fleet.expect("nodes have an address");
    for (name, case) in driver_cases() {
        if NOT_THEIRS.contains(&name) {
            let _ = writeln!(std::io::stderr(), "SKIP: \"{name}\": no official program of 1.{minor} can");
            continue;
        }
        println!("{name}");
        let scene = Arc::new(Scene::new());
        let driver: Arc<dyn Driver> = scene.driver().clone();
        let (superlink, making, release) = (superlink.clone(), Arc::clone(&scene), Arc::clone(&release));
        let desired = move |id: &ResourceId, variant: u32| release.desired(&making, id, &superlink, variant);
        let site = coordinator.site.clone();
        case(&Subject { driver, clock: Arc::new(RealClock), site, desired: Box::new(desired) }).await;
    }
}

/// With TLS, node keys and apps apart, and the node known by its key over a restart.
async fn everything_switched_on(minor: u16) {
    let Some(release) = Release::find(minor) else { return };
    let scene = Scene::new();
    let (link, edge) = (id("demo/local/coordinator"), id("demo/local/node/edge-0"));
    let on = scene.desired(&link, "", 0);
    let Spec::Coordinator(CoordinatorSpec { env, .. }) = on.spec else { unreachable!("a coordinator") };
    let isolation = Isolation::Process;
    let spec =
        CoordinatorSpec { tls: Tls::Auto, node_auth: true, isolation, env: env.clone(), ..release.coordinator() };
    scene.make(1, Verb::Create(Desired::new(link.clone(), Spec::Coordinator(spec)))).await;
    let facts = scene.until_ready(&link).await;
    assert_eq!((facts.runs, facts.version.as_deref()), (Some(0), release.runtime.to_string().strip_prefix("flower:")));
    let fleet = facts.addresses.fleet.expect("an address");
    let spec = NodeSpec { tls: Tls::Auto, node_auth: true, isolation, env, ..release.node(&fleet) };
    let desired = Desired::new(edge.clone(), Spec::Node(spec));
    scene.make(2, Verb::Create(desired.clone())).await;
    let facts = scene.until_ready(&edge).await;
    assert!(facts.node_id.is_some(), "{facts:?}");
    assert_eq!((facts.busy, facts.draining), (Some(false), false), "there is no run");
    let drained = scene.apply(3, Verb::Drain { id: edge.clone() }).await;
    assert!(matches!(drained, Outcome::Refused { retry: false, .. }), "{drained:?}");
    scene.make(4, restart(&desired, facts.instance)).await;
    scene.until(&edge, |sighting| sighting.facts().is_some_and(|now| now.instance != facts.instance)).await;
    assert_eq!(scene.until_ready(&edge).await.node_id, facts.node_id, "its key was kept, so it is the same node");
    for (serial, part) in [(5, &edge), (6, &link)] {
        scene.make(serial, Verb::Delete { id: part.clone() }).await;
        scene.until(part, |sighting| *sighting == Sighting::Absent).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_official_release_with_everything_switched_on() {
    everything_switched_on(25).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_official_release_with_everything_switched_on() {
    everything_switched_on(42).await;
}

/// Minutes: `cargo test -p trellis --test local -- --ignored official`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts some forty official programs"]
async fn every_promise_is_kept_with_1_25() {
    every_promise_is_kept(25).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts some forty official programs"]
async fn every_promise_is_kept_with_1_39() {
    every_promise_is_kept(39).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts some forty official programs"]
async fn every_promise_is_kept_with_1_42() {
    every_promise_is_kept(42).await;
}

//! The official programs as parts: the promises of the port, and a federation with everything switched on. Releases that are
//! not installed are skipped, loudly.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use trellis_plan::conformance::{Subject, driver_cases};
use trellis_plan::{
    CoordinatorSpec, Desired, Driver, NodeSpec, OpenDriver, Outcome, Part, Presence, ResourceId, Spec, Verb,
};
use trellis_spec::{ConfigValue, Isolation, Runtime, Tls};
use trellis_testing::RealClock;

use crate::scene::{Scene, coordinator, id, node, restart};

/// Promises of the suite that official programs cannot keep.
const NOT_THEIRS: [&str; 1] = ["a draining node reports it, and a restart ends the drain"];

/// An empty round of the newest release takes about twenty seconds on two cores.
const RUN_WITHIN: Duration = Duration::from_secs(300);

struct Release {
    runtime: Runtime,
    python: PathBuf,
}

impl Release {
    /// `None` if it is not installed.
    fn find(minor: u16) -> Option<Release> {
        let cache = std::env::var_os("TRELLIS_TEST_CACHE").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/trellis-test")))?;
        let python = cache.join(format!("flwr-1.{minor}/bin/python"));
        if !python.exists() {
            let what = "the local driver was not tested with it (tests/provision.py installs it)";
            let _ = writeln!(std::io::stderr(), "SKIP: official Flower 1.{minor} is not installed, {what}");
            return None;
        }
        let runtime = Runtime::Flower(trellis_spec::Release::parse(&format!("1.{minor}")).expect("a release"));
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

    /// The scene's federation with these programs.
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
    scene.until(&edge, |presence| presence.facts().is_some_and(|now| now.instance != facts.instance)).await;
    assert_eq!(scene.until_ready(&edge).await.node_id, facts.node_id, "its key was kept, so it is the same node");
    for (serial, part) in [(5, &edge), (6, &link)] {
        scene.make(serial, Verb::Delete { id: part.clone() }).await;
        scene.until(part, |presence| *presence == Presence::Absent).await;
    }
}

/// The official command line of a release with its configuration and an app.
struct CommandLine {
    directory: tempfile::TempDir,
    flwr: PathBuf,
}

impl CommandLine {
    fn new(release: &Release, control: &str, trust: &Path) -> CommandLine {
        let directory = tempfile::tempdir().expect("a directory");
        let app = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/apps/numpy_fedavg");
        let copied = Command::new("cp").arg("-r").arg(app).arg(directory.path().join("app")).status().expect("cp");
        assert!(copied.success());
        let reads_home = release.runtime != Runtime::Flower(trellis_spec::Release::OLDEST);
        let (file, table) = match reads_home {
            true => ("config.toml", "superlink"),
            false => ("app/pyproject.toml", "tool.flwr.federations"),
        };
        let text = format!("\n[{table}.made]\naddress = \"{control}\"\nroot-certificates = \"{}\"\n", trust.display());
        let mut file = OpenOptions::new().create(true).append(true).open(directory.path().join(file)).expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        CommandLine { flwr: release.python.with_file_name("flwr"), directory }
    }

    /// The output of `flwr`.
    async fn run(&self, words: &[&str]) -> String {
        let mut command = tokio::process::Command::new(&self.flwr);
        command.args(words).current_dir(self.directory.path().join("app")).env("FLWR_HOME", self.directory.path());
        command.env("FLWR_TELEMETRY_ENABLED", "0").env("FLWR_DISABLE_UPDATE_CHECK", "1").kill_on_drop(true);
        let output = tokio::time::timeout(RUN_WITHIN, command.output()).await.expect("it ends").expect("it runs");
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{text}");
        text
    }
}

/// A federation of two nodes with TLS, and a run of an app by the official command line.
async fn a_run_completes(minor: u16) {
    let Some(release) = Release::find(minor) else { return };
    let scene = Scene::new();
    let link = id("demo/local/coordinator");
    let Spec::Coordinator(CoordinatorSpec { env, .. }) = scene.desired(&link, "", 0).spec else {
        unreachable!("a coordinator")
    };
    // There may be no package index.
    let extra_args = if minor < 32 { vec![] } else { vec!["--disable-runtime-dependency-installation".to_owned()] };
    let spec = CoordinatorSpec { tls: Tls::Auto, extra_args, env: env.clone(), ..release.coordinator() };
    scene.make(1, Verb::Create(Desired::new(link.clone(), Spec::Coordinator(spec)))).await;
    let addresses = scene.until_ready(&link).await.addresses;
    for shard in 0..2 {
        let edge = id(&format!("demo/local/node/edge-{shard}"));
        let fleet = addresses.fleet.as_deref().expect("an address");
        let config = [("partition-id", shard), ("num-partitions", 2)];
        let node_config = config.map(|(key, value)| (key.to_owned(), ConfigValue::Int(value.into()))).into();
        let spec = NodeSpec { tls: Tls::Auto, shard, node_config, env: env.clone(), ..release.node(fleet) };
        scene.make(2 + u64::from(shard), Verb::Create(Desired::new(edge.clone(), Spec::Node(spec)))).await;
        scene.until_ready(&edge).await;
    }
    let trust = scene.driver().trust_path(&link.federation).expect("users are told whom to trust");
    let line = CommandLine::new(&release, addresses.control.as_deref().expect("an address"), &trust);
    let said = line.run(&["run", ".", "made", "--stream", "--run-config", "num-server-rounds=1"]).await;
    let here: &[&str] = if minor < 26 { &[".", "made"] } else { &["made"] };
    let listed = line.run(&[&["ls"], here, &["--format", "json"]].concat()).await;
    assert!(listed.contains("finished:completed"), "{listed}\n{said}");
    assert_eq!(scene.until_ready(&link).await.runs, Some(0), "it is over");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a round of the official programs takes long"]
async fn a_run_of_the_official_command_line_completes_with_1_25() {
    a_run_completes(25).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a round of the official programs takes long"]
async fn a_run_of_the_official_command_line_completes_with_1_42() {
    a_run_completes(42).await;
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

//! Plans of documents that no administrator applied: the server makes no connection, reads no file, runs no program and
//! leaks nothing. The only test of its process, because it counts the descriptors of the process.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use trellis_api::{PlanReport, Role};
use trellis_server::{Platform, PlatformSettings};

/// A timeout far above the usual duration.
const LIMIT: Duration = Duration::from_secs(60);
const PLANS: usize = 200;

/// A listener that counts connections.
struct Listener {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Listener {
    fn new() -> Listener {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let connections: Arc<AtomicUsize> = Arc::default();
        let counted = Arc::clone(&connections);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(stream);
            }
        });
        Listener { port, connections }
    }

    fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Targets of an attacker: an endpoint, a file with a secret, a kubeconfig that runs a program.
struct Bait {
    directory: tempfile::TempDir,
    listener: Listener,
}

impl Bait {
    fn new() -> Bait {
        let bait = Bait { directory: tempfile::tempdir().expect("a directory"), listener: Listener::new() };
        std::fs::write(bait.path("secret"), "admin:hush").expect("a file");
        std::fs::set_permissions(bait.path("secret"), std::fs::Permissions::from_mode(0o600)).expect("a mode");
        let exec = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [bait.path("ran")],
            "interactiveMode": "Never",
        });
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": format!("http://127.0.0.1:{}", bait.listener.port)}}],
            "users": [{"name": "u", "user": {"exec": exec}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        });
        std::fs::write(bait.path("kubeconfig"), config.to_string()).expect("a file");
        bait
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn document(&self, name: &str) -> String {
        let one = serde_json::json!({
            "endpoint": format!("http://127.0.0.1:{}/RPC2", self.listener.port),
            "authFile": self.path("secret"), "network": "private",
        });
        let kube = serde_json::json!({"kubeconfig": self.path("kubeconfig"), "context": "c"});
        serde_json::json!({
            "apiVersion": "trellis.dev/v1", "kind": "Federation", "metadata": {"name": name},
            "spec": {
                "sites": [{"name": "cloud", "opennebula": one}, {"name": "cluster", "kubernetes": kube}],
                "pools": [{"name": "a", "site": "cloud", "count": 2}, {"name": "b", "site": "cluster", "count": 2}],
                "coordinator": {"site": "cloud", "endpoints": {"advertise": ["link.example.org"]}},
            },
        })
        .to_string()
    }
}

fn files(directory: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        }
        found.insert(path);
    }
    found
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

fn unobserved(report: &PlanReport) -> Vec<&str> {
    let notes = report.report.iter().filter(|why| why.text.starts_with("not observed: no applied document"));
    notes.map(|why| why.about.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_calls_nobody_and_leaves_nothing_unless_an_administrator_applied_the_same_connection() {
    let (home, bait) = (tempfile::tempdir().expect("a directory"), Bait::new());
    let settings = PlatformSettings::new(home.path().to_owned(), "/nonexistent".into());
    let platform = Platform::start(settings).await.expect("it starts");
    let plan = async |name: &str, role| platform.plan(&bait.document(name), "document", role).await.expect("a plan");

    // The first plan may open descriptors that stay open.
    plan("first", Role::Viewer).await;
    let before = (files(home.path()), descriptors(), tokio::runtime::Handle::current().metrics().num_alive_tasks());
    for number in 0..PLANS {
        let role = Role::ALL[number % Role::ALL.len()];
        let report = plan(&format!("plan-{number}"), role).await;
        assert_eq!(unobserved(&report), ["site cloud", "site cluster"], "{:?}", report.report);
        assert_eq!(report.actions[0].verb, "create", "it says what would be done all the same");
        assert!(report.templates.iter().any(|template| template.site == "cloud"), "and what would be sent");
    }
    let after = (files(home.path()), descriptors(), tokio::runtime::Handle::current().metrics().num_alive_tasks());
    assert_eq!(before, after, "files, descriptors and tasks");
    assert_eq!(bait.listener.count(), 0, "nobody was called");
    assert!(!bait.path("ran").exists(), "nothing was run");

    // An administrator applies the document. From then on the site is observed for all callers, with the applied
    // connection.
    platform.apply("demo", &bait.document("demo"), None).await.expect("it is kept");
    let called = async {
        while bait.listener.count() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, called).await.expect("the driver calls its cloud");
    let report = plan("demo", Role::Viewer).await;
    assert_eq!(unobserved(&report), Vec::<&str>::new(), "{:?}", report.report);

    // A different endpoint, file or context of the same site is a different connection.
    let other = Listener::new();
    let elsewhere =
        bait.document("demo").replace(&format!(":{}/RPC2", bait.listener.port), &format!(":{}/RPC2", other.port));
    let file = bait.document("demo").replace("/secret", "/other-secret");
    for changed in [elsewhere, file] {
        let report = platform.plan(&changed, "document", Role::Viewer).await.expect("a plan");
        assert!(report.report.iter().any(|why| why.text.contains("no applied document")), "{:?}", report.report);
    }
    assert_eq!(other.count(), 0, "nobody was called at the other endpoint");
    platform.stop().await;
}

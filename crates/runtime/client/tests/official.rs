//! Calls to real SuperLinks of official Flower: over gRPC to old ones, over HTTP to new ones. Releases that are not installed
//! are skipped, loudly.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use trellis_client::fleet::Transport;
use trellis_client::{Error, NodeKey, Security, SuperLink, Target, Timeouts};
use trellis_testing::ports::free_port;
use trellis_wire::proto;

const STARTS_WITHIN: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const FAB: &[u8] = include_bytes!("../../node/testdata/tiny-1.25.fab");

/// A SuperLink that starts no apps. Ends with the test.
struct Official {
    child: Child,
    control: u16,
}

impl Drop for Official {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Official {
    /// `None` if that release is not installed.
    fn start(minor: u16, home: &Path) -> Option<Official> {
        let cache = std::env::var_os("TRELLIS_TEST_CACHE").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/trellis-test")))?;
        let program = cache.join(format!("flwr-1.{minor}/bin/flower-superlink"));
        if !program.exists() {
            let what = "calls to it were not tested (tests/provision.py installs it)";
            let _ = writeln!(std::io::stderr(), "SKIP: official Flower 1.{minor} is not installed, {what}");
            return None;
        }
        let (control, other, apps) = (free_port(), free_port(), free_port());
        let at = |port: u16| format!("127.0.0.1:{port}");
        let mut command = Command::new(program);
        command.args(["--insecure", "--isolation", "process"]);
        match minor {
            ..35 => command.args(["--control-api-address", &at(control), "--serverappio-api-address", &at(apps)]),
            35..37 => command.args(["--control-api-address", &at(control), "--port", &apps.to_string()]),
            37.. => command.args(["--port", &control.to_string()]),
        };
        if minor < 40 {
            command.args(["--fleet-api-address", &at(other)]);
        }
        command.env("FLWR_HOME", home).env("FLWR_TELEMETRY_ENABLED", "0").env("FLWR_DISABLE_UPDATE_CHECK", "1");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Some(Official { child: child.expect("it starts"), control })
    }

    async fn ready(&mut self, transport: Transport) -> SuperLink {
        let security = Security::Plaintext;
        let target = Target { host: "127.0.0.1".to_owned(), port: self.control, security, token: None };
        let timeouts = Timeouts { retries: Vec::new(), ..Timeouts::default() };
        let superlink = SuperLink::new(target).with_timeouts(timeouts).over(transport);
        let began = Instant::now();
        while let Err(error) = superlink.list_nodes().await {
            let ended = self.child.try_wait().expect("a child process");
            assert!(ended.is_none(), "the SuperLink ended: {ended:?}");
            assert!(error.may_pass() && began.elapsed() < STARTS_WITHIN, "{error}");
            // The official program does not announce that it serves.
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        superlink
    }
}

async fn a_run_and_a_node(minor: u16, transport: Transport) {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(mut official) = Official::start(minor, &directory.path().join("home")) else { return };
    let superlink = official.ready(transport).await;
    assert_eq!(superlink.list_runs(None).await.expect("a list"), []);

    let hash = digest(&SHA256, FAB).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let fab = proto::Fab { hash_str: hash, content: FAB.into(), ..Default::default() };
    let run = superlink.start_run(fab, HashMap::new()).await.expect("a run");
    let runs = superlink.list_runs(None).await.expect("a list");
    assert_eq!(runs.iter().map(|run| run.run_id).collect::<Vec<_>>(), [run]);

    superlink.stop_run(run).await.expect("it stops");
    let runs = superlink.list_runs(Some(run)).await.expect("a list");
    let status = runs[0].status.clone().expect("a status");
    assert_eq!((status.status.as_str(), status.sub_status.as_str()), ("finished", "stopped"));
    let mut log = superlink.stream_logs(run, 0.0).await.expect("a log");
    while log.next().await.expect("it ends well").is_some() {}
    let unknown = superlink.list_runs(Some(run ^ 1)).await.expect_err("there is no such run");
    assert!(matches!(&unknown, Error::Refused { status: 404, .. }), "{unknown:?}");

    let key = NodeKey::generate(&directory.path().join("key"), "test").expect("a key");
    let node = superlink.register_node(&key.public_pem()).await.expect("an id");
    let listed = async || {
        let nodes = superlink.list_nodes().await.expect("a list");
        nodes.into_iter().map(|node| (node.node_id, node.status)).collect::<Vec<_>>()
    };
    assert_eq!(listed().await, [(node, "registered".to_owned())]);
    let again = superlink.register_node(&key.public_pem()).await.expect_err("it is known");
    assert!(again.to_string().contains("already in use"), "{again}");
    superlink.unregister_node(node).await.expect("it goes");
    assert_eq!(listed().await, [(node, "unregistered".to_owned())]);
}

#[tokio::test]
async fn the_oldest_over_grpc() {
    a_run_and_a_node(25, Transport::Grpc).await;
}

#[tokio::test]
async fn the_last_that_has_only_grpc() {
    a_run_and_a_node(36, Transport::Grpc).await;
}

#[tokio::test]
async fn the_newest_over_http() {
    a_run_and_a_node(42, Transport::Http).await;
}

//! A real SuperLink with the Secrets as a kubelet mounts them: TLS, the admin token, and keys of nodes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use trellis_client::{Security, SuperLink, Target, Timeouts, Trust};
use trellis_kube::federation::Federation;
use trellis_operator::trust::enrol::enrol;
use trellis_operator::trust::{Input, Outcome, ensure};
use trellis_testing::ports::free_port;
use trellis_wire::call::WhoAmI;
use trellis_wire::token::Token;

use crate::cluster::{Ward, events, now, spec};

const START: Duration = Duration::from_secs(60);
/// As a kubelet leaves a Secret's files in a pod with an fsGroup: of root, readable by the group.
const MOUNTED_MODE: u32 = 0o440;
const PROGRAM: &str = "TRELLIS_PROGRAM";

/// The program, built by the test run of the whole workspace.
fn program() -> Option<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("trellis"));
    let found = std::env::var_os(PROGRAM).map(PathBuf::from).or_else(beside).filter(|path| path.exists());
    if found.is_none() {
        eprintln!("SKIP: there is no trellis beside this test: cargo build -p trellis, or set {PROGRAM}");
    }
    found
}

/// Ends with this value.
struct Served {
    process: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn mount(ward: &Ward, secret: &str, directory: &Path) {
    fs::create_dir_all(directory).expect("a directory");
    for (name, bytes) in ward.secret(secret).await.expect("a Secret").entries {
        let path = directory.join(name);
        fs::write(&path, bytes).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(MOUNTED_MODE)).expect("a mode");
    }
}

async fn serve(ward: &Ward, program: &Path) -> Served {
    let directory = tempfile::tempdir().expect("a directory");
    let (tls, admin) = (directory.path().join("tls"), directory.path().join("admin"));
    mount(ward, "ward-superlink-tls", &tls).await;
    mount(ward, "ward-admin", &admin).await;
    let port = free_port();
    let address = || format!("127.0.0.1:{}", free_port());
    let log = fs::File::create(directory.path().join("log")).expect("a log");
    let process = Command::new(program)
        .args(["superlink", "--host", "127.0.0.1", "--port", &port.to_string(), "--enable-supernode-auth"])
        .args(["--control-api-address", &address(), "--fleet-api-address", &address()])
        .args(["--serverappio-api-address", &address(), "--account-auth", "on"])
        .arg("--ssl-certfile")
        .arg(tls.join("tls.crt"))
        .arg("--ssl-keyfile")
        .arg(tls.join("tls.key"))
        .arg("--ssl-ca-certfile")
        .arg(tls.join("ca.crt"))
        .arg("--admin-token-file")
        .arg(admin.join("token"))
        .arg("--state-dir")
        .arg(directory.path().join("state"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .spawn()
        .expect("a SuperLink");
    Served { process, port, _directory: directory }
}

/// As the operator calls it: with the bundle and the token that are in the Secrets.
async fn called(ward: &Ward, served: &Served) -> SuperLink {
    let directory = tempfile::tempdir().expect("a directory");
    let bundle = directory.path().join("ca.crt");
    fs::write(&bundle, ward.text("ward-trust", "ca.crt").await).expect("a file");
    let security = Security::Tls(Trust::bundle(&bundle).expect("a bundle"));
    let token = Some(Token::parse(&ward.text("ward-admin", "token").await).expect("a token"));
    let target = Target { host: "localhost".to_owned(), port: served.port, security, token };
    SuperLink::new(target).with_timeouts(Timeouts { retries: Vec::new(), ..Timeouts::default() })
}

async fn ready(ward: &Ward, served: &mut Served) -> SuperLink {
    let superlink = called(ward, served).await;
    let deadline = tokio::time::Instant::now() + START;
    loop {
        match superlink.call(&WhoAmI {}).await {
            Ok(_) => return superlink,
            Err(error) => {
                let log = || fs::read_to_string(served._directory.path().join("log")).unwrap_or_default();
                assert!(served.process.try_wait().expect("a process").is_none(), "it ended: {error}\n{}", log());
                assert!(tokio::time::Instant::now() < deadline, "{error}\n{}", log());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn sized(ward: &Ward, federation: &Federation, size: i32) -> Outcome {
    let sizes = BTreeMap::from([("cpu".to_owned(), size)]);
    let asked = Input { client: &ward.client, federation, sizes: &sizes, now: now() };
    ensure(&asked).await.expect("a pass")
}

async fn known(superlink: &SuperLink) -> usize {
    let nodes = superlink.list_nodes().await.expect("nodes");
    nodes.iter().filter(|node| node.status != "unregistered").count()
}

#[tokio::test]
async fn nodes_are_known_before_they_come_and_forgotten_after_they_left() {
    let security = json!({"nodeAuth": true, "tls": {"extraNames": ["link.example.org"]}});
    let sites = json!([{"name": "lab", "nodes": 1}]);
    let with = spec(|spec| {
        spec["security"] = security;
        spec["sites"] = sites;
    });
    let Some(program) = program() else { return };
    let Some(ward) = Ward::new("nodes", with).await else { return };
    ward.apply(&json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "ward-superlink", "namespace": ward.namespace},
        "spec": {"ports": [{"name": "fleet", "port": 9092}]},
    }));
    let federation = ward.federation();
    let first = sized(&ward, &federation, 2).await;
    assert_eq!(first.trust.as_ref().expect("trust").node_keys["cpu"], "ward-node-keys-cpu");
    let keys = ward.secret("ward-node-keys-cpu").await.expect("keys");
    assert_eq!(keys.entries.keys().collect::<Vec<_>>(), ["ward-supernode-cpu-0", "ward-supernode-cpu-1"]);
    assert_eq!(first.fields["sites"][0]["address"], "link.example.org:9092");
    let join = ward.secret("ward-join-lab").await.expect("a bundle");
    assert_eq!(join.entries.keys().collect::<Vec<_>>(), ["address", "ca.crt", "node-0.key", "node-0.toml"]);

    let mut served = serve(&ward, &program).await;
    let superlink = ready(&ward, &mut served).await;
    let told = enrol(&ward.client, &federation, &superlink, &first.keys).await.expect("told");
    assert_eq!((told.holds, known(&superlink).await), (Some(true), 3), "{}", told.message);
    // Again, by another operator: nothing changes.
    let written = ward.writes();
    let again = sized(&ward, &federation, 2).await;
    assert!(events(&again).is_empty());
    enrol(&ward.client, &federation, &superlink, &again.keys).await.expect("told");
    assert_eq!((known(&superlink).await, ward.writes()), (3, written));

    // One more comes, with the keys of the others as they were; then two leave.
    let third = sized(&ward, &federation, 3).await;
    enrol(&ward.client, &federation, &superlink, &third.keys).await.expect("told");
    let grown = ward.secret("ward-node-keys-cpu").await.expect("keys");
    assert!(keys.entries.iter().all(|(name, key)| grown.entries.get(name) == Some(key)));
    assert_eq!(known(&superlink).await, 4);
    let fewer = sized(&ward, &federation, 1).await;
    assert_eq!(ward.secret("ward-node-keys-cpu").await.expect("keys").entries.len(), 3, "until they are forgotten");
    enrol(&ward.client, &federation, &superlink, &fewer.keys).await.expect("told");
    assert_eq!(known(&superlink).await, 2);
    let left = ward.secret("ward-node-keys-cpu").await.expect("keys");
    assert_eq!(left.entries.keys().collect::<Vec<_>>(), ["ward-supernode-cpu-0"]);

    // Without node authentication and sites nothing is left of either.
    ward.patch(&json!({"spec": {"sites": null, "security": {"nodeAuth": false}}}));
    let federation = ward.federation();
    ward.patch(&json!({"metadata": {"annotations": {"x": "y"}}}));
    let none = sized(&ward, &federation, 1).await;
    enrol(&ward.client, &federation, &superlink, &none.keys).await.expect("told");
    assert_eq!(ward.names().await, ["ward-admin", "ward-authority", "ward-superlink-tls", "ward-trust"]);
}

/// A running SuperLink reloads a renewed certificate from the mounted files, and clients that trust the bundle stay connected.
#[tokio::test]
async fn a_superlink_that_runs_takes_the_next_certificate() {
    let Some(program) = program() else { return };
    let Some(ward) = Ward::new("served", spec(|_| {})).await else { return };
    ward.pass(now()).await;
    let mut served = serve(&ward, &program).await;
    ready(&ward, &mut served).await;
    let seen = certificate(&ward, &served).await;
    // A new name is a reason for a new certificate.
    ward.patch(&json!({"spec": {"security": {"tls": {"extraNames": ["later.example.org"]}}}}));
    assert_eq!(events(&ward.pass(now()).await), ["CertificateIssued"]);
    let tls = served._directory.path().join("tls");
    for (name, bytes) in ward.secret("ward-superlink-tls").await.expect("there").entries {
        // Files of a Secret are exchanged, not written to.
        let next = tls.join(format!("..{name}"));
        fs::write(&next, bytes).expect("a file");
        fs::rename(next, tls.join(name)).expect("a file");
    }
    let deadline = tokio::time::Instant::now() + START;
    while certificate(&ward, &served).await == seen {
        assert!(tokio::time::Instant::now() < deadline, "it still serves the old one");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The certificate that is served, to one who trusts the bundle.
async fn certificate(ward: &Ward, served: &Served) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    let bundle = ward.text("ward-trust", "ca.crt").await;
    let port = served.port;
    let shown = tokio::task::spawn_blocking(move || {
        let mut roots = rustls::RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(root.expect("PEM")).expect("a root");
        }
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let mut client = rustls::ClientConnection::new(std::sync::Arc::new(config), name).expect("a client");
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        while client.is_handshaking() {
            client.complete_io(&mut stream).expect("a handshake");
        }
        client.peer_certificates().expect("certificates")[0].to_vec()
    });
    shown.await.expect("a certificate")
}

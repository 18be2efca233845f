//! Identity of a SuperLink and its clients: certificates that change during a run, certificates of an operator, join tokens.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::federation::{completes, train};
use crate::scene::{Machine, PATIENCE, Scene};

/// Of one run after the other, while an authority is replaced.
const ROUNDS: u32 = 150;

async fn trellis(words: &[&str], machine: &Machine) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_trellis"));
    let output = command.args(words).kill_on_drop(true).output().await.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}\n{}", machine.log());
}

async fn rotate(machine: &Machine, step: &[&str]) {
    let root = machine.root.to_str().expect("a path");
    trellis(&[&["appliance", "rotate-ca", "--root", root], step].concat(), machine).await;
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what} never holds");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn decoded(text: &str) -> String {
    String::from_utf8(STANDARD.decode(text).expect("base64")).expect("PEM")
}

#[tokio::test]
async fn an_authority_is_replaced_while_a_run_goes_on() {
    let scene = Scene::new(2, &[], &[]).await;
    let (mut superlink, mut first, mut second) = (scene.superlink(), scene.node(0), scene.node(1));
    for machine in [&mut superlink, &mut first, &mut second] {
        machine.start();
    }
    for machine in [&superlink, &first, &second] {
        machine.until_says("READY", "YES").await;
    }
    let pids = [superlink.program(), first.program(), second.program()];
    let old = superlink.says("FL_CA_CERT").expect("an authority");
    let over = AtomicBool::new(false);
    let training = async {
        while !over.load(Ordering::Relaxed) {
            completes(train(&scene, &superlink, ROUNDS), &superlink).await;
        }
    };
    let rotating = async {
        superlink.until_says("TRELLIS_BUSY", "YES").await;
        rotate(&superlink, &[]).await;
        let both = superlink.until_other("FL_CA_CERT", &old).await;
        assert!(decoded(&both).contains(&decoded(&old)), "the old one is trusted still");
        for node in [&first, &second] {
            let trust = node.root.join("var/lib/trellis/trust/ca.crt");
            until("the node has both", || std::fs::read_to_string(&trust).is_ok_and(|pem| pem == decoded(&both))).await;
        }
        rotate(&superlink, &["--finish"]).await;
        let trusted = || decoded(&superlink.says("FL_CA_CERT").expect("an authority"));
        until("the old one is withdrawn", || !trusted().contains(&decoded(&old))).await;
        assert!(decoded(&both).contains(&trusted()), "all nodes had it before");
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(training, rotating);
    assert_eq!([superlink.program(), first.program(), second.program()], pids, "nobody was ended");
    completes(train(&scene, &superlink, 3), &superlink).await;
    for machine in [&mut first, &mut second, &mut superlink] {
        machine.stop().await;
    }
}

/// Whether the certificate that is served with bears this name.
fn names(certificate: &Path, name: &str) -> bool {
    let pem = std::fs::read_to_string(certificate).expect("a certificate");
    let first = pem.split("-----").nth(2).expect("a body").split_whitespace().collect::<String>();
    let der = STANDARD.decode(first).expect("base64");
    der.windows(name.len()).any(|window| window == name.as_bytes())
}

#[tokio::test]
async fn another_name_is_another_certificate_and_no_run_is_lost() {
    let scene = Scene::new(2, &[], &[]).await;
    let (mut superlink, mut first, mut second) = (scene.superlink(), scene.node(0), scene.node(1));
    for machine in [&mut superlink, &mut first, &mut second] {
        machine.start();
    }
    for machine in [&superlink, &first, &second] {
        machine.until_says("READY", "YES").await;
    }
    let (pid, authority) = (superlink.program(), superlink.says("FL_CA_CERT"));
    let run = train(&scene, &superlink, 150);
    superlink.until_says("TRELLIS_BUSY", "YES").await;
    let served = superlink.root.join("var/lib/trellis/tls/own/server.pem");
    assert!(!names(&served, "link.example.org"));
    superlink.set_context("FL_CERT_EXTRA_SAN", "DNS:link.example.org,IP:192.0.2.7");
    until("the name is in the certificate", || names(&served, "link.example.org")).await;
    until("it is served", || superlink.log().contains("serving a new certificate")).await;
    completes(run, &superlink).await;
    assert_eq!((superlink.program(), superlink.says("FL_CA_CERT")), (pid, authority));
    for machine in [&mut first, &mut second, &mut superlink] {
        machine.stop().await;
    }
}

/// A chain as operators create it.
fn operators(directory: &Path, key: &[&str]) -> [String; 3] {
    let openssl = |words: &[&str]| {
        let done = Command::new("openssl").args(words).current_dir(directory).output().expect("openssl is there");
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let new = |name: &str, subject: &str| {
        let (file, request) = (format!("{name}.key"), format!("{name}.csr"));
        openssl(&[&["genpkey", "-out", &file], key].concat());
        openssl(&["req", "-new", "-key", &file, "-subj", subject, "-out", &request]);
    };
    new("ca", "/CN=Operator");
    new("server", "/CN=link");
    let ca = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\nsubjectKeyIdentifier=hash\n";
    let server = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\nkeyUsage=digitalSignature\n\
                  basicConstraints=CA:FALSE\nauthorityKeyIdentifier=keyid\n";
    std::fs::write(directory.join("ca.ext"), ca).expect("written");
    std::fs::write(directory.join("server.ext"), server).expect("written");
    let signed = ["x509", "-req", "-days", "30", "-sha256"];
    openssl(&[&signed[..], &["-in", "ca.csr", "-key", "ca.key", "-extfile", "ca.ext", "-out", "ca.crt"]].concat());
    let by = ["-CA", "ca.crt", "-CAkey", "ca.key", "-set_serial", "7", "-extfile", "server.ext", "-out", "server.crt"];
    openssl(&[&signed[..], &["-in", "server.csr"], &by].concat());
    ["ca.crt", "server.crt", "server.key"]
        .map(|name| STANDARD.encode(std::fs::read(directory.join(name)).expect("made")))
}

#[tokio::test]
async fn an_operators_certificates_are_served_whatever_their_keys() {
    let rsa = ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
    let ec = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
    if !Command::new("openssl").arg("version").output().is_ok_and(|done| done.status.success()) {
        eprintln!("skipped: openssl is not there");
        return;
    }
    for key in [&rsa[..], &ec[..]] {
        let directory = tempfile::tempdir().expect("a directory");
        let [ca, certificate, private] = operators(directory.path(), key);
        let given =
            [("FL_SSL_CA_CERTFILE", ca.as_str()), ("FL_SSL_CERTFILE", &certificate), ("FL_SSL_KEYFILE", &private)];
        let scene = Scene::new(1, &given, &[]).await;
        let (mut superlink, mut node) = (scene.superlink(), scene.node(0));
        superlink.start();
        node.start();
        node.until_says("READY", "YES").await;
        assert_eq!(superlink.says("FL_CA_CERT").map(|text| decoded(&text)), Some(decoded(&ca)));
        let other = operators(directory.path(), key)[2].clone();
        superlink.set_context("FL_SSL_KEYFILE", &other);
        let error = superlink.until_other("FL_ERROR", "").await;
        assert!(error.starts_with("tls_setup_failed"), "{error}");
        assert_eq!(superlink.says("READY").as_deref(), Some("YES"), "what is in force serves on");
        node.stop().await;
        superlink.stop().await;
    }
}

#[tokio::test]
async fn a_node_joins_by_a_token_and_not_without() {
    let admin = "an-administrator-that-only-this-test-has";
    let scene = Scene::new(1, &[("FL_NODE_AUTH", "YES"), ("FL_ADMIN_TOKEN", admin)], &[]).await;
    let (mut superlink, mut node) = (scene.superlink(), scene.node(0));
    superlink.start();
    superlink.until_says("READY", "YES").await;
    let said = node.fails(5).await;
    assert!(said.contains("health_check_timeout"), "{said}");
    assert_eq!(node.says("FL_NODE_READY").as_deref(), Some("NO"));
    let directory = tempfile::tempdir().expect("a directory");
    let (file, saved) = (directory.path().join("admin"), directory.path().join("join"));
    std::fs::write(&file, admin).expect("written");
    let (http, authority) = (scene.http.to_string(), superlink.authority());
    let word = |path: &Path| path.to_str().expect("a path").to_owned();
    let (file, save, authority) = (word(&file), word(&saved), word(&authority));
    let caller = ["--superlink", &http, "--root-certificates", &authority, "--token-file", &file];
    trellis(&[&["node", "token", "--save", &save], &caller[..]].concat(), &superlink).await;
    let token = std::fs::read_to_string(&saved).expect("a token");
    node.set_context("FL_JOIN_TOKEN", token.trim());
    node.start();
    node.until_says("FL_NODE_READY", "YES").await;
    // A used token is not needed again.
    let instance = node.says("TRELLIS_INSTANCE").expect("it runs");
    node.crash().await;
    node.start();
    node.until_other("TRELLIS_INSTANCE", &instance).await;
    node.until_says("FL_NODE_READY", "YES").await;
    // A SuperLink that lost its state knows neither the node nor its token. The error names the token, and a new token
    // solves it.
    superlink.stop().await;
    std::fs::remove_dir_all(superlink.root.join("var/lib/trellis/superlink")).expect("its state is lost");
    superlink.start();
    superlink.until_says("READY", "YES").await;
    node.crash().await;
    node.start();
    let name = format!("vm-{}", node.vm);
    let refused = format!("join_refused: {} ", trellis_one::keys::token_mark(token.trim(), &name));
    let began = std::time::Instant::now();
    while !node.says("FL_ERROR").is_some_and(|error| error.starts_with(&refused)) {
        assert!(began.elapsed() < crate::scene::PATIENCE, "{:?}\n{}", node.says("FL_ERROR"), node.log());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    std::fs::remove_file(&saved).expect("the old token");
    trellis(&[&["node", "token", "--save", &save], &caller[..]].concat(), &superlink).await;
    let token = std::fs::read_to_string(&saved).expect("a token");
    node.set_context("FL_JOIN_TOKEN", token.trim());
    node.until_says("FL_NODE_READY", "YES").await;
    node.stop().await;
    superlink.stop().await;
}

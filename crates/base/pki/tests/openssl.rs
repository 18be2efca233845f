//! OpenSSL verifies our certificates, and we accept those of OpenSSL. Python 3.13 and later use the strict mode of OpenSSL.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use trellis_diagnostic::{Diagnostic, Severity};
use trellis_pki::authority::{Authority, CA_VALIDITY, LEAF_VALIDITY, Order, Step};
use trellis_pki::{Certificate, Checked, Endpoint, Files, check, pem};

/// Whether openssl is installed; prints which tests are skipped without it.
fn openssl_is_here(what: &str) -> bool {
    let here = Command::new("openssl").arg("version").output().is_ok_and(|output| output.status.success());
    if !here {
        // Past the capture of the test harness.
        let _ = writeln!(std::io::stderr(), "SKIP: openssl is not installed, {what} was not tested");
    }
    here
}

fn openssl(dir: &Path, line: &str) -> Output {
    Command::new("openssl").args(line.split_whitespace()).current_dir(dir).output().expect("openssl runs")
}

fn good(dir: &Path, line: &str) -> String {
    let output = openssl(dir, line);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "openssl {line}\n{stdout}{stderr}");
    stdout.into_owned()
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    i64::try_from(since.as_secs()).expect("a small number")
}

fn endpoints(texts: &[&str]) -> Vec<Endpoint> {
    texts.iter().map(|text| Endpoint::parse(text).expect(text)).collect()
}

fn order(out: PathBuf) -> Order {
    let endpoints = endpoints(&["link.example.org:9092", "10.0.0.7", "[2001:db8::7]:9092"]);
    Order { endpoints, out, validity: LEAF_VALIDITY, name: None, only_if_due: true }
}

#[test]
fn openssl_verifies_what_we_issue() {
    if !openssl_is_here("that other programs accept our certificates") {
        return;
    }
    let home = tempfile::tempdir().expect("a directory");
    let (dir, out) = (home.path().join("ca"), home.path().join("tls"));
    let mut authority = Authority::init(&dir, "second opinion", CA_VALIDITY, now()).expect("an authority");
    authority.issue(&order(out.clone()), now()).expect("issued");

    let verify = "verify -x509_strict -purpose sslserver -CAfile ca.crt";
    for name in ["-verify_hostname link.example.org", "-verify_ip 10.0.0.7", "-verify_ip 2001:db8::7"] {
        assert_eq!(good(&out, &format!("{verify} {name} server.pem")), "server.pem: OK\n");
    }
    for name in ["-verify_hostname example.org", "-verify_ip 10.0.0.8"] {
        assert!(!openssl(&out, &format!("{verify} {name} server.pem")).status.success(), "{name}");
    }

    let text = good(&out, "x509 -in server.pem -noout -text");
    for expected in
        ["TLS Web Server Authentication", "Digital Signature", "CA:FALSE", "X509v3 Authority Key Identifier"]
    {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    let text = good(&out, "x509 -in ca.crt -noout -text");
    for expected in [
        "X509v3 Basic Constraints: critical\n                CA:TRUE, pathlen:0",
        "X509v3 Key Usage: critical\n                Certificate Sign, CRL Sign",
        "X509v3 Subject Key Identifier",
        "NIST CURVE: P-384",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    let ders = pem::certificates(&fs::read(out.join("server.pem")).expect("a file")).expect("a certificate");
    let leaf = Certificate::read(&ders[0]).expect("a certificate");
    let printed = good(&out, "x509 -in server.pem -noout -fingerprint -sha256");
    assert_eq!(printed.trim().rsplit('=').next(), Some(leaf.fingerprint.as_str()));
    let public = |line: &str| good(&out, line);
    assert_eq!(public("x509 -in server.pem -noout -pubkey"), public("pkey -in server.key -pubout"));
}

#[test]
fn openssl_agrees_at_every_step_of_a_rotation() {
    if !openssl_is_here("a rotation with other programs") {
        return;
    }
    let home = tempfile::tempdir().expect("a directory");
    let (dir, out) = (home.path().join("ca"), home.path().join("tls"));
    let mut authority = Authority::init(&dir, "rotating", CA_VALIDITY, now()).expect("an authority");
    let keep = |authority: &mut Authority, name: &str| {
        authority.issue(&order(out.clone()), now()).expect("issued");
        fs::copy(out.join("server.pem"), home.path().join(format!("{name}.pem"))).expect("copied");
        fs::write(home.path().join(format!("{name}.ca")), authority.trust_bundle().expect("a bundle"))
            .expect("written");
    };
    keep(&mut authority, "steady");
    for (step, name) in [(Step::Begin, "announced"), (Step::Switch, "switched"), (Step::Finish, "finished")] {
        assert!(authority.rotate(step, false, now()).expect("a step"));
        keep(&mut authority, name);
    }
    let accepts = |trust: &str, leaf: &str| {
        let line = format!("verify -x509_strict -purpose sslserver -CAfile {trust}.ca {leaf}.pem");
        openssl(home.path(), &line).status.success()
    };
    let leaves = ["steady", "announced", "switched", "finished"];
    for (trust, expected) in [
        ("steady", [true, true, false, false]),
        ("announced", [true; 4]),
        ("switched", [true; 4]),
        ("finished", [false, false, true, true]),
    ] {
        assert_eq!(leaves.map(|leaf| accepts(trust, leaf)), expected, "a client with the bundle of {trust}");
    }
}

/// Certificates as an operator creates them with openssl.
struct Operator {
    home: TempDir,
}

impl Operator {
    fn new(ca_key: &str) -> Operator {
        let operator = Operator { home: tempfile::tempdir().expect("a directory") };
        fs::create_dir(operator.home.path().join("tls")).expect("a directory");
        operator.run(&ca_key.replace("FILE", "ca.secret"));
        operator.run("req -x509 -new -key ca.secret -sha256 -subj /O=Operator/CN=Root -days 30 -out tls/ca.crt");
        operator
    }

    fn run(&self, line: &str) -> String {
        good(self.home.path(), line)
    }

    /// A leaf for the key in tls/server.key.
    fn sign(&self) {
        let names = "subjectAltName=DNS:link.example.org,IP:10.0.0.7\n";
        fs::write(self.home.path().join("names"), names).expect("written");
        self.run("req -new -key tls/server.key -subj /CN=link -out request");
        self.run("x509 -req -in request -CA tls/ca.crt -CAkey ca.secret -CAcreateserial -days 10 -sha256 -extfile names -out tls/server.pem");
        fs::set_permissions(self.files().key, fs::Permissions::from_mode(0o600)).expect("mode");
    }

    fn files(&self) -> Files {
        let tls = self.home.path().join("tls");
        Files { certificate: tls.join("server.pem"), key: tls.join("server.key"), ca: tls.join("ca.crt") }
    }

    fn check(&self) -> Result<Checked, Vec<Diagnostic>> {
        check(&self.files(), &endpoints(&["link.example.org", "10.0.0.7"]), None, now())
    }
}

#[test]
fn operator_certificates_of_every_kind_are_accepted() {
    if !openssl_is_here("certificates that an operator brings") {
        return;
    }
    let rsa = "genrsa -out FILE 2048";
    let kinds = [
        (rsa, rsa, "RSA 2048"),
        ("genrsa -traditional -out FILE 3072", "genrsa -traditional -out FILE 2048", "RSA 2048"),
        ("ecparam -name prime256v1 -genkey -out FILE", "ecparam -name prime256v1 -genkey -out FILE", "ECDSA P-256"),
        (rsa, "ecparam -name secp384r1 -genkey -noout -out FILE", "ECDSA P-384"),
        ("ecparam -name secp384r1 -genkey -out FILE", "genrsa -out FILE 3072", "RSA 3072"),
        ("genpkey -algorithm ed25519 -out FILE", "genpkey -algorithm ed25519 -out FILE", "Ed25519"),
    ];
    for (ca, leaf, kind) in kinds {
        let operator = Operator::new(ca);
        operator.run(&leaf.replace("FILE", "tls/server.key"));
        operator.sign();
        let checked = operator.check().unwrap_or_else(|problems| panic!("{ca}, {leaf}: {problems:?}"));
        assert_eq!((checked.leaf.key_type.as_str(), checked.warnings.len()), (kind, 0), "{ca}, {leaf}");
    }
}

#[test]
fn operator_mistakes_are_told() {
    if !openssl_is_here("mistakes that an operator makes") {
        return;
    }
    let operator = Operator::new("genrsa -out FILE 2048");
    operator.run("genrsa -out tls/server.key 2048");
    operator.sign();
    let told = || -> Vec<String> {
        let problems = operator.check().map(|_| ()).expect_err("a mistake");
        assert_eq!(problems[0].severity, Severity::Error);
        problems.into_iter().map(|problem| problem.what).collect()
    };

    operator.run("rsa -in tls/server.key -aes256 -passout pass:secret -out locked");
    fs::rename(operator.home.path().join("locked"), operator.files().key).expect("renamed");
    assert_eq!(told(), ["the private key is protected by a passphrase"]);

    operator.run("genrsa -out tls/server.key 2048");
    assert_eq!(told(), ["the key does not belong to the certificate CN=link"]);

    operator.run("x509 -in tls/ca.crt -outform der -out der");
    fs::rename(operator.home.path().join("der"), operator.files().ca).expect("renamed");
    assert_eq!(told()[0], "it is DER, not PEM");

    // A request signed without extensions, as many recipes do it.
    let operator = Operator::new("genrsa -out FILE 2048");
    operator.run("genrsa -out tls/server.key 2048");
    operator.run("req -new -key tls/server.key -subj /CN=link.example.org -out request");
    operator.run("x509 -req -in request -CA tls/ca.crt -CAkey ca.secret -CAcreateserial -days 10 -out tls/server.pem");
    let problems = operator.check().map(|_| ()).expect_err("a mistake");
    let told: Vec<_> = problems.iter().map(|problem| problem.what.as_str()).collect();
    assert!(told[0].starts_with("it names no host (subjectAltName)"), "{told:?}");

    // The key of the CA is in the same directory.
    let operator = Operator::new("genrsa -out FILE 2048");
    operator.run("genrsa -out tls/server.key 2048");
    operator.sign();
    fs::copy(operator.home.path().join("ca.secret"), operator.home.path().join("tls/root.key")).expect("copied");
    let problems = operator.check().map(|_| ()).expect_err("a mistake");
    assert!(problems[0].what.contains("the key of the authority O=Operator, CN=Root is here"), "{problems:?}");
}

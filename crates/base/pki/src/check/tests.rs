//! Good and bad files: the reported problems, and the agreement with a real TLS handshake.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use rcgen::{ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose};
use tempfile::TempDir;

use super::*;
use crate::served::Served;
use crate::testing::{
    DAY, EC, Made, NOW, RSA, TestCa, between, ca_params, client, converse, endpoint, leaf_params, server,
};

fn files() -> Files {
    Files { certificate: "server.pem".into(), key: "server.key".into(), ca: "ca.crt".into() }
}

fn examined(certificate: &str, key: &str, ca: &str, endpoints: &[&str]) -> Result<Checked, Vec<Diagnostic>> {
    let endpoints: Vec<Endpoint> = endpoints.iter().map(|text| endpoint(text)).collect();
    examine(&Contents::from_text(files(), certificate, key, ca), &endpoints, NOW)
}

/// The problems, as `file: what`.
fn faults(certificate: &str, key: &str, ca: &str, endpoints: &[&str]) -> Vec<String> {
    match examined(certificate, key, ca, endpoints) {
        Ok(checked) => checked.warnings,
        Err(problems) => {
            assert!(problems.iter().any(|problem| problem.severity == Severity::Error), "{problems:?}");
            problems
        }
    }
    .iter()
    .map(|problem| format!("{}: {}", problem.place, problem.what))
    .collect()
}

fn sign(ca: &TestCa, change: impl FnOnce(&mut rcgen::CertificateParams)) -> Made {
    let mut params = leaf_params();
    change(&mut params);
    ca.sign(EC, &params)
}

const ALL: [&str; 4] = ["link.example.org", "10.0.0.7", "2001:db8::7", "0.0.0.0:9092"];

#[test]
fn rsa_and_ec_are_accepted_and_served() {
    for (ca_kind, leaf_kind) in
        [(EC, EC), (EC, RSA), (RSA, EC), (RSA, RSA), (&rcgen::PKCS_ED25519, &rcgen::PKCS_ED25519)]
    {
        let ca = TestCa::new(ca_kind);
        let leaf = ca.sign(leaf_kind, &leaf_params());
        let checked = examined(&leaf.certificate, &leaf.key, &ca.made.certificate, &ALL).expect("a good pair");
        assert_eq!(checked.warnings, []);
        assert_eq!((checked.certificates.len(), checked.ca.len()), (1, 1));
        let served = Arc::new(Served::new(&checked));
        for name in &ALL[..3] {
            let mut client = client(&ca.made.certificate, name, NOW);
            converse(&mut client, &mut server(served.clone())).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

#[test]
fn an_intermediate_is_followed_and_missed() {
    let root = TestCa::new(EC);
    let middle = root.below(ca_params("middle"));
    let leaf = middle.sign(RSA, &leaf_params());
    let chain = format!("{}{}", leaf.certificate, middle.made.certificate);
    assert_eq!(faults(&chain, &leaf.key, &root.made.certificate, &ALL), [] as [&str; 0]);
    assert_eq!(
        faults(&leaf.certificate, &leaf.key, &root.made.certificate, &ALL),
        ["server.pem: O=An operator, CN=middle issued it, which is neither in this file nor in the CA file"]
    );
    let turned = format!("{}{}", middle.made.certificate, leaf.certificate);
    let found = faults(&turned, &leaf.key, &root.made.certificate, &[]);
    assert!(
        found.contains(&"server.pem: the key belongs to a later certificate of the chain, not to the first".into())
    );
}

#[test]
fn what_is_wrong_is_told() {
    let ca = TestCa::new(EC);
    let other_ca = TestCa::new(EC);
    let good = sign(&ca, |_| {});
    let other = sign(&ca, |_| {});
    let expired = sign(&ca, |params| between(params, NOW - 9 * DAY, NOW - DAY));
    let future = sign(&ca, |params| between(params, NOW + DAY, NOW + 9 * DAY));
    let soon = sign(&ca, |params| between(params, NOW - DAY, NOW + 3 * 3600));
    let nameless = sign(&ca, |params| params.subject_alt_names.clear());
    let client_only = sign(&ca, |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    let unsigning = sign(&ca, |params| params.key_usages = vec![KeyUsagePurpose::KeyEncipherment]);
    let old_ca = {
        let mut params = ca_params("old CA");
        between(&mut params, NOW - 9 * DAY, NOW - DAY);
        TestCa::with(EC, params)
    };
    let of_old = sign(&old_ca, |_| {});
    let no_ca = {
        let mut params = ca_params("no CA");
        params.is_ca = IsCa::ExplicitNoCa;
        TestCa::with(EC, params)
    };
    let of_none = sign(&no_ca, |_| {});
    let root = &ca.made.certificate;
    let two = format!("{}{root}", old_ca.made.certificate);

    for (what, (certificate, key, ca), expected) in [
        ("good", (&good.certificate, &good.key, root), vec![]),
        (
            "key of another",
            (&good.certificate, &other.key, root),
            vec!["server.key: the key does not belong to the certificate O=An operator, CN=server"],
        ),
        (
            "expired",
            (&expired.certificate, &expired.key, root),
            vec!["server.pem: O=An operator, CN=server expired on 2027-01-14T08:00:00Z"],
        ),
        (
            "not yet valid",
            (&future.certificate, &future.key, root),
            vec!["server.pem: O=An operator, CN=server is not valid before 2027-01-16T08:00:00Z"],
        ),
        (
            "soon (a warning)",
            (&soon.certificate, &soon.key, root),
            vec!["server.pem: O=An operator, CN=server expires in 3 hours, on 2027-01-15T11:00:00Z"],
        ),
        (
            "no names",
            (&nameless.certificate, &nameless.key, root),
            vec![
                "server.pem: it names no host (subjectAltName): clients do not accept it, whatever its common name is",
            ],
        ),
        (
            "client certificate",
            (&client_only.certificate, &client_only.key, root),
            vec!["server.pem: its extended key usage does not allow a server (serverAuth)"],
        ),
        (
            "key usage",
            (&unsigning.certificate, &unsigning.key, root),
            vec!["server.pem: its key usage lacks digitalSignature: Flower's clients refuse it"],
        ),
        (
            "another CA of the same name",
            (&good.certificate, &good.key, &other_ca.made.certificate),
            vec![
                "server.pem: it says that O=An operator, CN=operator CA issued it, but the authority of that name did not sign it",
            ],
        ),
        (
            "another CA",
            (&good.certificate, &good.key, &old_ca.made.certificate),
            vec![
                "server.pem: O=An operator, CN=operator CA issued it, which is neither in this file nor in the CA file",
                "ca.crt: O=An operator, CN=old CA expired on 2027-01-14T08:00:00Z",
            ],
        ),
        (
            "old CA",
            (&of_old.certificate, &of_old.key, &old_ca.made.certificate),
            vec![
                "ca.crt: O=An operator, CN=old CA, the root of the certificate, is not valid now",
                "ca.crt: O=An operator, CN=old CA expired on 2027-01-14T08:00:00Z",
            ],
        ),
        (
            "an old CA beside the good one (a warning)",
            (&good.certificate, &good.key, &two),
            vec!["ca.crt: O=An operator, CN=old CA expired on 2027-01-14T08:00:00Z"],
        ),
        (
            "CA that is none",
            (&of_none.certificate, &of_none.key, &no_ca.made.certificate),
            vec!["ca.crt: O=An operator, CN=no CA is not the certificate of an authority (CA)"],
        ),
        (
            "certificate and key exchanged",
            (&good.key, &good.certificate, root),
            vec![
                "server.pem: it holds a private key and no certificate",
                "server.key: it holds a certificate and no private key",
            ],
        ),
        (
            "certificate and CA exchanged",
            (root, &good.key, &good.certificate),
            vec![
                "server.pem: it names no host (subjectAltName): clients do not accept it, whatever its common name is",
                "server.pem: its key usage lacks digitalSignature: Flower's clients refuse it",
                "ca.crt: O=An operator, CN=server is not the certificate of an authority (CA)",
                "server.key: it is the key of the authority O=An operator, CN=server: an app could read it and sign anything",
                "server.pem: its first certificate, O=An operator, CN=operator CA, is one of an authority (CA), not of a server",
                "server.key: the key does not belong to the certificate O=An operator, CN=operator CA",
            ],
        ),
    ] {
        assert_eq!(faults(certificate, key, ca, &["link.example.org"]), expected, "{what}");
    }
}

/// The check and a TLS client must agree on every case.
#[test]
fn tls_agrees() {
    let (ca, stranger) = (TestCa::new(EC), TestCa::new(EC));
    let good = sign(&ca, |_| {});
    let expired = sign(&ca, |params| between(params, NOW - 9 * DAY, NOW - DAY));
    let client_only = sign(&ca, |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    for (made, trust, name) in [
        (&good, &ca, "link.example.org"),
        (&good, &ca, "10.0.0.7"),
        (&good, &ca, "10.0.0.8"),
        (&good, &ca, "example.org"),
        (&good, &stranger, "link.example.org"),
        (&expired, &ca, "link.example.org"),
        (&client_only, &ca, "link.example.org"),
    ] {
        let said = examined(&made.certificate, &made.key, &trust.made.certificate, &[name]).is_ok();
        // The server serves any certificate; the client judges it.
        let chain = pem::certificates(made.certificate.as_bytes()).expect("a chain");
        let key = any_supported_type(&pem::private_key(made.key.as_bytes()).expect("a key")).expect("a key");
        let certified = rustls::sign::SingleCertAndKey::from(CertifiedKey::new(chain, key));
        let mut client = client(&trust.made.certificate, name, NOW);
        let done = converse(&mut client, &mut server(Arc::new(certified)));
        assert_eq!(said, done.is_ok(), "{name}: {done:?}");
    }
}

#[test]
fn names_are_compared_as_clients_do() {
    let ca = TestCa::new(EC);
    let wild = sign(&ca, |params| {
        let names = vec!["*.example.org".to_owned(), "LINK".to_owned()];
        params.subject_alt_names = rcgen::CertificateParams::new(names).expect("names").subject_alt_names;
    });
    let missing = |name| faults(&wild.certificate, &wild.key, &ca.made.certificate, &[name]);
    for name in ["a.example.org:9092", "link", "A.Example.Org", "0.0.0.0:9092", "[::]:9092"] {
        assert_eq!(missing(name), [] as [&str; 0], "{name}");
    }
    for name in ["example.org", "a.b.example.org", "10.0.0.7", "localhost"] {
        let host = name.to_owned();
        let expected = format!("server.pem: it does not cover {host}; it covers *.example.org, link");
        assert_eq!(missing(name), [expected], "{name}");
    }
}

#[test]
fn garbage_is_named_in_each_file_at_once() {
    assert_eq!(
        faults("", "-----BEGIN PRIVATE KEY-----\nMAMCAQE=\n-----END PRIVATE KEY-----\n", "hello", &["h"]),
        [
            "server.pem: it is empty",
            "server.key: the private key is damaged, or of a kind that cannot be used",
            "ca.crt: it holds no certificate in PEM",
        ]
    );
    let noise = pem::encode("CERTIFICATE", b"noise");
    let found = faults(&noise, "x", &noise, &[]);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("server.pem: a certificate in it is damaged"), "{found:?}");
}

#[test]
fn a_certificate_that_signed_itself_is_refused() {
    let mut params = leaf_params();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages.push(KeyUsagePurpose::KeyCertSign);
    let own = TestCa::with(EC, params).made;
    let found = faults(&own.certificate, &own.key, &own.certificate, &ALL);
    assert_eq!(
        found,
        [
            "server.key: it is the key of the authority O=An operator, CN=server: an app could read it and sign anything",
            "server.pem: its first certificate, O=An operator, CN=server, is one of an authority (CA), not of a server",
        ]
    );
}

/// A directory with good files in it.
fn directory(ca: &TestCa) -> (TempDir, Files) {
    let dir = tempfile::tempdir().expect("a directory");
    let leaf = ca.sign(EC, &leaf_params());
    let files = Files {
        certificate: dir.path().join("server.pem"),
        key: dir.path().join("server.key"),
        ca: dir.path().join("ca.crt"),
    };
    fs::write(&files.certificate, &leaf.certificate).expect("written");
    fs::write(&files.key, &leaf.key).expect("written");
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).expect("mode");
    fs::write(&files.ca, &ca.made.certificate).expect("written");
    (dir, files)
}

fn found(files: &Files, state_dir: Option<&Path>) -> Vec<(Severity, String)> {
    let problems = match check(files, &[], state_dir, NOW) {
        Ok(checked) => checked.warnings,
        Err(problems) => problems,
    };
    problems.into_iter().map(|problem| (problem.severity, format!("{}: {}", problem.place, problem.what))).collect()
}

#[test]
fn files_that_cannot_be_read_are_all_named() {
    let ca = TestCa::new(EC);
    let (dir, files) = directory(&ca);
    let gone =
        Files { certificate: dir.path().join("gone.pem"), key: dir.path().to_owned(), ca: dir.path().join("large") };
    fs::write(&gone.ca, vec![b'x'; (1 << 20) + 1]).expect("written");
    let place = |path: &Path| path.display().to_string();
    assert_eq!(
        found(&gone, None),
        [
            (
                Severity::Error,
                format!("{}: it cannot be read: No such file or directory (os error 2)", place(&gone.certificate))
            ),
            (Severity::Error, format!("{}: it cannot be read: it is a directory", place(&gone.key))),
            (Severity::Error, format!("{}: it cannot be read: it is larger than 1 MiB", place(&gone.ca))),
        ]
    );
    // A pipe would block for ever.
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).expect("a pipe");
    let piped = Files { key: pipe.clone(), ..files };
    assert_eq!(
        found(&piped, None),
        [(Severity::Error, format!("{}: it cannot be read: it is no regular file", place(&pipe)))]
    );
}

#[test]
fn a_key_that_all_can_read_is_a_warning() {
    let (_dir, files) = directory(&TestCa::new(EC));
    for (mode, warned) in [(0o600, false), (0o640, false), (0o644, true), (0o666, true)] {
        fs::set_permissions(&files.key, fs::Permissions::from_mode(mode)).expect("mode");
        let what = format!("{}: every user of this machine can get at the key (mode {mode:04o})", files.key.display());
        let expected = if warned { vec![(Severity::Warning, what)] } else { vec![] };
        assert_eq!(found(&files, None), expected, "{mode:o}");
    }
}

#[test]
fn the_key_of_an_authority_within_reach_is_refused() {
    let ca = TestCa::new(EC);
    let (dir, files) = directory(&ca);
    let state = tempfile::tempdir().expect("a directory");
    let place = |path: &Path| path.display().to_string();
    assert_eq!(found(&files, Some(state.path())), []);

    // By its content, under any name.
    let hidden = dir.path().join("other.pem");
    fs::write(&hidden, &ca.made.key).expect("written");
    let what = "the key of the authority O=An operator, CN=operator CA is here: an app could read it";
    assert_eq!(found(&files, None), [(Severity::Error, format!("{}: {what}", place(&hidden)))]);
    fs::remove_file(&hidden).expect("removed");

    // Keys of leaves are allowed.
    fs::write(dir.path().join("other.key"), &TestCa::new(EC).made.key).expect("written");
    assert_eq!(found(&files, None), []);

    // By its name, even if it cannot be parsed, and deep in the state directory.
    let deep = state.path().join("pki/cas/0123");
    fs::create_dir_all(&deep).expect("a directory");
    fs::write(deep.join("ca.key"), "locked").expect("written");
    fs::write(dir.path().join("ca.key"), &TestCa::new(EC).made.key).expect("written");
    let what = "by its name, this is the key of an authority: an app could read it";
    assert_eq!(
        found(&files, Some(state.path())),
        [
            (Severity::Error, format!("{}: {what}", place(&dir.path().join("ca.key")))),
            (Severity::Error, format!("{}: {what}", place(&deep.join("ca.key")))),
        ]
    );
}

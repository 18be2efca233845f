//! Certificates of every kind, good and bad, and TLS handshakes in memory, for tests.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SignatureAlgorithm,
};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::UnixTime;
use rustls::server::ResolvesServerCert;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use time::OffsetDateTime;

use crate::endpoint::Endpoint;
use crate::{UnixSeconds, pem};

pub const NOW: UnixSeconds = 1_800_000_000;
pub const DAY: i64 = 86_400;
pub const EC: &SignatureAlgorithm = &rcgen::PKCS_ECDSA_P256_SHA256;
pub const RSA: &SignatureAlgorithm = &rcgen::PKCS_RSA_SHA256;

/// PEM texts of a certificate and its key.
#[derive(Clone)]
pub struct Made {
    pub certificate: String,
    pub key: String,
}

/// An authority that was created without the code under test.
pub struct TestCa {
    pub made: Made,
    issuer: Issuer<'static, KeyPair>,
}

/// On tmpfs if there is one: hundreds of crashes with fsync would take half a minute on a disk.
pub fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

pub fn endpoint(text: &str) -> Endpoint {
    Endpoint::parse(text).expect(text)
}

pub fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "An operator");
    params.distinguished_name.push(DnType::CommonName, name);
    between(&mut params, NOW - DAY, NOW + 100 * DAY);
    params
}

pub fn between(params: &mut CertificateParams, from: UnixSeconds, until: UnixSeconds) {
    params.not_before = OffsetDateTime::from_unix_timestamp(from).expect("a date");
    params.not_after = OffsetDateTime::from_unix_timestamp(until).expect("a date");
}

pub fn ca_params(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// For a server on link.example.org, 10.0.0.7 and 2001:db8::7.
pub fn leaf_params() -> CertificateParams {
    let mut params = params("server");
    let names = ["link.example.org", "10.0.0.7", "2001:db8::7"].map(str::to_owned);
    params.subject_alt_names = CertificateParams::new(names).expect("names").subject_alt_names;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

impl TestCa {
    pub fn new(algorithm: &'static SignatureAlgorithm) -> TestCa {
        TestCa::with(algorithm, ca_params("operator CA"))
    }

    pub fn with(algorithm: &'static SignatureAlgorithm, params: CertificateParams) -> TestCa {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let made = made(&certificate, &key);
        TestCa { made, issuer: Issuer::new(params, key) }
    }

    /// An authority below this one.
    pub fn below(&self, params: CertificateParams) -> TestCa {
        let key = KeyPair::generate_for(EC).expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let made = made(&certificate, &key);
        TestCa { made, issuer: Issuer::new(params, key) }
    }

    pub fn sign(&self, algorithm: &'static SignatureAlgorithm, params: &CertificateParams) -> Made {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        made(&certificate, &key)
    }
}

fn made(certificate: &rcgen::Certificate, key: &KeyPair) -> Made {
    Made {
        certificate: pem::encode("CERTIFICATE", certificate.der()),
        key: pem::encode("PRIVATE KEY", &key.serialize_der()),
    }
}

#[derive(Debug)]
struct At(UnixSeconds);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// A client that trusts `trust` and connects to `endpoint`.
pub fn client(trust: &str, endpoint: &str, now: UnixSeconds) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    for root in pem::certificates(trust.as_bytes()).expect("a bundle") {
        roots.add(root).expect("a root");
    }
    let provider = Arc::new(default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let config = ClientConfig::builder_with_details(provider, Arc::new(At(now)))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_webpki_verifier(verifier.expect("a verifier"))
        .with_no_client_auth();
    let name = self::endpoint(endpoint).server_name().expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("a client")
}

pub fn server(resolver: Arc<dyn ResolvesServerCert>) -> ServerConnection {
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    ServerConnection::new(Arc::new(config)).expect("a server")
}

/// Copies bytes in both directions until both ends are silent, or one refuses.
pub fn converse(client: &mut ClientConnection, server: &mut ServerConnection) -> Result<(), rustls::Error> {
    while client.wants_write() || server.wants_write() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).expect("memory");
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).expect("memory");
            server.process_new_packets()?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).expect("memory");
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("memory");
            client.process_new_packets()?;
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking(), "the handshake is over");
    Ok(())
}

//! Keys of a control plane: the signing key of service account tokens, the CA of client certificates, and the identity
//! of the aggregation layer.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    PublicKeyData,
};

pub(super) const ACCOUNT_KEY: &str = "accounts.key";
pub(super) const ACCOUNT_PUBLIC_KEY: &str = "accounts.pub";
pub(super) const USERS_AUTHORITY: &str = "users.crt";
pub(super) const AGGREGATOR: &str = "aggregator";
/// A CA of its own: no user may act as the aggregator.
pub(super) const AGGREGATOR_AUTHORITY: &str = "aggregator-ca.crt";
pub(super) const AGGREGATOR_CERTIFICATE: &str = "aggregator.crt";
pub(super) const AGGREGATOR_KEY: &str = "aggregator.key";
const PEM_WIDTH: usize = 64;

pub(super) struct Identities {
    authority: Issuer<'static, KeyPair>,
}

impl Identities {
    pub fn written_to(directory: &Path) -> Identities {
        let account = key();
        put(directory, ACCOUNT_KEY, &pem("PRIVATE KEY", &account.serialize_der()));
        put(directory, ACCOUNT_PUBLIC_KEY, &pem("PUBLIC KEY", &account.subject_public_key_info()));
        let aggregators = authority("aggregators", directory, AGGREGATOR_AUTHORITY);
        let (certificate, key) = client(AGGREGATOR, None, &aggregators);
        put(directory, AGGREGATOR_CERTIFICATE, &certificate);
        put(directory, AGGREGATOR_KEY, &key);
        Identities { authority: authority("users", directory, USERS_AUTHORITY) }
    }

    /// Returns certificate and key in kubeconfig format: base64 of PEM.
    pub fn certificate_for(&self, user: &str, group: Option<&str>) -> (String, String) {
        let (certificate, key) = client(user, group, &self.authority);
        (BASE64_STANDARD.encode(certificate), BASE64_STANDARD.encode(key))
    }
}

fn authority(name: &str, directory: &Path, file: &str) -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = named(name, None);
    let own_key = key();
    let certificate = params.self_signed(&own_key).expect("an authority can be made");
    put(directory, file, &pem("CERTIFICATE", certificate.der()));
    Issuer::new(params, own_key)
}

/// Returns certificate and key.
fn client(user: &str, group: Option<&str>, authority: &Issuer<'static, KeyPair>) -> (String, String) {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(user, group);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let own_key = key();
    let certificate = params.signed_by(&own_key, authority).expect("a certificate can be made");
    (pem("CERTIFICATE", certificate.der()), pem("PRIVATE KEY", &own_key.serialize_der()))
}

/// Kubernetes reads the user from the common name and the group from the organization.
fn named(user: &str, group: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, user);
    if let Some(group) = group {
        name.push(DnType::OrganizationName, group);
    }
    name
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key can be made")
}

fn pem(label: &str, der: &[u8]) -> String {
    let encoded = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> =
        encoded.as_bytes().chunks(PEM_WIDTH).map(|line| std::str::from_utf8(line).expect("base64 is ASCII")).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Sufficient for a server on loopback that runs only during a test.
pub(super) fn random_token() -> String {
    (0..2).map(|_| format!("{:016x}", RandomState::new().hash_one(()))).collect()
}

fn put(directory: &Path, name: &str, content: &str) {
    fs::write(directory.join(name), content).expect("a file of the control plane");
}

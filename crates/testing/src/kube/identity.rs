//! Keys of a control plane: the one that signs tokens of service accounts, and the authority that signs certificates of users.

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
const PEM_WIDTH: usize = 64;

pub(super) struct Identities {
    authority: Issuer<'static, KeyPair>,
}

impl Identities {
    pub fn written_to(directory: &Path) -> Identities {
        let account = key();
        put(directory, ACCOUNT_KEY, &pem("PRIVATE KEY", &account.serialize_der()));
        put(directory, ACCOUNT_PUBLIC_KEY, &pem("PUBLIC KEY", &account.subject_public_key_info()));
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = named("users", None);
        let authority_key = key();
        let certificate = params.self_signed(&authority_key).expect("an authority can be made");
        put(directory, USERS_AUTHORITY, &pem("CERTIFICATE", certificate.der()));
        Identities { authority: Issuer::new(params, authority_key) }
    }

    /// Certificate and key as a kubeconfig has them: PEM in base64.
    pub fn certificate_for(&self, user: &str, group: Option<&str>) -> (String, String) {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let own_key = key();
        let certificate = params.signed_by(&own_key, &self.authority).expect("a certificate can be made");
        let encoded = |text: String| BASE64_STANDARD.encode(text);
        (encoded(pem("CERTIFICATE", certificate.der())), encoded(pem("PRIVATE KEY", &own_key.serialize_der())))
    }
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

/// Good enough for a server on loopback that lives as long as a test.
pub(super) fn random_token() -> String {
    (0..2).map(|_| format!("{:016x}", RandomState::new().hash_one(()))).collect()
}

fn put(directory: &Path, name: &str, content: &str) {
    fs::write(directory.join(name), content).expect("a file of the control plane");
}

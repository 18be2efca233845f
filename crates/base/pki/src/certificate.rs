//! A parsed certificate. Other modules judge its content.

use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use trellis_digest::{hex, sha256};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::{SubjectPublicKeyInfo, X509Name};

use crate::UnixSeconds;

const EC_KEY: &str = "1.2.840.10045.2.1";
const RSA_KEYS: [&str; 2] = ["1.2.840.113549.1.1.1", "1.2.840.113549.1.1.10"];
const ED25519_KEY: &str = "1.3.101.112";
const CURVES: [(&str, &str); 3] =
    [("1.2.840.10045.3.1.7", "P-256"), ("1.3.132.0.34", "P-384"), ("1.3.132.0.35", "P-521")];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    pub subject: String,
    pub issuer: String,
    pub not_before: UnixSeconds,
    pub not_after: UnixSeconds,
    /// Host names and addresses (subjectAltName), as text.
    pub names: Vec<String>,
    pub is_ca: bool,
    /// For people: `ECDSA P-384`, `RSA 4096`.
    pub key_type: String,
    /// SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` prints it.
    pub fingerprint: String,
    pub may_sign_handshakes: bool,
    pub may_sign_certificates: bool,
    der: CertificateDer<'static>,
    public_key: Vec<u8>,
    subject_key_id: Option<Vec<u8>>,
}

/// Identifies an authority by its key: short enough to read aloud, long enough to be unique.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct KeyId(String);

impl KeyId {
    const BYTES: usize = 8;

    /// Of a public key (SubjectPublicKeyInfo).
    pub fn of(public_key: &[u8]) -> KeyId {
        KeyId(hex(&sha256(public_key)[..KeyId::BYTES]))
    }

    /// Whether `text` has the form of one.
    pub(crate) fn is_one(text: &str) -> bool {
        text.len() == 2 * KeyId::BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for KeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Certificate {
    pub fn read(der: &CertificateDer<'_>) -> Result<Certificate, String> {
        let (rest, parsed) =
            X509Certificate::from_der(der).map_err(|error| format!("a certificate in it is damaged: {error}"))?;
        if !rest.is_empty() {
            return Err("a certificate in it is damaged: bytes follow its end".to_owned());
        }
        let mut read = Certificate {
            subject: name(parsed.subject()),
            issuer: name(parsed.issuer()),
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            names: Vec::new(),
            is_ca: false,
            key_type: key_type(parsed.public_key()),
            fingerprint: fingerprint(der),
            may_sign_handshakes: true,
            may_sign_certificates: true,
            der: der.clone().into_owned(),
            public_key: parsed.public_key().raw.to_vec(),
            subject_key_id: None,
        };
        for extension in parsed.extensions() {
            read.extension(extension.parsed_extension());
        }
        Ok(read)
    }

    fn extension(&mut self, extension: &ParsedExtension<'_>) {
        match extension {
            ParsedExtension::BasicConstraints(constraints) => self.is_ca = constraints.ca,
            ParsedExtension::SubjectAlternativeName(names) => {
                self.names = names.general_names.iter().filter_map(host).collect();
            }
            ParsedExtension::KeyUsage(usage) => {
                self.may_sign_handshakes = usage.digital_signature();
                self.may_sign_certificates = usage.key_cert_sign();
            }
            ParsedExtension::SubjectKeyIdentifier(id) => self.subject_key_id = Some(id.0.to_vec()),
            _ => {}
        }
    }

    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// The public key, as SubjectPublicKeyInfo.
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    pub fn key_id(&self) -> KeyId {
        KeyId::of(&self.public_key)
    }

    pub(crate) fn subject_key_id(&self) -> Option<&[u8]> {
        self.subject_key_id.as_deref()
    }

    /// From the first to the last second it is valid.
    pub fn lifetime_s(&self) -> i64 {
        self.not_after.saturating_sub(self.not_before)
    }

    pub fn left_s(&self, now: UnixSeconds) -> i64 {
        self.not_after.saturating_sub(now)
    }

    pub fn is_valid_at(&self, now: UnixSeconds) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }
}

/// SHA-256 in the notation that `openssl` prints.
pub fn fingerprint(der: &[u8]) -> String {
    sha256(der).iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}

/// Names come from other parties: control characters are replaced.
fn name(name: &X509Name<'_>) -> String {
    printable(&name.to_string())
}

fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

fn host(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(printable(&name.to_lowercase())),
        GeneralName::IPAddress(bytes) => {
            let ip = <[u8; 4]>::try_from(*bytes)
                .map(IpAddr::from)
                .or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            ip.ok().map(|ip| ip.to_string())
        }
        _ => None,
    }
}

fn key_type(key: &SubjectPublicKeyInfo<'_>) -> String {
    let algorithm = key.algorithm.algorithm.to_id_string();
    if RSA_KEYS.contains(&algorithm.as_str()) {
        return match key.parsed() {
            Ok(key) => format!("RSA {}", key.key_size()),
            Err(_) => "RSA".to_owned(),
        };
    }
    if algorithm == EC_KEY {
        let curve = key.algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok()).map(|oid| oid.to_id_string());
        let known = CURVES.iter().find(|(oid, _)| Some(*oid) == curve.as_deref());
        return format!("ECDSA {}", known.map_or("on an unknown curve", |(_, name)| name));
    }
    if algorithm == ED25519_KEY {
        return "Ed25519".to_owned();
    }
    format!("unknown ({algorithm})")
}

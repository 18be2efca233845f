//! Who a node is: every Fleet call is signed with the node's key. Which call may do what is decided elsewhere.

use std::sync::Arc;

use aws_lc_rs::signature::{self, ParsedPublicKey, VerificationAlgorithm};
use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http::HeaderMap;
use quick_cache::sync::Cache;
use tokio_rustls::rustls::pki_types::SubjectPublicKeyInfoDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use trellis_core::Seconds;
use trellis_core::refusal::{Kind, Refusal};

/// A signature is good for this long, by the clocks of both sides.
const TIMESTAMP_WINDOW_S: std::ops::Range<f64> = -5.0..305.0;
/// Parsed keys kept. Parsing costs about as much as a tenth of a check.
const KEYS: usize = 20_000;
/// PEM of the largest curve is below 300 bytes.
const MAX_KEY_BYTES: usize = 2048;

/// Base64 as both transports send it: padding may be there or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Checks signatures.
pub struct Identities {
    keys: Cache<Bytes, Arc<ParsedPublicKey>>,
}

impl Default for Identities {
    fn default() -> Self {
        Self { keys: Cache::new(KEYS) }
    }
}

impl Identities {
    /// The key that signed a call at about `now`.
    pub fn signer(&self, headers: &HeaderMap, now: Seconds) -> Result<Bytes, Refusal> {
        let no = |text: &'static str| Refusal::new(Kind::Unauthenticated, text);
        let missing = || no("Missing authentication metadata");
        let binary = |grpc: &str, http: &str| {
            let value = headers.get(grpc).or_else(|| headers.get(http)).ok_or_else(missing)?;
            BASE64.decode(value).map(Bytes::from).map_err(|_| missing())
        };
        let key = binary("flwr-public-key-bin", "flwr-public-key")?;
        let signature = binary("flwr-signature-bin", "flwr-signature")?;
        let timestamp = headers.get("flwr-timestamp").ok_or_else(missing)?;
        let parsed = self.parse(&key).ok_or_else(|| no("Invalid signature"))?;
        parsed.verify_sig(timestamp.as_bytes(), &signature).map_err(|_| no("Invalid signature"))?;
        let signed_at = timestamp.to_str().ok().and_then(parse_time).ok_or_else(|| no("Invalid timestamp"))?;
        if !TIMESTAMP_WINDOW_S.contains(&(now - signed_at)) {
            return Err(no("Invalid timestamp"));
        }
        Ok(key)
    }

    fn parse(&self, pem: &Bytes) -> Option<Arc<ParsedPublicKey>> {
        if let Some(known) = self.keys.get(pem) {
            return Some(known);
        }
        let key = Arc::new(parse_key(pem)?);
        self.keys.insert(pem.clone(), Arc::clone(&key));
        Some(key)
    }
}

/// A key as it comes in a header.
pub fn decode_key(header: &str) -> Option<Vec<u8>> {
    BASE64.decode(header).ok()
}

/// A PEM public key on a NIST curve.
pub fn parse_key(pem: &[u8]) -> Option<ParsedPublicKey> {
    if pem.len() > MAX_KEY_BYTES {
        return None;
    }
    let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).ok()?;
    let curves: [&'static dyn VerificationAlgorithm; 3] =
        [&signature::ECDSA_P384_SHA256_ASN1, &signature::ECDSA_P256_SHA256_ASN1, &signature::ECDSA_P521_SHA256_ASN1];
    curves.into_iter().find_map(|curve| ParsedPublicKey::new(curve, der.as_ref()).ok())
}

fn parse_time(text: &str) -> Option<Seconds> {
    let time: jiff::Timestamp = text.parse().ok()?;
    Some(time.as_microsecond() as f64 / 1e6)
}

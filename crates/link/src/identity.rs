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

/// What SuperExecs sign with, from Flower 1.29: whoever knows it may take runs.
pub struct SuperexecSecret {
    key: aws_lc_rs::hmac::Key,
    /// Signatures seen, so that none is good twice.
    seen: Cache<String, ()>,
}

impl SuperexecSecret {
    pub fn new(secret: &[u8]) -> SuperexecSecret {
        use aws_lc_rs::hmac;
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"superexec-auth-v1");
        SuperexecSecret { key: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()), seen: Cache::new(KEYS) }
    }

    /// Checks that a SuperExec signed this call lately, and that it comes for the first time.
    pub fn check(&self, headers: &HeaderMap, services: &[&str], rpc: &str, body: &[u8]) -> Result<(), Refusal> {
        let no = |text: &'static str| Refusal::new(Kind::Unauthenticated, text);
        let header = |name: &str| {
            headers.get(name).and_then(|value| value.to_str().ok()).ok_or_else(|| no("the SuperExec did not sign"))
        };
        let (time, nonce) = (header("flwr-superexec-ts")?, header("flwr-superexec-nonce")?);
        let (hash, signature) = (header("flwr-superexec-body-sha256")?, header("flwr-superexec-signature")?);
        let signed_at: Seconds = time.parse().map_err(|_| no("Invalid timestamp"))?;
        if !TIMESTAMP_WINDOW_S.contains(&(crate::clock::system_now() - signed_at)) {
            return Err(no("Invalid timestamp"));
        }
        if hash != crate::api::hex(&crate::api::sha256(body)) {
            return Err(no("Invalid signature"));
        }
        let tag = unhex(signature).ok_or_else(|| no("Invalid signature"))?;
        let is_signed = |service: &&str| {
            let signed = format!("method=/flwr.proto.{service}/{rpc}\nts={time}\nnonce={nonce}\nbody_sha256={hash}");
            aws_lc_rs::hmac::verify(&self.key, signed.as_bytes(), &tag).is_ok()
        };
        if !services.iter().any(is_signed) {
            return Err(no("Invalid signature"));
        }
        if self.seen.get(nonce).is_some() {
            return Err(no("the call was sent before"));
        }
        self.seen.insert(nonce.to_owned(), ());
        Ok(())
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(secret: &[u8], method: &str, time: i64, nonce: &str, body: &[u8]) -> HeaderMap {
        use aws_lc_rs::hmac;
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"superexec-auth-v1");
        let hash = crate::api::hex(&crate::api::sha256(body));
        let text = format!("method={method}\nts={time}\nnonce={nonce}\nbody_sha256={hash}");
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()), text.as_bytes());
        let mut headers = HeaderMap::new();
        headers.insert("flwr-superexec-ts", time.into());
        headers.insert("flwr-superexec-nonce", nonce.parse().unwrap());
        headers.insert("flwr-superexec-body-sha256", hash.parse().unwrap());
        headers.insert("flwr-superexec-signature", crate::api::hex(tag.as_ref()).parse().unwrap());
        headers
    }

    #[test]
    fn a_superexec_signs_each_call_once_and_for_itself() {
        let secret = SuperexecSecret::new(b"s3cret");
        let now = crate::clock::system_now() as i64;
        let method = "/flwr.proto.Runtime/AcquireTask";
        let good = signed(b"s3cret", method, now, "n1", b"body");
        let check = |headers: &HeaderMap, rpc, body: &[u8]| secret.check(headers, &["Runtime"], rpc, body).is_ok();
        assert!(check(&good, "AcquireTask", b"body"));
        assert!(!check(&good, "AcquireTask", b"body"), "sent again");
        assert!(!check(&signed(b"s3cret", method, now, "n2", b"body"), "AcquireTask", b"other"), "another body");
        assert!(!check(&signed(b"s3cret", method, now, "n3", b"body"), "ClaimTask", b"body"), "another call");
        assert!(!check(&signed(b"guess", method, now, "n4", b"body"), "AcquireTask", b"body"), "another secret");
        assert!(!check(&signed(b"s3cret", method, now - 400, "n5", b"body"), "AcquireTask", b"body"), "too old");
        assert!(!check(&HeaderMap::new(), "AcquireTask", b"body"), "not signed");
    }
}

//! Authentication of nodes: every Fleet call is signed with the node's key. Authorisation is decided elsewhere.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::signature::{self, ParsedPublicKey, VerificationAlgorithm};
use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use quick_cache::sync::Cache;
use tokio_rustls::rustls::pki_types::SubjectPublicKeyInfoDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use trellis_core::Seconds;
use trellis_core::id::NodeId;
use trellis_core::refusal::{Kind, Refusal};

/// Accepted age of a signature. Clocks may differ by a few seconds.
const TIMESTAMP_WINDOW_S: std::ops::Range<f64> = -5.0..305.0;
/// Number of cached parsed keys. Parsing costs about a tenth of a verification.
const KEYS: usize = 20_000;
/// PEM of the largest curve is below 300 bytes.
const MAX_KEY_BYTES: usize = 2048;

/// Base64 with or without padding: the transports differ.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Verifies signatures, with a cache of keys.
pub struct Identities {
    keys: Cache<Bytes, Arc<Known>>,
}

/// A cached key.
struct Known {
    key: ParsedPublicKey,
    /// The last valid signature: nodes of Trellis reuse a signature for some seconds.
    last: Mutex<Option<Signed>>,
    /// The node that owns the key, and the version of the nodes at which it was looked up.
    member: Mutex<Option<(u64, NodeId)>>,
}

#[derive(Clone)]
struct Signed {
    timestamp: Bytes,
    signature: Bytes,
}

impl Known {
    fn has_signed(&self, timestamp: &[u8], signature: &Bytes) -> bool {
        let last = lock(&self.last).clone();
        // Constant time: timing must not reveal a valid signature.
        let same = |signed: &Signed| {
            signed.timestamp == timestamp && verify_slices_are_equal(&signed.signature, signature).is_ok()
        };
        if last.as_ref().is_some_and(same) {
            return true;
        }
        if self.key.verify_sig(timestamp, signature).is_err() {
            return false;
        }
        let signed = Signed { timestamp: Bytes::copy_from_slice(timestamp), signature: signature.clone() };
        *lock(&self.last) = Some(signed);
        true
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Identities {
    fn default() -> Self {
        Self { keys: Cache::new(KEYS) }
    }
}

fn no(text: &'static str) -> Refusal {
    Refusal::new(Kind::Unauthenticated, text)
}

/// The signature of a call, not verified yet.
pub struct Signature {
    pub key: Bytes,
    signature: Bytes,
    timestamp: HeaderValue,
}

impl Signature {
    pub fn of(headers: &HeaderMap) -> Result<Signature, Refusal> {
        let missing = || no("Missing authentication metadata");
        let binary = |grpc: &str, http: &str| {
            let value = headers.get(grpc).or_else(|| headers.get(http)).ok_or_else(missing)?;
            BASE64.decode(value).map(Bytes::from).map_err(|_| missing())
        };
        let key = binary("flwr-public-key-bin", "flwr-public-key")?;
        let signature = binary("flwr-signature-bin", "flwr-signature")?;
        let timestamp = headers.get("flwr-timestamp").ok_or_else(missing)?.clone();
        Ok(Signature { key, signature, timestamp })
    }
}

impl Identities {
    /// Returns the node that owns the key. Calls `look_up` unless the answer for this version of the nodes is cached;
    /// only keys that have signed a call before are cached.
    pub fn member(
        &self,
        key: &Bytes,
        version: u64,
        look_up: impl FnOnce() -> Result<Option<NodeId>, Refusal>,
    ) -> Result<Option<NodeId>, Refusal> {
        let Some(known) = self.keys.get(key) else { return look_up() };
        if let Some((found_at, node)) = *lock(&known.member)
            && found_at == version
        {
            return Ok(Some(node));
        }
        let node = look_up()?;
        *lock(&known.member) = node.map(|node| (version, node));
        Ok(node)
    }

    /// Checks that the key signed the call at about `now`.
    pub fn verify(&self, shown: &Signature, now: Seconds) -> Result<(), Refusal> {
        let known = self.parse(&shown.key).ok_or_else(|| no("Invalid signature"))?;
        if !known.has_signed(shown.timestamp.as_bytes(), &shown.signature) {
            return Err(no("Invalid signature"));
        }
        let signed_at = shown.timestamp.to_str().ok().and_then(parse_time).ok_or_else(|| no("Invalid timestamp"))?;
        if !TIMESTAMP_WINDOW_S.contains(&(now - signed_at)) {
            return Err(no("Invalid timestamp"));
        }
        Ok(())
    }

    fn parse(&self, pem: &Bytes) -> Option<Arc<Known>> {
        if let Some(known) = self.keys.get(pem) {
            return Some(known);
        }
        let known = Arc::new(Known { key: parse_key(pem)?, last: Mutex::default(), member: Mutex::default() });
        self.keys.insert(pem.clone(), Arc::clone(&known));
        Some(known)
    }
}

/// Decodes a key from a header.
pub fn decode_key(header: &str) -> Option<Vec<u8>> {
    BASE64.decode(header).ok()
}

/// Parses a PEM public key on a NIST curve.
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

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

    use super::*;

    const NOON: &str = "2026-11-16T12:00:00+00:00";

    fn headers(pem: &str, timestamp: &str, signature: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("flwr-public-key", BASE64.encode(pem).parse().unwrap());
        headers.insert("flwr-timestamp", timestamp.parse().unwrap());
        headers.insert("flwr-signature", BASE64.encode(signature).parse().unwrap());
        headers
    }

    #[test]
    fn a_valid_signature_is_valid_for_one_timestamp_and_key() {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        let der: PublicKeyX509Der = pair.public_key().as_der().unwrap();
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64.encode(der.as_ref()));
        let good = pair.sign(&SystemRandom::new(), NOON.as_bytes()).unwrap();
        let mut bad = good.as_ref().to_vec();
        *bad.last_mut().unwrap() ^= 1;
        let noon = parse_time(NOON).unwrap();
        let identities = Identities::default();
        let signer = |timestamp: &str, signature: &[u8], now: Seconds| {
            let shown = Signature::of(&headers(&pem, timestamp, signature)).unwrap();
            identities.verify(&shown, now).map_err(|refusal| refusal.to_string())
        };
        let invalid = Err("Invalid signature".to_owned());
        for _ in 0..2 {
            assert_eq!(signer(NOON, good.as_ref(), noon + 1.0), Ok(()));
            assert_eq!(signer(NOON, &bad, noon + 1.0), invalid);
            assert_eq!(signer("2026-11-16T12:00:01+00:00", good.as_ref(), noon + 1.0), invalid);
            assert_eq!(signer(NOON, good.as_ref(), noon + 306.0), Err("Invalid timestamp".to_owned()));
        }
    }

    #[test]
    fn a_cached_member_is_looked_up_again_when_nodes_change() {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        let der: PublicKeyX509Der = pair.public_key().as_der().unwrap();
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64.encode(der.as_ref()));
        let key = Bytes::from(pem);
        let identities = Identities::default();
        let member = |version, stored: Option<u64>| {
            let mut looked_up = false;
            let look_up = || {
                looked_up = true;
                Ok(stored.map(NodeId))
            };
            let node = identities.member(&key, version, look_up).unwrap();
            (node.map(|node| node.0), looked_up)
        };
        assert_eq!(member(1, Some(7)), (Some(7), true), "the key has signed nothing yet");
        identities.parse(&key).unwrap();
        assert_eq!(member(1, Some(7)), (Some(7), true));
        assert_eq!(member(1, None), (Some(7), false), "cached for this version");
        assert_eq!(member(2, None), (None, true), "the node was removed");
        assert_eq!(member(2, None), (None, true), "unknown keys are not cached");
    }
}

//! A simulated SuperNode's key, and the signed headers that go with every Fleet call.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{Digest, SHA256, SHA384, digest};
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::signature::{ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, KeyPair, Signature};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use tonic::metadata::{AsciiMetadataValue, BinaryMetadataValue, MetadataMap};

/// A server takes a signature for about 305 s; signing once and using it for a while keeps the cost of signing,
/// which real nodes carry on their own machines, away from the server under test.
const SIGNATURE_LIFE: Duration = Duration::from_secs(120);

pub struct Identity {
    key: EcdsaKeyPair,
    public_key_pem: Bytes,
    signed: Mutex<Signed>,
}

struct Signed {
    at: Instant,
    headers: MetadataMap,
}

impl Identity {
    pub fn generate() -> Result<Self, Unspecified> {
        let key = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_ASN1_SIGNING)?;
        let der: PublicKeyX509Der = key.public_key().as_der()?;
        let public_key_pem = Bytes::from(pem(der.as_ref()));
        let signed = Mutex::new(sign_headers(&key, &public_key_pem)?);
        Ok(Self { key, public_key_pem, signed })
    }

    pub fn public_key_pem(&self) -> Bytes {
        self.public_key_pem.clone()
    }

    /// Headers with a signature that is fresh enough.
    pub fn headers(&self) -> MetadataMap {
        let mut signed = self.signed.lock().expect("no panic while signing");
        if signed.at.elapsed() > SIGNATURE_LIFE
            && let Ok(fresh) = sign_headers(&self.key, &self.public_key_pem)
        {
            *signed = fresh;
        }
        signed.headers.clone()
    }
}

fn sign_headers(key: &EcdsaKeyPair, public_key_pem: &[u8]) -> Result<Signed, Unspecified> {
    let timestamp = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string();
    let signature = sign(key, timestamp.as_bytes())?;
    let mut headers = MetadataMap::new();
    headers.insert_bin("flwr-public-key-bin", BinaryMetadataValue::from_bytes(public_key_pem));
    headers.insert_bin("flwr-signature-bin", BinaryMetadataValue::from_bytes(signature.as_ref()));
    headers.insert("flwr-timestamp", AsciiMetadataValue::try_from(timestamp).map_err(|_| Unspecified)?);
    Ok(Signed { at: Instant::now(), headers })
}

/// ECDSA with P-384 and SHA-256, which the library offers for checking only. ECDSA signs the digest as a number, so
/// a SHA-256 digest with zeros in front, given as one of 384 bits, yields exactly the signature wanted.
fn sign(key: &EcdsaKeyPair, message: &[u8]) -> Result<Signature, Unspecified> {
    let mut widened = [0u8; 48];
    widened[16..].copy_from_slice(digest(&SHA256, message).as_ref());
    key.sign_digest(&Digest::import_less_safe(&widened, &SHA384)?)
}

fn pem(der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN PUBLIC KEY-----\n");
    for line in base64.as_bytes().chunks(64) {
        pem.push_str(str::from_utf8(line).expect("base64 is ASCII"));
        pem.push('\n');
    }
    pem.push_str("-----END PUBLIC KEY-----\n");
    pem
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{ECDSA_P384_SHA256_ASN1, UnparsedPublicKey};

    #[test]
    fn signatures_verify_as_p384_with_sha256() {
        let identity = Identity::generate().unwrap();
        let public_key = UnparsedPublicKey::new(&ECDSA_P384_SHA256_ASN1, identity.key.public_key().as_ref());
        let headers = identity.headers();
        let timestamp = headers.get("flwr-timestamp").unwrap().as_bytes().to_vec();
        let signature = headers.get_bin("flwr-signature-bin").unwrap().to_bytes().unwrap();
        public_key.verify(&timestamp, &signature).unwrap();
        public_key.verify(b"another text", &signature).unwrap_err();
    }

    #[test]
    fn the_public_key_is_215_bytes_of_pem() {
        let pem = Identity::generate().unwrap().public_key_pem();
        assert_eq!(pem.len(), 215);
        assert!(pem.starts_with(b"-----BEGIN PUBLIC KEY-----\n") && pem.ends_with(b"-----END PUBLIC KEY-----\n"));
    }
}

//! The key of a simulated SuperNode, and the signed headers of its Fleet calls.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{Digest, SHA256, SHA384, digest};
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::signature::{ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, KeyPair, Signature};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use tonic::metadata::{BinaryMetadataValue, MetadataMap};

use crate::client::Transport;

/// Servers accept a signature for about 305 s. Reusing one keeps the CPU cost of signing, which real nodes carry on
/// their own machines, out of the measurement.
const SIGNATURE_LIFE: Duration = Duration::from_secs(120);

pub struct Identity {
    transport: Transport,
    key: EcdsaKeyPair,
    public_key_pem: Bytes,
    signed: Mutex<Signed>,
}

struct Signed {
    at: Instant,
    headers: HeaderMap,
}

impl Identity {
    pub fn generate(transport: Transport) -> Result<Self, Unspecified> {
        let key = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_ASN1_SIGNING)?;
        let der: PublicKeyX509Der = key.public_key().as_der()?;
        let public_key_pem = Bytes::from(pem(der.as_ref()));
        let signed = Mutex::new(sign_headers(transport, &key, &public_key_pem)?);
        Ok(Self { transport, key, public_key_pem, signed })
    }

    pub fn public_key_pem(&self) -> Bytes {
        self.public_key_pem.clone()
    }

    /// Returns headers with a valid signature.
    pub fn headers(&self) -> HeaderMap {
        let mut signed = self.signed.lock().expect("no panic while signing");
        if signed.at.elapsed() > SIGNATURE_LIFE
            && let Ok(fresh) = sign_headers(self.transport, &self.key, &self.public_key_pem)
        {
            *signed = fresh;
        }
        signed.headers.clone()
    }
}

fn sign_headers(transport: Transport, key: &EcdsaKeyPair, public_key_pem: &[u8]) -> Result<Signed, Unspecified> {
    let timestamp = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string();
    let signature = sign(key, timestamp.as_bytes())?;
    let mut headers = transport.announcement("SuperNode");
    headers.insert("flwr-timestamp", HeaderValue::try_from(timestamp).map_err(|_| Unspecified)?);
    match transport {
        Transport::Grpc => {
            let mut metadata = MetadataMap::from_headers(headers);
            metadata.insert_bin("flwr-public-key-bin", BinaryMetadataValue::from_bytes(public_key_pem));
            metadata.insert_bin("flwr-signature-bin", BinaryMetadataValue::from_bytes(signature.as_ref()));
            headers = metadata.into_headers();
        }
        Transport::Http => {
            let value = |bytes: &[u8]| HeaderValue::try_from(STANDARD.encode(bytes)).map_err(|_| Unspecified);
            headers.insert("flwr-public-key", value(public_key_pem)?);
            headers.insert("flwr-signature", value(signature.as_ref())?);
        }
    }
    Ok(Signed { at: Instant::now(), headers })
}

/// Signs with ECDSA on P-384 and SHA-256, which the library supports only for verification. ECDSA signs the digest as a
/// number, so a SHA-256 digest padded with leading zeros to 384 bits yields the same signature.
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

    fn check(identity: &Identity, timestamp: &HeaderValue, signature: &[u8]) {
        let public_key = UnparsedPublicKey::new(&ECDSA_P384_SHA256_ASN1, identity.key.public_key().as_ref());
        public_key.verify(timestamp.as_bytes(), signature).unwrap();
        public_key.verify(b"another text", signature).unwrap_err();
    }

    #[test]
    fn signatures_verify_as_p384_with_sha256_over_grpc() {
        let identity = Identity::generate(Transport::Grpc).unwrap();
        let headers = identity.headers();
        let metadata = MetadataMap::from_headers(headers.clone());
        assert_eq!(metadata.get_bin("flwr-public-key-bin").unwrap().to_bytes().unwrap(), identity.public_key_pem());
        let signature = metadata.get_bin("flwr-signature-bin").unwrap().to_bytes().unwrap();
        check(&identity, &headers["flwr-timestamp"], &signature);
    }

    #[test]
    fn signatures_verify_as_p384_with_sha256_over_http() {
        let identity = Identity::generate(Transport::Http).unwrap();
        let headers = identity.headers();
        assert_eq!(STANDARD.decode(&headers["flwr-public-key"]).unwrap(), identity.public_key_pem());
        assert_eq!(headers["flwr-component-name"], "SuperNode");
        let signature = STANDARD.decode(&headers["flwr-signature"]).unwrap();
        check(&identity, &headers["flwr-timestamp"], &signature);
    }

    #[test]
    fn the_public_key_is_215_bytes_of_pem() {
        let pem = Identity::generate(Transport::Grpc).unwrap().public_key_pem();
        assert_eq!(pem.len(), 215);
        assert!(pem.starts_with(b"-----BEGIN PUBLIC KEY-----\n") && pem.ends_with(b"-----END PUBLIC KEY-----\n"));
    }
}

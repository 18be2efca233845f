//! Checks signatures of SuperExecs. The caller decides what a SuperExec may do.

use http::HeaderMap;
use quick_cache::sync::Cache;
use trellis_clock::now_s;
use trellis_core::Seconds;
use trellis_core::refusal::{Kind, Refusal};
use trellis_digest::{sha256_hex, unhex};

/// Accepted age of a signature. Clocks may differ by a few seconds.
const TIMESTAMP_WINDOW_S: std::ops::Range<f64> = -5.0..305.0;
/// Number of remembered nonces.
const NONCES: usize = 20_000;

/// The secret with which SuperExecs sign, from Flower 1.29. A client with this secret may take runs.
pub struct SuperexecSecret {
    key: aws_lc_rs::hmac::Key,
    /// Nonces of accepted calls: each signature is valid once.
    seen: Cache<String, ()>,
}

impl SuperexecSecret {
    pub fn new(secret: &[u8]) -> SuperexecSecret {
        use aws_lc_rs::hmac;
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"superexec-auth-v1");
        SuperexecSecret { key: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()), seen: Cache::new(NONCES) }
    }

    /// Checks that a SuperExec signed this call recently and that the call is not a replay.
    pub fn check(&self, headers: &HeaderMap, services: &[&str], rpc: &str, body: &[u8]) -> Result<(), Refusal> {
        self.check_headers(headers, services, rpc)?.check(body)
    }

    /// Checks the signed headers before the body is read. The caller checks the body against the returned
    /// [`SignedBody`].
    pub fn check_headers(&self, headers: &HeaderMap, services: &[&str], rpc: &str) -> Result<SignedBody, Refusal> {
        let header = |name: &str| {
            headers.get(name).and_then(|value| value.to_str().ok()).ok_or_else(|| no("the call has no signature"))
        };
        let (time, nonce) = (header("flwr-superexec-ts")?, header("flwr-superexec-nonce")?);
        let (hash, signature) = (header("flwr-superexec-body-sha256")?, header("flwr-superexec-signature")?);
        let signed_at: Seconds = time.parse().map_err(|_| no("Invalid timestamp"))?;
        if !TIMESTAMP_WINDOW_S.contains(&(now_s() - signed_at)) {
            return Err(no("Invalid timestamp"));
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
            return Err(no("the call is a replay"));
        }
        self.seen.insert(nonce.to_owned(), ());
        Ok(SignedBody { sha256: hash.to_owned() })
    }
}

/// The body that the signed headers describe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedBody {
    /// Hexadecimal.
    sha256: String,
}

impl SignedBody {
    pub fn check(&self, body: &[u8]) -> Result<(), Refusal> {
        if self.sha256 == sha256_hex(body) { Ok(()) } else { Err(no("Invalid signature")) }
    }
}

fn no(text: &'static str) -> Refusal {
    Refusal::new(Kind::Unauthenticated, text)
}

#[cfg(test)]
mod tests {
    use trellis_digest::hex;

    use super::*;

    fn signed(secret: &[u8], method: &str, time: i64, nonce: &str, body: &[u8]) -> HeaderMap {
        use aws_lc_rs::hmac;
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"superexec-auth-v1");
        let hash = sha256_hex(body);
        let text = format!("method={method}\nts={time}\nnonce={nonce}\nbody_sha256={hash}");
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()), text.as_bytes());
        let mut headers = HeaderMap::new();
        headers.insert("flwr-superexec-ts", time.into());
        headers.insert("flwr-superexec-nonce", nonce.parse().unwrap());
        headers.insert("flwr-superexec-body-sha256", hash.parse().unwrap());
        headers.insert("flwr-superexec-signature", hex(tag.as_ref()).parse().unwrap());
        headers
    }

    #[test]
    fn a_signature_is_valid_for_one_call() {
        let secret = SuperexecSecret::new(b"s3cret");
        let now = now_s() as i64;
        let method = "/flwr.proto.Runtime/AcquireTask";
        let good = signed(b"s3cret", method, now, "n1", b"body");
        let check = |headers: &HeaderMap, rpc, body: &[u8]| secret.check(headers, &["Runtime"], rpc, body).is_ok();
        assert!(check(&good, "AcquireTask", b"body"));
        assert!(!check(&good, "AcquireTask", b"body"), "replay");
        assert!(!check(&signed(b"s3cret", method, now, "n2", b"body"), "AcquireTask", b"other"), "another body");
        assert!(!check(&signed(b"s3cret", method, now, "n3", b"body"), "ClaimTask", b"body"), "another call");
        assert!(!check(&signed(b"guess", method, now, "n4", b"body"), "AcquireTask", b"body"), "another secret");
        assert!(!check(&signed(b"s3cret", method, now - 400, "n5", b"body"), "AcquireTask", b"body"), "too old");
        assert!(!check(&HeaderMap::new(), "AcquireTask", b"body"), "not signed");
    }
}

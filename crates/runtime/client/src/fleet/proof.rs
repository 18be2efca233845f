//! The headers of every call of a node: its signature, and its release of Flower.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

use super::Transport;
use crate::NodeKey;

/// A signature is good for 300 s and some. The rest is left for the way, and for clocks that differ.
const SIGNED_FOR: Duration = Duration::from_secs(10);

/// The newest release whose Fleet API is used. SuperLinks of any release accept it; ours shows it in its list of nodes.
const FLOWER_VERSION: &str = trellis_flower::Release::NEWEST_TEXT;
const COMPONENT: &str = "SuperNode";

/// Caches signatures, which are the main cost of a small call.
pub(super) struct Proof {
    key: Arc<NodeKey>,
    last: Mutex<Option<Signed>>,
}

struct Signed {
    at: SystemTime,
    grpc: HeaderMap,
    http: HeaderMap,
}

impl Proof {
    pub fn new(key: Arc<NodeKey>) -> Proof {
        Proof { key, last: Mutex::default() }
    }

    pub fn key(&self) -> &NodeKey {
        &self.key
    }

    pub fn public_key(&self) -> String {
        self.key.public_pem()
    }

    /// The headers of a call at this time.
    pub fn headers(&self, transport: Transport) -> HeaderMap {
        let now = SystemTime::now();
        let mut last = self.last.lock().expect("no panic while signing");
        let signed = match last.take() {
            Some(signed) if is_fresh(signed.at, now) => signed,
            _ => Signed::by(&self.key, now),
        };
        let headers = match transport {
            Transport::Grpc => signed.grpc.clone(),
            Transport::Http => signed.http.clone(),
        };
        *last = Some(signed);
        headers
    }
}

/// By the clock of the system, since the SuperLink compares it with its own. After a sleep, or when the clock was set, it is
/// signed again.
fn is_fresh(signed_at: SystemTime, now: SystemTime) -> bool {
    now.duration_since(signed_at).is_ok_and(|age| age < SIGNED_FOR)
}

impl Signed {
    fn by(key: &NodeKey, now: SystemTime) -> Signed {
        let (mut grpc, mut http) = (announcement(), announcement());
        for (name, value) in key.sign_now() {
            let plain = HeaderValue::try_from(&value).expect("base64 and times are printable");
            http.insert(HeaderName::from_static(name), plain.clone());
            match name {
                "flwr-timestamp" => grpc.insert(HeaderName::from_static(name), plain),
                // gRPC marks binary metadata by its name, without padding.
                _ => {
                    let name = HeaderName::try_from(format!("{name}-bin")).expect("a name stays one");
                    grpc.insert(name, HeaderValue::try_from(value.trim_end_matches('=')).expect("base64 is printable"))
                }
            };
        }
        Signed { at: now, grpc, http }
    }
}

fn announcement() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("flwr-package-name", HeaderValue::from_static("flwr"));
    headers.insert("flwr-package-version", HeaderValue::from_static(FLOWER_VERSION));
    headers.insert("flwr-component-name", HeaderValue::from_static(COMPONENT));
    headers.insert("user-agent", HeaderValue::from_static(concat!("trellis/", env!("CARGO_PKG_VERSION"))));
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof() -> Proof {
        let directory = tempfile::tempdir().unwrap();
        Proof::new(Arc::new(NodeKey::generate(&directory.path().join("key"), "").unwrap()))
    }

    #[test]
    fn both_transports_show_the_same() {
        let proof = proof();
        let (grpc, http) = (proof.headers(Transport::Grpc), proof.headers(Transport::Http));
        assert_eq!(grpc["flwr-timestamp"], http["flwr-timestamp"], "signed once");
        for name in ["flwr-public-key", "flwr-signature"] {
            let padded = http[name].to_str().unwrap();
            assert_eq!(grpc[format!("{name}-bin")].to_str().unwrap(), padded.trim_end_matches('='));
            assert!(!grpc.contains_key(name));
        }
        assert_eq!(http["flwr-package-version"], FLOWER_VERSION);
    }

    #[test]
    fn a_signature_is_used_again_for_a_while_by_the_clock_on_the_wall() {
        let (then, s) = (SystemTime::now(), Duration::from_secs);
        for (now, fresh) in
            [(then, true), (then + s(9), true), (then + s(10), false), (then + s(100_000), false), (then - s(1), false)]
        {
            assert_eq!(is_fresh(then, now), fresh, "{now:?}");
        }
        let proof = proof();
        let first = proof.headers(Transport::Http);
        assert_eq!(first, proof.headers(Transport::Http));
        proof.last.lock().unwrap().as_mut().unwrap().at -= SIGNED_FOR;
        assert_ne!(first["flwr-signature"], proof.headers(Transport::Http)["flwr-signature"]);
    }
}

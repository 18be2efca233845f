//! Any bytes as the headers of a request, which are read before anything is known of its sender.
//!
//! Nothing may panic, no signature may be found good that no key made, and no name or page of elsewhere may pass.
#![no_main]

use std::sync::OnceLock;

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version};
use libfuzzer_sys::fuzz_target;
use trellis_front::{Hosts, SuperexecSecret, Transport, grpc};
use trellis_link::decoders::{Client, Identities, Signature, decode_key};

/// Names that chance would not spell; a byte in place of a name chooses one.
const NAMES: [&str; 15] = [
    "content-type",
    "host",
    "origin",
    "authorization",
    "flwr-package-version",
    "flwr-public-key",
    "flwr-signature",
    "flwr-timestamp",
    "flwr-public-key-bin",
    "flwr-signature-bin",
    "flwr-task-token",
    "flwr-superexec-ts",
    "flwr-superexec-nonce",
    "flwr-superexec-body-sha256",
    "flwr-superexec-signature",
];

fuzz_target!(|data: &[u8]| {
    let Some((choice, lines)) = data.split_first() else { return };
    let headers = headers(lines);
    check_identity(&headers);
    check_hosts(&headers, if choice & 1 == 0 { Version::HTTP_11 } else { Version::HTTP_2 });
    let client = Client::of(Transport::of(&headers), &headers);
    let _ = client.check();
    assert!(client.describe(&headers).chars().count() < 64);
});

fn headers(lines: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let Some((name, value)) = line.split_first() else { continue };
        let name = NAMES[usize::from(*name) % NAMES.len()];
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(HeaderName::from_static(name), value);
        }
    }
    headers
}

fn check_identity(headers: &HeaderMap) {
    static IDENTITIES: OnceLock<Identities> = OnceLock::new();
    static SECRET: OnceLock<SuperexecSecret> = OnceLock::new();
    if let Ok(shown) = Signature::of(headers) {
        let identities = IDENTITIES.get_or_init(Identities::default);
        assert!(identities.verify(&shown, 0.0).is_err(), "nobody made this signature");
    }
    if let Some(key) = headers.get("flwr-public-key").and_then(|key| key.to_str().ok()) {
        let _ = decode_key(key);
    }
    let secret = SECRET.get_or_init(|| SuperexecSecret::new(b"never told"));
    assert!(secret.check_headers(headers, &["Runtime"], "ClaimTask").is_err(), "nobody knows the secret");
}

fn check_hosts(headers: &HeaderMap, version: Version) {
    let hosts = Hosts::default();
    let passed = hosts.check_head(version, &Uri::from_static("/"), headers).is_ok();
    if !passed || (version == Version::HTTP_2 && grpc::is_grpc(headers)) {
        return;
    }
    let host = headers[HOST].to_str().expect("what passed is text");
    let name = host.split(':').next().unwrap_or_default().trim_end_matches('.');
    let is_public = name.ends_with(".example") || name.ends_with(".org") || name.ends_with(".com");
    assert!(!is_public, "{host}");
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = origin.to_str().expect("what passed is text").to_ascii_lowercase();
        assert!(origin.starts_with("http://") || origin.starts_with("https://"), "{origin}");
    }
}

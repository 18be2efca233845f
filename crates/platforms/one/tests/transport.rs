//! Transport to the front-end: certificates, timeouts, sizes.

mod server;

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use server::Server;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use trellis_one::{Endpoint, Error, HttpLimits, Oned, Session, TransportError, Trust, explain};

fn version() -> String {
    std::fs::read_to_string(format!("{}/tests/recorded/xmlrpc/system.version.response.xml", env!("CARGO_MANIFEST_DIR")))
        .unwrap()
}

/// Configuration of a server, and the PEM of its authority.
fn certificate(name: &str) -> (ServerConfig, String) {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let encoded = STANDARD.encode(made.cert.der());
    (config, format!("-----BEGIN CERTIFICATE-----\n{encoded}\n-----END CERTIFICATE-----\n"))
}

fn oned(server: &Server, trust: Trust, limits: HttpLimits) -> Oned {
    Oned::with(Endpoint::parse(&server.url()).unwrap(), Session::new("a", "hush"), trust, limits)
}

fn transport(error: Error) -> TransportError {
    match error {
        Error::Unreachable(error) => error,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_front_end_is_believed_by_its_certificate() {
    let (config, pem) = certificate("127.0.0.1");
    let server = Server::start_tls(config).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.pem");
    std::fs::write(&path, pem).unwrap();
    let trusting = oned(&server, Trust::system_and(&path).unwrap(), HttpLimits::for_front_end());
    for _ in 0..2 {
        server.respond(200, version());
        assert_eq!(trusting.version().await.unwrap(), "7.5.80");
    }
    assert_eq!(server.connections(), 1, "the connection was not kept");

    let stranger = oned(&server, Trust::system(), HttpLimits::for_front_end());
    let error = stranger.version().await.unwrap_err();
    assert!(explain(&error).contains("UnknownIssuer"), "{}", explain(&error));
    let error = transport(error);
    assert!(matches!(error, TransportError::Tls { .. }) && !error.may_have_happened(), "{error}");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_not_believed() {
    let (config, pem) = certificate("elsewhere.example");
    let server = Server::start_tls(config).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.pem");
    std::fs::write(&path, pem).unwrap();
    let one = oned(&server, Trust::system_and(&path).unwrap(), HttpLimits::for_front_end());
    assert!(matches!(transport(one.version().await.unwrap_err()), TransportError::Tls { .. }));
}

#[tokio::test]
async fn patience_ends() {
    let server = Server::start().await;
    let limits = HttpLimits { answer: Duration::from_millis(50), ..HttpLimits::for_front_end() };
    let one = oned(&server, Trust::system(), limits);
    server.stay_silent();
    let error = transport(one.version().await.unwrap_err());
    assert!(matches!(error, TransportError::TooSlow { .. }) && error.may_have_happened(), "{error}");
    // The next call works after a timeout.
    server.respond(200, version());
    assert_eq!(one.version().await.unwrap(), "7.5.80");
}

#[tokio::test]
async fn an_answer_without_end_is_not_taken() {
    let server = Server::start().await;
    let limits = HttpLimits { max_response_bytes: 1000, ..HttpLimits::for_front_end() };
    let one = oned(&server, Trust::system(), limits);
    server.respond(200, "x".repeat(1001));
    let error = transport(one.version().await.unwrap_err());
    assert_eq!(error.to_string(), format!("the response of {} has more than 1000 bytes", server.url()));
    assert!(error.source().is_none());
}

#[tokio::test]
async fn nobody_there_is_told_as_such() {
    let server = Server::start().await;
    let one = oned(&server, Trust::system(), HttpLimits::for_front_end());
    drop(server);
    let error = transport(one.version().await.unwrap_err());
    assert!(matches!(error, TransportError::Connect { .. }) && !error.may_have_happened(), "{error}");
    assert!(!format!("{one:?}").contains("hush"));
}

//! Trust of nodes, and the errors about other endpoints.

use std::sync::Arc;

use tempfile::tempdir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use trellis_client::fleet::{Fleet, FleetError, FleetOptions, Transport};
use trellis_client::{Security, Target, Trust};

use crate::authority::Authority;
use crate::superlink::{Act, Speaks, SuperLink};
use crate::{alive, beat, fleet, fleet_at, only};

const NOW: std::ops::Range<i32> = 2020..4000;

fn acceptor(authority: &Authority, protocols: &[&str]) -> TlsAcceptor {
    let acceptor = authority.server(&["127.0.0.1"], NOW);
    let mut config = ServerConfig::clone(acceptor.config());
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

fn trusting(authority: &Authority, port: u16, options: FleetOptions) -> Fleet {
    let directory = tempdir().expect("a directory");
    let trust = Trust::bundle(&authority.bundle(&directory)).expect("a bundle");
    fleet_at(Target { host: "127.0.0.1".to_owned(), port, security: Security::Tls(trust), token: None }, options)
}

/// Sends these bytes after the first bytes of a client, and closes the connection.
async fn blurting(bytes: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
            // Reads the rest, because the system would answer it with a reset.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    port
}

/// The text of an error that only an operator can resolve.
async fn misdirected(fleet: &Fleet) -> String {
    match beat(fleet).await.expect_err("it cannot work") {
        FleetError::Misdirected { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn with_tls_the_transport_is_agreed_upon() {
    let authority = Authority::new();
    for (speaks, protocols, transport) in [
        (Speaks::Grpc, &["h2"][..], Transport::Grpc),
        (Speaks::Grpc, &["h2", "http/1.1"], Transport::Grpc),
        (Speaks::Http, &["http/1.1"], Transport::Http),
        (Speaks::Http, &[], Transport::Http),
    ] {
        let superlink = SuperLink::start_with_tls(speaks, acceptor(&authority, protocols)).await;
        superlink.on("send-node-heartbeat", [alive()]);
        let fleet = trusting(&authority, superlink.port, FleetOptions::default());
        assert!(beat(&fleet).await.unwrap());
        assert!(beat(&fleet).await.unwrap());
        assert_eq!(fleet.transport(), Some(transport), "{protocols:?}");
    }
}

#[tokio::test]
async fn tls_on_one_side_only_is_told() {
    let authority = Authority::new();
    for protocols in [&["h2"][..], &["http/1.1"]] {
        let superlink = SuperLink::start_with_tls(Speaks::Grpc, acceptor(&authority, protocols)).await;
        for options in [FleetOptions::default(), only(Transport::Grpc), only(Transport::Http)] {
            let told = misdirected(&fleet(superlink.port, options)).await;
            assert_eq!(told, "it expects TLS, but is called without");
        }
    }
    for speaks in [Speaks::Grpc, Speaks::Http] {
        let superlink = SuperLink::start(speaks).await;
        let told = misdirected(&trusting(&authority, superlink.port, FleetOptions::default())).await;
        assert_eq!(told, "it does not answer with TLS", "{speaks:?}");
    }
}

#[tokio::test]
async fn a_stranger_is_not_talked_to() {
    let (authority, other) = (Authority::new(), Authority::new());
    let superlink = SuperLink::start_with_tls(Speaks::Grpc, acceptor(&authority, &["h2"])).await;
    let told = misdirected(&trusting(&other, superlink.port, FleetOptions::default())).await;
    assert!(told.starts_with("it is not trusted: no authority of "), "{told}");
    assert!(superlink.asked().is_empty());
}

#[tokio::test]
async fn what_is_no_superlink_is_told() {
    let told = misdirected(&fleet(blurting(b"SSH-2.0-OpenSSH_9.6\r\n").await, FleetOptions::default())).await;
    assert_eq!(told, "it speaks neither gRPC nor HTTP");
    let told = misdirected(&fleet(blurting(b"HTTP/1.1 400 Bad Request\r\n\r\n").await, only(Transport::Grpc))).await;
    assert_eq!(told, "it speaks HTTP/1.1 and not gRPC");
    let told = misdirected(&fleet(blurting(b"SSH-2.0-OpenSSH_9.6\r\n").await, only(Transport::Http))).await;
    assert!(told.starts_with("its answer is not HTTP: "), "{told}");

    let superlink = SuperLink::start(Speaks::Http).await;
    superlink.on("send-node-heartbeat", [Act::Page(404, r#"{"detail": "Not Found"}"#)]);
    let told = misdirected(&fleet(superlink.port, FleetOptions::default())).await;
    assert_eq!(told, "it does not serve the Fleet API at this port (Not Found)");
}

#[tokio::test]
async fn who_hangs_up_may_be_about_to_start() {
    let fleet = fleet(blurting(b"").await, FleetOptions::default());
    let error = beat(&fleet).await.unwrap_err();
    assert!(
        matches!(&error, FleetError::Unreachable { why, .. } if why.ends_with("it closed the connection at once")),
        "{error:?}"
    );
}

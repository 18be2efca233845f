//! The port itself: binding, the first token, plain text, stopping.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use trellis_clock::now_ms;

use trellis_api::{Client, Role};
use trellis_client::{Security, Target, Trust};
use trellis_pki::authority::{LEAF_VALIDITY, Order};
use trellis_pki::{Authority, Endpoint, Files, span::Span};
use trellis_wire::token::Token;

use super::desk::platform;
use crate::http::{Bound, Limits, ServeError, ServeSettings};

const STOP_LIMIT: Duration = Duration::from_secs(5);

fn settings(home: &std::path::Path, listen: &str) -> ServeSettings {
    ServeSettings {
        listen: listen.parse().expect("an address"),
        tls: None,
        allow_plaintext_network: false,
        home: home.to_owned(),
        hosts: Vec::new(),
        limits: Limits::default(),
        sign_on: None,
    }
}

async fn write(stream: &mut TcpStream, path: &str, token: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
}

async fn read_until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains(wanted) {
        let count = stream.read_buf(&mut heard).await.expect("read");
        assert!(count > 0, "{}", String::from_utf8_lossy(&heard));
    }
    String::from_utf8(heard).expect("text")
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("connected")
}

#[tokio::test]
async fn a_port_is_served_until_the_stop_and_streams_do_not_hold_it_up() {
    let home = tempfile::tempdir().unwrap();
    let platform = platform(home.path()).await;
    let bound = Bound::bind(settings(home.path(), "127.0.0.1:0")).await.unwrap();
    let address = bound.address();
    assert_eq!(bound.url(), format!("http://{address}"));
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(bound.serve(platform, async {
        let _ = stopped.await;
    }));

    let mut idle = connect(address).await;
    write(&mut idle, "/health", "").await;
    read_until(&mut idle, "serving").await;
    let path = home.path().join("admin.token");
    let token = std::fs::read_to_string(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = connect(address).await;
    write(&mut stream, "/api/v1/events", token.trim()).await;
    read_until(&mut stream, "resync").await;

    stop.send(()).unwrap();
    tokio::time::timeout(STOP_LIMIT, serving).await.expect("it stops").unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens");
}

#[tokio::test]
async fn the_first_token_is_made_once() {
    let home = tempfile::tempdir().unwrap();
    let platform = platform(home.path()).await;
    let path = home.path().join("admin.token");
    let start = || async {
        let bound = Bound::bind(settings(home.path(), "127.0.0.1:0")).await.unwrap();
        bound.serve(platform.clone(), async {}).await.unwrap();
        std::fs::read_to_string(&path).unwrap()
    };
    let first = start().await;
    assert_eq!(start().await, first);
    assert_eq!(platform.registry().tokens().await.unwrap().len(), 1);
    std::fs::remove_file(&path).unwrap();
    assert_ne!(start().await, first, "whoever lost it gets another");
}

#[tokio::test]
async fn tokens_do_not_travel_in_plain_text() {
    let home = tempfile::tempdir().unwrap();
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = Bound::bind(settings(home.path(), listen)).await.err();
        assert!(matches!(refused, Some(ServeError::Plaintext(_))), "{listen}");
    }
    let allowed = ServeSettings { allow_plaintext_network: true, ..settings(home.path(), "0.0.0.0:0") };
    assert!(Bound::bind(allowed).await.unwrap().url().starts_with("http://127.0.0.1:"));
}

fn certificate(place: &std::path::Path) -> Files {
    let now = (now_ms() / 1000) as i64;
    let years = Span::parse("3650d").expect("a span");
    let mut authority = Authority::init(&place.join("ca"), "tests", years, now).expect("an authority");
    let endpoints = Endpoint::localhost().to_vec();
    let out = place.join("tls");
    let order = Order { endpoints, out, validity: LEAF_VALIDITY, name: None, only_if_due: false };
    authority.issue(&order, now).expect("a certificate").files
}

#[tokio::test]
async fn with_tls_those_who_trust_the_authority_get_in() {
    let home = tempfile::tempdir().unwrap();
    let files = certificate(home.path());
    let platform = platform(home.path()).await;
    let missing = Files { key: home.path().join("none"), ..files.clone() };
    let refused = Bound::bind(ServeSettings { tls: Some(missing), ..settings(home.path(), "127.0.0.1:0") }).await;
    assert!(matches!(refused.err(), Some(ServeError::Tls(_))));

    let with_tls = ServeSettings { tls: Some(files.clone()), ..settings(home.path(), "127.0.0.1:0") };
    let bound = Bound::bind(with_tls).await.unwrap();
    assert!(bound.url().starts_with("https://127.0.0.1:"));
    let port = bound.address().port();
    let (stop, stopped) = oneshot::channel::<()>();
    crate::http::secret::provide_admin(home.path(), platform.registry()).await.unwrap();
    let serving = tokio::spawn(bound.serve(platform, async {
        let _ = stopped.await;
    }));
    let token = std::fs::read_to_string(home.path().join("admin.token")).unwrap();
    let target = |security| Target {
        host: "localhost".to_owned(),
        port,
        security,
        token: Some(Token::parse(&token).expect("a token")),
    };
    let trusting = Client::new(target(Security::Tls(Trust::bundle(&files.ca).unwrap())));
    assert_eq!(trusting.me().await.unwrap().role, Role::Admin);
    assert!(Client::new(target(Security::Plaintext)).me().await.is_err());
    stop.send(()).unwrap();
    tokio::time::timeout(STOP_LIMIT, serving).await.expect("it stops").unwrap().unwrap();
}

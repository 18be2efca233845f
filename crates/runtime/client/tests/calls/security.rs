//! Trust: tokens are only sent to the trusted server.

use tempfile::tempdir;
use tokio_rustls::TlsAcceptor;
use trellis_client::{Distrust, Error, Security, SuperLink, Target, Timeouts, Trust};
use trellis_wire::call::WhoAmI;
use trellis_wire::token::Token;

use crate::authority::Authority;
use crate::server::Server;

const ME: (u16, &str) = (200, r#"{"id": "1", "name": "ada", "role": "admin"}"#);
const NOW: std::ops::Range<i32> = 2020..4000;

fn superlink(host: &str, port: u16, trusted: &Authority) -> SuperLink {
    let directory = tempdir().expect("a directory");
    let trust = Trust::bundle(&trusted.bundle(&directory)).expect("a bundle");
    let token = Some(Token::parse("s3cret").expect("a token"));
    let target = Target { host: host.to_owned(), port, security: Security::Tls(trust), token };
    SuperLink::new(target).with_timeouts(Timeouts { retries: vec![], ..Timeouts::default() })
}

/// Why the SuperLink with this certificate is not believed when it is called as 127.0.0.1.
async fn distrust(acceptor: TlsAcceptor, trusted: &Authority) -> Distrust {
    let server = Server::with_tls(acceptor, &[ME]).await;
    let error = superlink("127.0.0.1", server.port, trusted).call(&WhoAmI {}).await.expect_err("not believed");
    assert!(server.asked().is_empty(), "the token went out");
    assert!(!error.may_pass());
    match error {
        Error::Distrusted { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_superlink_with_a_good_certificate_is_called() {
    let authority = Authority::new();
    for host in ["127.0.0.1", "localhost"] {
        let server = Server::with_tls(authority.server(&["localhost", "127.0.0.1"], NOW), &[ME]).await;
        let me = superlink(host, server.port, &authority).call(&WhoAmI {}).await.expect("an answer");
        assert_eq!(me.name, "ada");
        assert_eq!(server.asked()[0].header("authorization"), Some("Bearer s3cret"));
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_not_believed() {
    let authority = Authority::new();
    let why = distrust(authority.server(&["link.example.org", "10.1.2.3"], NOW), &authority).await;
    assert_eq!(why.to_string(), "its certificate is not for 127.0.0.1, but for link.example.org, 10.1.2.3");
}

#[tokio::test]
async fn an_unknown_authority_is_not_believed() {
    let (authority, trusted) = (Authority::new(), Authority::new());
    let why = distrust(authority.server(&["127.0.0.1"], NOW), &trusted).await;
    assert!(matches!(&why, Distrust::UnknownAuthority { trusted } if trusted.ends_with("ca.pem")), "{why:?}");
    assert!(why.to_string().starts_with("no authority of "), "{why}");
}

#[tokio::test]
async fn a_certificate_out_of_its_time_is_not_believed() {
    let authority = Authority::new();
    assert_eq!(distrust(authority.server(&["127.0.0.1"], 2001..2002), &authority).await, Distrust::Expired);
    assert_eq!(distrust(authority.server(&["127.0.0.1"], 3000..3001), &authority).await, Distrust::NotYetValid);
}

#[tokio::test]
async fn plaintext_is_not_taken_for_tls() {
    let server = Server::answering(&[ME]).await;
    let error = superlink("127.0.0.1", server.port, &Authority::new()).call(&WhoAmI {}).await.expect_err("no TLS");
    assert!(matches!(error, Error::NotTls { .. }), "{error:?}");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn tls_is_not_taken_for_plaintext() {
    let server = Server::with_tls(Authority::new().server(&["127.0.0.1"], NOW), &[ME]).await;
    let error = crate::superlink(server.port, Some("s3cret")).call(&WhoAmI {}).await.expect_err("no HTTP");
    assert!(matches!(error, Error::NotHttp { .. } | Error::Broken { .. }), "{error:?}");
}

//! Calls over real sockets: requests, and the interpretation of every kind of response.

mod authority;
mod runs;
mod security;
mod server;

use std::error::Error as _;
use std::time::Duration;

use serde_json::json;
use server::Server;
use trellis_client::{Error, NodeKey, Security, SuperLink, Target, Timeouts};
use trellis_wire::call::{CreateToken, Done, Join, ListAudit, ListNodes, RevokeNode, WhoAmI};
use trellis_wire::token::Token;

/// A SuperLink on this machine, called without TLS.
fn superlink(port: u16, token: Option<&str>) -> SuperLink {
    let token = token.map(|token| Token::parse(token).expect("a token"));
    let target = Target { host: "127.0.0.1".to_owned(), port, security: Security::Plaintext, token };
    SuperLink::new(target).with_timeouts(Timeouts { retries: vec![Duration::ZERO; 3], ..Timeouts::default() })
}

#[tokio::test]
async fn a_call_is_a_post_of_json_with_the_token() {
    let server = Server::answering(&[(200, r#"{"id": "1", "name": "ada", "role": "admin", "new": "field"}"#)]).await;
    let me = superlink(server.port, Some("s3cret")).call(&WhoAmI {}).await.expect("an answer");
    assert_eq!((me.id.as_str(), me.name.as_str(), me.role.as_str()), ("1", "ada", "admin"));

    let asked = server.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].line, "POST /v1/trellis/who-am-i HTTP/1.1");
    assert_eq!(asked[0].header("host"), Some(format!("127.0.0.1:{}", server.port).as_str()));
    assert_eq!(asked[0].header("content-type"), Some("application/json"));
    assert_eq!(asked[0].header("authorization"), Some("Bearer s3cret"));
    assert_eq!(asked[0].body, json!({}));
}

#[tokio::test]
async fn questions_are_as_the_contract_has_them() {
    let server = Server::answering(&[(404, r#"{"detail": "no"}"#)]).await;
    let link = superlink(server.port, None);
    let _ = link.call(&CreateToken { account: "ada".to_owned(), label: "ci".to_owned(), ttl_s: Some(60.0) }).await;
    let _ = link.call(&CreateToken { account: "ada".to_owned(), label: String::new(), ttl_s: None }).await;
    let _ = link.call(&ListAudit { after: None, limit: Some(5) }).await;
    let _ = link.call(&ListAudit { after: Some(7), limit: Some(5) }).await;
    let bodies: Vec<_> = server.asked().into_iter().map(|asked| asked.body).collect();
    let expected = [
        json!({"account": "ada", "label": "ci", "ttl_s": 60}),
        json!({"account": "ada", "label": ""}),
        json!({"limit": 5}),
        json!({"after": 7, "limit": 5}),
    ];
    assert_eq!(bodies, expected);
    assert!(server.asked().iter().all(|asked| asked.header("authorization").is_none()));
}

#[tokio::test]
async fn a_node_that_joins_signs_and_shows_no_token_of_an_account() {
    let directory = tempfile::tempdir().expect("a directory");
    let key = NodeKey::generate(&directory.path().join("node.key"), "").expect("a key");
    let server = Server::answering(&[(200, r#"{"node_id": "17446744073709551615"}"#)]).await;
    let join = Join {
        token: "join-1".to_owned(),
        public_key: key.public_pem(),
        name: "edge".to_owned(),
        location: String::new(),
    };
    let joined = superlink(server.port, Some("of-an-account")).call_as_node(&join, &key).await.expect("joined");
    assert_eq!(joined.node_id, "17446744073709551615");
    let asked = &server.asked()[0];
    assert_eq!(asked.header("authorization"), None);
    assert!(["flwr-public-key", "flwr-signature", "flwr-timestamp"].iter().all(|name| asked.header(name).is_some()));
    let public_key = key.public_pem();
    assert_eq!(asked.body, json!({"token": "join-1", "public_key": public_key, "name": "edge", "location": ""}));
}

#[tokio::test]
async fn a_refusal_is_told_in_the_servers_words() {
    for status in [400, 401, 403, 404, 412, 413, 500] {
        let server = Server::answering(&[(status, r#"{"detail": "because of the weather"}"#)]).await;
        let error = superlink(server.port, None).call(&RevokeNode { id: "1".to_owned() }).await.expect_err("refused");
        let expected = format!("127.0.0.1:{} refused revoke-node: because of the weather", server.port);
        assert_eq!(error.to_string(), expected);
        assert!(matches!(error, Error::Refused { status: told, .. } if told == status), "{error:?}");
        assert!(!error.may_pass());
        assert_eq!(server.asked().len(), 1, "{status} must not be tried again");
    }
}

#[tokio::test]
async fn not_now_is_tried_again_a_few_times() {
    let not_now = (503, r#"{"detail": "the disk is full"}"#);
    let server = Server::answering(&[not_now, not_now, (200, "{}")]).await;
    let done = superlink(server.port, None).call(&RevokeNode { id: "1".to_owned() }).await.expect("a response");
    assert_eq!(done, Done {});
    assert_eq!(server.asked().len(), 3);

    let server = Server::answering(&[not_now]).await;
    let error = superlink(server.port, None).call(&RevokeNode { id: "1".to_owned() }).await.expect_err("never");
    assert!(error.may_pass() && error.to_string().ends_with("the disk is full"), "{error}");
    assert_eq!(server.asked().len(), 4);
}

#[tokio::test]
async fn an_answer_that_no_superlink_gives_is_quoted() {
    for (status, body, expected) in [
        (200, "hello", "answered list-nodes in an unknown way (status 200): expected value at line 1 column 1"),
        (200, r#"{"now": 1.0}"#, "(status 200): missing field `nodes` at line 1 column 12"),
        (200, "", "(status 200): EOF while parsing a value at line 1 column 0"),
        (404, "<html>\u{1b}[31m", r#"(status 404): "<html>\u{1b}[31m""#),
        (502, "", "(status 502): it is empty"),
        (302, r#"{"detail": "elsewhere"}"#, r#"(status 302): "{\"detail\": \"elsewhere\"}""#),
        (204, "", "(status 204): it is empty"),
    ] {
        let server = Server::answering(&[(status, body)]).await;
        let error = superlink(server.port, None).call(&ListNodes {}).await.expect_err("no answer");
        assert!(matches!(error, Error::Unexpected { .. }), "{error:?}");
        assert!(error.to_string().ends_with(expected), "{error}\n{expected}");
    }
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let long = format!(r#"{{"nodes": "{}"}}"#, "x".repeat(65 << 20));
    let server = Server::answering(&[(200, &long)]).await;
    let error = superlink(server.port, None).call(&ListNodes {}).await.expect_err("too long");
    assert!(error.to_string().ends_with("it is too long"), "{error}");
}

#[tokio::test]
async fn what_speaks_no_http_is_told_so() {
    // A TLS alert, which is how a server with TLS answers plaintext.
    let server = Server::blurting(&[0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x46]).await;
    let error = superlink(server.port, None).call(&WhoAmI {}).await.expect_err("no HTTP");
    assert!(matches!(error, Error::NotHttp { .. }), "{error:?}");

    for half in ["", "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{"] {
        let server = Server::blurting(half.as_bytes()).await;
        let error = superlink(server.port, None).call(&WhoAmI {}).await.expect_err("half an answer");
        assert!(matches!(error, Error::Broken { .. }) && error.may_pass(), "{error:?}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let server = Server::silent().await;
    let timeouts = Timeouts { answer: Duration::from_millis(50), ..Timeouts::default() };
    let error = superlink(server.port, None).with_timeouts(timeouts).call(&WhoAmI {}).await.expect_err("silence");
    assert_eq!(error.to_string(), format!("127.0.0.1:{} did not answer within 0.05 s", server.port));
    assert!(error.may_pass());
}

#[tokio::test]
async fn nobody_there() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("address").port();
    let error = superlink(free, None).call(&WhoAmI {}).await.expect_err("nobody");
    assert_eq!(error.to_string(), format!("no connection to 127.0.0.1:{free}"));
    assert!(error.source().expect("a cause").to_string().contains("refused"), "{error:?}");

    let target =
        Target { host: "no-such-host.invalid".to_owned(), port: 1, security: Security::Plaintext, token: None };
    let error = SuperLink::new(target).call(&WhoAmI {}).await.expect_err("no such name");
    assert_eq!(error.to_string(), "the name no-such-host.invalid cannot be resolved");
}

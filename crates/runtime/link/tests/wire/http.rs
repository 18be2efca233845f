//! A small HTTP/1.1 peer, and what the HTTP API answers to requests that are not right.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use trellis_link::config::Limits;
use trellis_wire::proto::*;

use super::peer::{TestLink, config};

pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Flower's number for the error.
    pub fn code(&self) -> Option<u64> {
        serde_json::from_slice::<serde_json::Value>(&self.body).ok()?.get("code")?.as_u64()
    }
}

/// Sends the bytes and reads until the server closes.
pub async fn raw(address: SocketAddr, request: &[u8]) -> Response {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body = answer[end..].to_vec();
    let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    Response { status, head, body: if chunked { unchunked(&body) } else { body } }
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        whole.extend_from_slice(&body[end + 2..end + 2 + length]);
        body = &body[end + 2 + length + 2..];
    }
    whole
}

pub async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> Response {
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n").into_bytes();
    for (name, value) in headers {
        request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    request.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    request.extend_from_slice(body);
    raw(address, &request).await
}

pub fn protobuf() -> (String, String) {
    ("content-type".to_owned(), "application/protobuf".to_owned())
}

pub fn header(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// A call of Flower's HTTP API.
pub async fn post(
    address: SocketAddr,
    path: &str,
    headers: &[(String, String)],
    message: &impl prost::Message,
) -> Response {
    let mut headers = headers.to_vec();
    headers.push(protobuf());
    send(address, "POST", path, &headers, &message.encode_to_vec()).await
}

async fn link() -> TestLink {
    TestLink::start(config(Limits::default())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_a_call_is_told_so() {
    let link = link().await;
    let http = link.addresses.http;
    let health = send(http, "GET", "/health", &[], b"").await;
    assert_eq!((health.status, health.text().as_str()), (200, r#"{"status":"ok"}"#));
    assert_eq!(send(http, "HEAD", "/health", &[], b"").await.status, 200);
    let metrics = send(http, "GET", "/metrics", &[], b"").await;
    assert!(metrics.status == 200 && metrics.text().contains("\ntrellis_build_info"), "{}", metrics.text());

    let path = "/v1/control/list-runs";
    assert_eq!(send(http, "GET", path, &[], b"").await.status, 405);
    let wrong = send(http, "POST", path, &[header("content-type", "application/json")], b"{}").await;
    assert_eq!((wrong.status, wrong.code()), (415, Some(1002)));
    let with_charset = header("content-type", "application/protobuf; charset=x");
    assert_eq!(send(http, "POST", path, &[with_charset], b"").await.status, 200);
    let garbage = send(http, "POST", path, &[protobuf()], b"\xff\xff").await;
    assert_eq!((garbage.status, garbage.code()), (400, Some(1003)));
    let chunked = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/protobuf\r\n\
         transfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    );
    assert_eq!(raw(http, chunked.as_bytes()).await.status, 400, "the length must be known");

    let long = vec![b' '; 65 << 10];
    let ours = send(http, "POST", "/v1/trellis/list-nodes", &[header("content-type", "application/json")], &long).await;
    assert_eq!(ours.status, 413, "{}", ours.text());
    let open = send(http, "POST", "/v1/control/get-auth-tokens", &[protobuf()], &long).await;
    assert_eq!(open.status, 413, "a call without authentication");

    let unknown = send(http, "POST", "/v2/fleet/pull-messages", &[protobuf()], b"").await;
    assert!(unknown.status == 404 && unknown.text().contains("1.25 to 1.42"), "{}", unknown.text());
    let rest = send(http, "POST", "/api/v0/fleet/pull-messages", &[protobuf()], b"").await;
    assert!(rest.status == 404 && rest.text().contains("without --grpc-adapter and --rest"), "{}", rest.text());
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_serves_its_apis_over_both_transports() {
    let link = link().await;
    let (path, addresses) = ("/v1/control/list-runs", link.addresses);
    assert_eq!(post(addresses.control, path, &[], &ListRunsRequest::default()).await.status, 200);
    assert_eq!(post(addresses.fleet, path, &[], &ListRunsRequest::default()).await.status, 404);
    assert_eq!(send(addresses.fleet, "GET", "/metrics", &[], b"").await.status, 404);
    let channel = super::peer::channel(addresses.http).await;
    let mut grpc = control_client::ControlClient::new(channel);
    assert!(grpc.list_runs(ListRunsRequest::default()).await.is_ok(), "gRPC on the HTTP port");
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_out_of_range_are_turned_away() {
    let link = link().await;
    for (version, status) in [("1.24.0", 412), ("2.0.0", 412), ("1.25.0", 200), ("1.42.0", 200), ("1.43.0", 200)] {
        let announced = [header("flwr-package-version", version)];
        let answer = post(link.addresses.http, "/v1/control/list-nodes", &announced, &ListNodesRequest {}).await;
        assert_eq!(answer.status, status, "{version}: {}", answer.text());
        assert_eq!(status == 412, answer.text().contains("install a supported release"), "{version}");
    }
    link.stop().await;
}

//! Attacks that try to exhaust shared resources: memory, permits, space in the logs. The SuperLink refuses each attack
//! and keeps serving an honest caller.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use prost::Message as _;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use trellis_link::config::{Config, Limits};
use trellis_wire::proto::*;

use super::http::{Response, header, post, protobuf, raw, send};
use super::peer::{TestLink, TestNode, config, fab, timestamp};

type Headers = Vec<(String, String)>;

/// Time limit of an answer; a slower one waits for a resource.
const AT_ONCE: Duration = Duration::from_secs(5);
const HUGE_BYTES: usize = 530_000_000;
const LIST_BYTES: usize = 16 << 20;

fn guarded() -> Config {
    Config { accounts: true, supernode_auth: true, ..config(Limits::default()) }
}

fn admin(state: &Path) -> Headers {
    let token = std::fs::read_to_string(state.join("admin.token")).unwrap();
    vec![header("authorization", &format!("Bearer {}", token.trim())), header("content-type", "application/json")]
}

async fn ours(link: &TestLink, headers: &Headers, name: &str, body: serde_json::Value) -> serde_json::Value {
    let (path, body) = (format!("/v1/trellis/{name}"), body.to_string());
    let answer = send(link.addresses.http, "POST", &path, headers, body.as_bytes()).await;
    assert_eq!(answer.status, 200, "{name}: {}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

/// Sends a request head that announces a body, and no byte of the body.
async fn announce(address: SocketAddr, path: &str, headers: &Headers, bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {bytes}\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    stream
}

/// The status of a response that must arrive within `AT_ONCE`.
async fn status(stream: &mut TcpStream) -> u16 {
    let mut start = [0; 12];
    let read = tokio::time::timeout(AT_ONCE, stream.read_exact(&mut start)).await;
    read.expect("an answer, without the body").expect("an answer");
    String::from_utf8_lossy(&start)[9..].parse().expect("a status")
}

async fn at_once(answer: impl Future<Output = Response>) -> Response {
    tokio::time::timeout(AT_ONCE, answer).await.expect("an answer at once")
}

fn signed(node: &TestNode) -> Headers {
    let mut headers = node.signature(&timestamp(0));
    headers.push(protobuf());
    headers
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_senders_are_refused_before_the_body() {
    let directory = tempfile::tempdir().unwrap();
    let link = TestLink::start_in(guarded(), directory.path()).await;
    let http = link.addresses.http;
    let stranger = TestNode::new(link.addresses.fleet).await;
    let wrong = |name: &str| vec![header(name, "Bearer trellis_00"), protobuf()];
    for (path, headers) in [
        ("/v1/fleet/push-messages", signed(&stranger)),
        ("/v1/fleet/push-object", signed(&stranger)),
        ("/v1/runtime/push-messages", wrong("flwr-task-token")),
        ("/v1/runtime/push-object", vec![protobuf()]),
        ("/v1/control/start-run", wrong("authorization")),
    ] {
        let mut stream = announce(http, path, &headers, HUGE_BYTES).await;
        assert_eq!(status(&mut stream).await, 401, "{path}");
    }
    // Messages from unknown senders must be small.
    for (path, headers) in
        [("/v1/fleet/register-node", signed(&stranger)), ("/v1/control/get-auth-tokens", vec![protobuf()])]
    {
        let mut stream = announce(http, path, &headers, 100_000).await;
        assert_eq!(status(&mut stream).await, 413, "{path}");
    }
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_bodies_that_never_arrive_delay_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let link = TestLink::start_in(guarded(), directory.path()).await;
    let (http, admin) = (link.addresses.http, admin(directory.path()));
    let made = ours(&link, &admin, "create-account", json!({"name": "slow", "role": "runner"})).await;
    let slow = vec![header("authorization", &format!("Bearer {}", made["token"].as_str().unwrap())), protobuf()];
    let mut streams = Vec::new();
    for headers in [vec![header("authorization", "Bearer wrong"), protobuf()], slow] {
        for _ in 0..10 {
            streams.push(announce(http, "/v1/control/start-run", &headers, HUGE_BYTES).await);
        }
    }
    let padded = Fab { content: fab(), hash_str: "x".repeat(1 << 20), ..Default::default() };
    let request = StartRunRequest { fab: Some(padded), federation: "default".into(), ..Default::default() };
    let answer = at_once(post(http, "/v1/control/start-run", &admin[..1], &request)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    drop(streams);
    link.stop().await;
}

/// 16 MiB of empty messages of two bytes each.
fn empty_list(field: u8) -> Vec<u8> {
    [field << 3 | 2, 0].repeat(LIST_BYTES / 2)
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_need_far_more_memory_than_bytes_are_not_decoded() {
    let link = TestLink::start(config(Limits::default())).await;
    let (http, node) = (link.addresses.http, link.node().await);
    let (_, _, token) = link.running_run_with_token().await;
    let task = vec![header("flwr-task-token", &token), protobuf()];
    for (path, headers, field) in [
        ("/v1/fleet/push-messages", signed(&node), 2),
        ("/v1/fleet/push-messages", signed(&node), 3),
        ("/v1/runtime/push-messages", task.clone(), 2),
        ("/v1/runtime/pull-messages", task, 2),
    ] {
        let answer = send(http, "POST", path, &headers, &empty_list(field)).await;
        assert_eq!(answer.status, 413, "{path} {field}: {}", answer.text());
    }
    let mut launcher = announce(http, "/v1/runtime/acquire-task", &vec![protobuf()], LIST_BYTES).await;
    assert_eq!(status(&mut launcher).await, 413, "a launcher sends no long message");
    let honest = PushMessagesRequest { node: node.reference(), ..Default::default() }.encode_to_vec();
    let answer = send(http, "POST", "/v1/fleet/push-messages", &signed(&node), &honest).await;
    assert!(answer.text().contains("must not be empty"), "decoded: {}", answer.text());
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_pages_and_host_names_are_refused_on_every_port() {
    let named = Config { allowed_hosts: vec!["fl.example.org".to_owned()], ..config(Limits::default()) };
    let link = TestLink::start(named).await;
    let ask = async |address: SocketAddr, path: &str, host: &str, more: &str| {
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{more}content-length: 2\r\n\r\n{{}}");
        raw(address, head.as_bytes()).await.status
    };
    let (json, at) = ("content-type: application/json\r\n", link.addresses.http);
    let own = format!("http://{at}");
    for (host, more, status) in [
        (at.to_string(), json.to_owned(), 200),
        ("fl.example.org:8000".to_owned(), json.to_owned(), 200),
        ("superlink".to_owned(), json.to_owned(), 200),
        (at.to_string(), format!("{json}origin: {own}\r\n"), 200),
        ("evil.example".to_owned(), json.to_owned(), 421),
        (at.to_string(), format!("{json}origin: http://evil.example\r\n"), 403),
        (at.to_string(), format!("{json}origin: null\r\n"), 403),
        (at.to_string(), String::new(), 415),
        (at.to_string(), "content-type: text/plain\r\n".to_owned(), 415),
    ] {
        assert_eq!(ask(at, "/v1/trellis/list-nodes", &host, &more).await, status, "{host} {more}");
    }
    let grpc = "content-type: application/grpc\r\n";
    for (address, path) in [
        (at, "/flwr.proto.Control/StartRun"),
        (link.addresses.control, "/flwr.proto.Control/StartRun"),
        (link.addresses.fleet, "/flwr.proto.Fleet/RegisterNode"),
        (link.addresses.serverappio, "/flwr.proto.ServerAppIo/UpdateRunStatus"),
    ] {
        assert_eq!(ask(address, path, "evil.example", grpc).await, 421, "{path}");
    }
    let health = raw(at, b"GET /health HTTP/1.1\r\nhost: probe.example\r\nconnection: close\r\n\r\n").await;
    assert_eq!(health.status, 200);
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_refusals_from_one_address_makes_few_entries() {
    let directory = tempfile::tempdir().unwrap();
    let link = TestLink::start_in(guarded(), directory.path()).await;
    for n in 0..300 {
        let wrong = [header("authorization", &format!("Bearer trellis_{n}"))];
        let answer = post(link.addresses.http, "/v1/control/list-runs", &wrong, &ListRunsRequest::default()).await;
        assert_eq!(answer.status, 401);
    }
    let audit = ours(&link, &admin(directory.path()), "list-audit", json!({"limit": 1000})).await;
    let entries = audit["entries"].as_array().unwrap();
    let refused = entries.iter().filter(|entry| entry["event"] == "call-refused").count();
    assert!((1..50).contains(&refused), "{refused}");
    assert!(entries.iter().any(|entry| entry["event"] == "account-created"), "{entries:?}");
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_from_one_address_leave_room_for_others() {
    let directory = tempfile::tempdir().unwrap();
    let link = TestLink::start_in(guarded(), directory.path()).await;
    let (http, path) = (link.addresses.http, "/v1/control/get-login-details");
    let mut refused = 0;
    for _ in 0..200 {
        refused += usize::from(post(http, path, &[], &GetLoginDetailsRequest {}).await.status == 503);
    }
    assert!(refused > 100, "{refused}");
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(http).await.unwrap();
    let head = "content-type: application/protobuf\r\ncontent-length: 0\r\n\r\n";
    other.write_all(format!("POST {path} HTTP/1.1\r\nhost: {http}\r\n{head}").as_bytes()).await.unwrap();
    assert_eq!(status(&mut other).await, 200, "another address");
    link.stop().await;
}

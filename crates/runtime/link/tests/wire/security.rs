//! Every call with invalid identities: none, a wrong, expired or revoked one, and that of another sender. The tests use
//! the table of calls, so a new call cannot be forgotten.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use prost::Message as _;
use tonic::Code;
use tonic::metadata::{Ascii, MetadataKey};
use tonic_prost::ProstCodec;
use trellis_link::calls::{ALL, Access, Api, Rpc, Transport};
use trellis_link::config::{Config, Limits};
use trellis_wire::proto::*;

use super::http::{header, protobuf, send};
use super::peer::{TestLink, TestNode, channel, config, timestamp};

type Headers = Vec<(String, String)>;

const AUDIT_LIMIT: Duration = Duration::from_secs(20);
const AUDIT_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The result for a refused caller, independent of the transport.
#[derive(Debug, PartialEq, Eq)]
enum CallResult {
    WhoAreYou,
    MayNot,
    Other(String),
}

/// Any message as bytes: the tests do not know the types of the calls.
#[derive(Clone, PartialEq, prost::Message)]
struct Anything {
    #[prost(bytes = "vec", optional, tag = "1")]
    first: Option<Vec<u8>>,
    #[prost(uint64, tag = "2")]
    second: u64,
    #[prost(string, tag = "3")]
    third: String,
}

/// A message that names the node, so that only the identity is wrong.
fn message(rpc: &Rpc, node: &TestNode) -> Vec<u8> {
    match (rpc.api, rpc.name) {
        (Api::Fleet, "RegisterNode" | "ActivateNode") => {
            ActivateNodeRequest { public_key: node.pem.clone().into(), heartbeat_interval: 30.0 }.encode_to_vec()
        }
        (Api::Fleet, "DeactivateNode" | "UnregisterNode") => DeactivateNodeRequest { node_id: node.id }.encode_to_vec(),
        (Api::Fleet, _) => GetRunRequest { node: node.reference(), run_id: 0 }.encode_to_vec(),
        (Api::Trellis, "NodeShard") => serde_json::json!({"node_id": node.id.to_string()}).to_string().into_bytes(),
        (Api::Trellis, "DescribeNode") => {
            serde_json::json!({"node_id": node.id.to_string(), "draining": true}).to_string().into_bytes()
        }
        (Api::Trellis, "PushAppLog") => {
            serde_json::json!({"node_id": node.id.to_string(), "run_id": "1", "text": "x"}).to_string().into_bytes()
        }
        (Api::Trellis, "Join") => serde_json::json!({"token": "x", "public_key": node.pem}).to_string().into_bytes(),
        _ => Vec::new(),
    }
}

async fn call(address: SocketAddr, transport: Transport, path: &str, headers: &Headers, body: Vec<u8>) -> CallResult {
    match transport {
        Transport::Http => {
            let mut headers = headers.clone();
            headers.push(if path.starts_with("/v1/trellis/") {
                header("content-type", "application/json")
            } else {
                protobuf()
            });
            let answer = send(address, "POST", path, &headers, &body).await;
            match answer.status {
                401 => CallResult::WhoAreYou,
                403 => CallResult::MayNot,
                status => CallResult::Other(format!("{status} {}", answer.text())),
            }
        }
        Transport::Grpc => {
            let mut client = tonic::client::Grpc::new(channel(address).await);
            client.ready().await.unwrap();
            let message = Anything::decode(body.as_slice()).unwrap_or_default();
            let mut request = tonic::Request::new(message);
            for (name, value) in headers.iter().filter(|(name, _)| !name.ends_with("-bin")) {
                let key: MetadataKey<Ascii> = name.parse().unwrap();
                request.metadata_mut().insert(key, value.parse().unwrap());
            }
            let path = path.parse().unwrap();
            let codec = ProstCodec::<Anything, Anything>::default();
            match client.unary(request, path, codec).await {
                Err(status) if status.code() == Code::Unauthenticated => CallResult::WhoAreYou,
                Err(status) if status.code() == Code::PermissionDenied => CallResult::MayNot,
                other => CallResult::Other(format!("{other:?}")),
            }
        }
    }
}

fn address(link: &TestLink, rpc: &Rpc, transport: Transport) -> SocketAddr {
    match (transport, rpc.api) {
        (Transport::Http, _) => link.addresses.http,
        (_, Api::Control | Api::Trellis) => link.addresses.control,
        (_, Api::Fleet) => link.addresses.fleet,
        (_, Api::App) => link.addresses.serverappio,
    }
}

/// Makes all calls with this kind of access as each intruder; all must get `reported`.
async fn refuse(
    link: &TestLink,
    wanted: impl Fn(&Rpc) -> bool,
    intruders: &[(&str, Headers)],
    victim: &TestNode,
    reported: CallResult,
) -> usize {
    let mut calls = 0;
    for rpc in ALL.iter().filter(|rpc| wanted(rpc)) {
        for transport in [Transport::Grpc, Transport::Http] {
            for path in rpc.paths(transport) {
                for (who, headers) in intruders {
                    let answer =
                        call(address(link, rpc, transport), transport, &path, headers, message(rpc, victim)).await;
                    assert_eq!(answer, reported, "{path} called with {who}");
                    calls += 1;
                }
            }
        }
    }
    calls
}

fn settings(state: &Path) -> Config {
    let mut config = config(Limits::default());
    config.accounts = true;
    let secret = state.join("secret");
    std::fs::create_dir_all(state).unwrap();
    std::fs::write(&secret, "s3cret").unwrap();
    config.superexec_secret = Some(secret);
    config
}

fn bearer(token: &str) -> Headers {
    vec![header("authorization", &format!("Bearer {token}")), header("flwr-oidc-access-token", token)]
}

async fn ours(link: &TestLink, token: &str, name: &str, body: serde_json::Value) -> serde_json::Value {
    let mut headers = bearer(token);
    headers.push(header("content-type", "application/json"));
    let path = format!("/v1/trellis/{name}");
    let answer = send(link.addresses.http, "POST", &path, &headers, body.to_string().as_bytes()).await;
    assert_eq!(answer.status, 200, "{name}: {}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_must_prove_their_identity() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let link = TestLink::start_in(settings(&state), &state).await;
    let admin = std::fs::read_to_string(directory.path().join("state/admin.token")).unwrap().trim().to_owned();
    let (victim, other, revoked) = (link.node().await, link.node().await, link.node().await);
    ours(&link, &admin, "revoke-node", serde_json::json!({"id": revoked.id.to_string()})).await;
    let mut garbled = victim.signature(&timestamp(0));
    garbled[0].1 = timestamp(-1);
    let intruders = [
        ("nothing", Vec::new()),
        ("a signature for another moment", garbled),
        ("an expired signature", victim.signature(&timestamp(-400))),
        ("a signature from the future", victim.signature(&timestamp(60))),
        ("another node's identity", other.signature(&timestamp(0))),
        ("a revoked identity", revoked.signature(&timestamp(0))),
    ];
    let grpc_and_http =
        refuse(&link, |rpc| rpc.access == Access::Node, &intruders, &victim, CallResult::WhoAreYou).await;
    assert_eq!(grpc_and_http, 28 * intruders.len(), "12 calls over both transports, and four of ours");
    // The revoked node with its own key.
    let itself = [("its own revoked identity", revoked.signature(&timestamp(0)))];
    let calls = |rpc: &Rpc| rpc.api == Api::Fleet && !matches!(rpc.name, "RegisterNode" | "ActivateNode");
    refuse(&link, calls, &itself, &revoked, CallResult::WhoAreYou).await;

    // The audit entry is written after the answer.
    let audited = async {
        loop {
            let audit = ours(&link, &admin, "list-audit", serde_json::json!({"limit": 1000})).await.to_string();
            if ["node", "refus", "revoke"].iter().all(|event| audit.contains(event)) {
                return;
            }
            tokio::time::sleep(AUDIT_POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(AUDIT_LIMIT, audited)
        .await
        .expect("the audit log has the node, its refusals and the revocation");
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_need_a_valid_token_and_the_permission_of_the_call() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let link = TestLink::start_in(settings(&state), &state).await;
    let admin = std::fs::read_to_string(directory.path().join("state/admin.token")).unwrap().trim().to_owned();
    let victim = TestNode::new(link.addresses.fleet).await;
    let make = async |name: &str, role: &str| {
        let made = ours(&link, &admin, "create-account", serde_json::json!({"name": name, "role": role})).await;
        made["token"].as_str().unwrap().to_owned()
    };
    let (viewer, runner, disabled) = (make("v", "viewer").await, make("r", "runner").await, make("d", "admin").await);
    ours(&link, &admin, "disable-account", serde_json::json!({"name": "d"})).await;
    let token = async |ttl_s: f64| {
        ours(&link, &admin, "create-token", serde_json::json!({"account": "admin", "label": "t", "ttl_s": ttl_s})).await
    };
    let revoked = token(60.0).await;
    ours(&link, &admin, "revoke-token", serde_json::json!({"id": revoked["id"]})).await;
    let expired = token(0.05).await;
    let join = ours(&link, &admin, "create-join-token", serde_json::json!({"ttl_s": 60.0})).await;
    let has_expired = async || {
        let listed = ours(&link, &admin, "list-tokens", serde_json::json!({})).await;
        let listed = listed["tokens"].as_array().unwrap().clone();
        listed.iter().any(|token| token["id"] == expired["id"] && token["state"] == "expired")
    };
    while !has_expired().await {}
    let intruders = [
        ("nothing", Vec::new()),
        ("a wrong token", bearer("trellis_0000")),
        ("an expired token", bearer(expired["token"].as_str().unwrap())),
        ("a revoked token", bearer(revoked["token"].as_str().unwrap())),
        ("the token of a disabled account", bearer(&disabled)),
        ("a join token", bearer(join["token"].as_str().unwrap())),
        ("a node's signature", victim.signature(&timestamp(0))),
    ];
    let of_accounts = |rpc: &Rpc| matches!(rpc.access, Access::Account(_));
    assert!(refuse(&link, of_accounts, &intruders, &victim, CallResult::WhoAreYou).await > 200);

    use trellis_core::account::Permission::{Administer, Run, View};
    let needs = |permissions: &'static [trellis_core::account::Permission]| move |rpc: &Rpc| matches!(rpc.access, Access::Account(needed) if permissions.contains(&needed));
    refuse(&link, needs(&[Run, Administer]), &[("a viewer's token", bearer(&viewer))], &victim, CallResult::MayNot)
        .await;
    refuse(&link, needs(&[Administer]), &[("a runner's token", bearer(&runner))], &victim, CallResult::MayNot).await;
    for rpc in ALL.iter().filter(|rpc| needs(&[View])(rpc) && rpc.name != "StreamLogs") {
        for path in rpc.paths(Transport::Http) {
            let reported = call(link.addresses.http, Transport::Http, &path, &bearer(&viewer), Vec::new()).await;
            assert!(matches!(reported, CallResult::Other(_)), "{path} is for viewers: {reported:?}");
        }
    }
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apps_need_the_token_of_a_running_run_and_launchers_the_secret() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let link = TestLink::start_in(settings(&state), &state).await;
    let victim = TestNode::new(link.addresses.fleet).await;
    let wrong = || vec![header("flwr-task-token", &"ab".repeat(128))];
    // A gRPC call without a token is one of Flower up to 1.27, which the port trusts.
    let over_http = |rpc: &Rpc| rpc.access == Access::App && rpc.on.has(Transport::Http);
    refuse(&link, over_http, &[("a wrong token", wrong())], &victim, CallResult::WhoAreYou).await;
    for rpc in ALL.iter().filter(|rpc| over_http(rpc)) {
        for path in rpc.paths(Transport::Http) {
            let reported = call(link.addresses.http, Transport::Http, &path, &Vec::new(), Vec::new()).await;
            assert_eq!(reported, CallResult::WhoAreYou, "{path} without a token");
        }
    }
    // The HTTP port also speaks gRPC and is reachable from other machines: it trusts no caller.
    for rpc in ALL.iter().filter(|rpc| rpc.access == Access::App) {
        for path in rpc.paths(Transport::Grpc) {
            let reported = call(link.addresses.http, Transport::Grpc, &path, &Vec::new(), Vec::new()).await;
            assert_eq!(reported, CallResult::WhoAreYou, "{path} on the HTTP port without a token");
        }
    }
    let unsigned = [
        ("nothing", Vec::new()),
        ("a wrong signature", {
            let mut headers = Vec::new();
            for (name, value) in [("ts", "1"), ("nonce", "n"), ("body-sha256", "00"), ("signature", "00")] {
                headers.push(header(&format!("flwr-superexec-{name}"), value));
            }
            headers
        }),
        ("a task token", wrong()),
    ];
    assert!(refuse(&link, |rpc| rpc.access == Access::Launcher, &unsigned, &victim, CallResult::WhoAreYou).await > 20);
    link.stop().await;
}

/// Calls without authentication must be listed here.
#[test]
fn calls_without_authentication_are_known() {
    let open: Vec<_> = ALL.iter().filter(|rpc| rpc.access == Access::Open).map(|rpc| rpc.name).collect();
    assert_eq!(open, ["GetLoginDetails", "GetAuthTokens", "RefreshAuthTokens"]);
}

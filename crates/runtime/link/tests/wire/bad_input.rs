//! Bad input of every kind gets the documented code and changes nothing; good input still works afterwards.

use std::time::Duration;

use super::peer::{TestLink, config, instruction, now, state_on_disk};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::{Code, Request};
use trellis_link::config::Limits;
use trellis_wire::object::{ObjectKind, encode, object_id};
use trellis_wire::proto::*;

async fn start(limits: Limits) -> TestLink {
    TestLink::start(config(limits)).await
}

/// Pushes one instruction for `dst` and returns its id and objects.
async fn announce(
    app: &mut server_app_io_client::ServerAppIoClient<tonic::transport::Channel>,
    run_id: u64,
    dst: u64,
) -> (String, Vec<(String, bytes::Bytes)>) {
    let (message, tree, objects) = instruction(run_id, dst, now(), 60.0);
    let request = PushAppMessagesRequest {
        run_id,
        messages_list: vec![message],
        message_object_trees: vec![tree],
        ..Default::default()
    };
    let pushed = app.push_messages(request).await.unwrap().into_inner();
    let wanted: Vec<String> = objects.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(pushed.objects_to_push, wanted, "all objects are missing, children first");
    (pushed.message_ids[0].clone(), objects)
}

/// Announces an object with this content below a message, and returns its id.
async fn announce_child(
    app: &mut server_app_io_client::ServerAppIoClient<tonic::transport::Channel>,
    run_id: u64,
    dst: u64,
    content: &[u8],
) -> String {
    let id = object_id(content).to_string();
    let (message, mut tree, _) = instruction(run_id, dst, now(), 50.0);
    tree.children.push(ObjectTree { object_id: id.clone(), children: vec![] });
    let request = PushAppMessagesRequest {
        run_id,
        messages_list: vec![message],
        message_object_trees: vec![tree],
        ..Default::default()
    };
    assert!(app.push_messages(request).await.unwrap().into_inner().objects_to_push.contains(&id));
    id
}

async fn push_from_app(
    app: &mut server_app_io_client::ServerAppIoClient<tonic::transport::Channel>,
    run_id: u64,
    object_id: &str,
    content: bytes::Bytes,
) -> Result<bool, tonic::Status> {
    let request = PushObjectRequest {
        node: Some(Node { node_id: 1 }),
        run_id,
        object_id: object_id.into(),
        object_content: content,
        ..Default::default()
    };
    app.push_object(request).await.map(|response| response.into_inner().stored)
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_objects_are_refused_and_the_valid_one_is_stored() {
    let link = start(Limits { object_bytes: 1 << 20, ..Limits::default() }).await;
    let node = link.node().await;
    let (run_id, mut app) = link.running_run().await;
    let (_, objects) = announce(&mut app, run_id, node.id).await;
    let (id, content) = objects[0].clone();

    let other = encode(ObjectKind::RecordDict, &[], br#"{"a": "b"}"#);
    assert!(!push_from_app(&mut app, run_id, &id, other.clone()).await.unwrap(), "wrong hash");
    let stranger = object_id(&other).to_string();
    assert!(!push_from_app(&mut app, run_id, &stranger, other).await.unwrap(), "never announced");

    let headless = announce_child(&mut app, run_id, node.id, b"no header at all").await;
    let refused = push_from_app(&mut app, run_id, &headless, "no header at all".into()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(!push_from_app(&mut app, run_id, "not-an-id", content.clone()).await.unwrap(), "an invalid id");
    let refused = push_from_app(&mut app, run_id + 1, &id, content.clone()).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::PermissionDenied, &*format!("Run ID not found: {}", run_id + 1))
    );

    assert!(push_from_app(&mut app, run_id, &id, content.clone()).await.unwrap(), "the valid object");
    assert!(push_from_app(&mut app, run_id, &id, content).await.unwrap(), "a retry");
    link.stop().await;
}

/// As in official SuperLinks: an id that no message of the run has gets the error reply of an unknown message.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_message_id_gets_an_error_reply_and_loses_no_other_reply() {
    let link = start(Limits::default()).await;
    let node = link.node().await;
    let (other_run, mut other_app) = link.running_run().await;
    let (foreign, _) = announce(&mut other_app, other_run, node.id).await;
    let (run_id, mut app) = link.running_run().await;
    let (message, tree, _) = instruction(run_id, node.id ^ 1, now(), 60.0);
    let push = PushAppMessagesRequest {
        run_id,
        messages_list: vec![message],
        message_object_trees: vec![tree],
        ..Default::default()
    };
    let pushed = app.push_messages(push).await.unwrap().into_inner();
    assert_eq!(
        (pushed.message_ids.as_slice(), pushed.objects_to_push.len()),
        (&[String::new()][..], 0),
        "no such node"
    );

    let unknown = "0a".repeat(32);
    let asked = ["", "abc", "\u{e9}", &unknown, &unknown.to_uppercase(), &foreign, "", &unknown].map(str::to_owned);
    let pull = PullAppMessagesRequest { run_id, message_ids: asked.to_vec(), ..Default::default() };
    let pulled = app.pull_messages(pull.clone()).await.unwrap().into_inner();
    let mut answered = Vec::new();
    for (message, tree) in pulled.messages_list.iter().zip(&pulled.message_object_trees) {
        let metadata = message.metadata.clone().unwrap();
        assert_eq!((message.error.as_ref().unwrap().code, metadata.message_type.as_str()), (3, "system"));
        let pull = PullObjectRequest { node: Some(Node { node_id: 1 }), run_id, object_id: tree.object_id.clone() };
        let object = app.pull_object(pull).await.unwrap().into_inner().object_content;
        assert_eq!(object_id(&object).to_string(), metadata.message_id);
        let body = object.splitn(2, |byte| *byte == 0).nth(1).unwrap();
        let inflated = <Message as prost::Message>::decode(body).unwrap().metadata.unwrap();
        assert_eq!(inflated.reply_to_message_id, metadata.reply_to_message_id, "clients read the object");
        answered.push(metadata.reply_to_message_id);
    }
    let mut want = asked[..6].to_vec();
    want.sort();
    answered.sort();
    assert_eq!(answered, want, "one reply for each id, even if it is repeated");
    assert_eq!(app.pull_messages(pull).await.unwrap().into_inner(), pulled, "until the confirmation");

    let confirm = ConfirmMessageReceivedRequest { run_id, message_object_id: "abc".into(), node: None };
    app.confirm_message_received(confirm).await.unwrap();
    let pull = PullObjectRequest { node: Some(Node { node_id: 1 }), run_id, object_id: "abc".into() };
    assert!(!app.pull_object(pull).await.unwrap().into_inner().object_found);
    let pull = PullAppMessagesRequest { run_id: other_run, message_ids: vec![foreign], ..Default::default() };
    assert_eq!(other_app.pull_messages(pull).await.unwrap().into_inner().messages_list, [], "no reply yet");
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_with_simulation_options_are_refused() {
    let link = start(Limits::default()).await;
    // `num-supernodes = 10` as a ConfigRecord (Flower up to 1.27) and as a SimulationConfig (from 1.28).
    let record = b"\x0a\x14\x0a\x0enum-supernodes\x12\x02\x10\x14";
    for options in [&record[..], &[0x08, 0x0a]] {
        let request = StartRunRequest {
            fab: Some(Fab { content: super::peer::fab(), ..Default::default() }),
            federation_options: bytes::Bytes::from_static(options),
            ..Default::default()
        };
        let refused = link.control().await.start_run(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains("num-supernodes"), "{refused:?}");
    }
    link.stop().await;
}

/// `send_and_receive` checks its timeout between two pulls.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_is_not_held_longer_than_the_timeouts_of_apps_allow() {
    let link = start(Limits::default()).await;
    let node = link.node().await;
    let (run_id, mut app) = link.running_run().await;
    let (id, _) = announce(&mut app, run_id, node.id).await;
    let pull = PullAppMessagesRequest { run_id, message_ids: vec![id], ..Default::default() };
    let begin = std::time::Instant::now();
    assert_eq!(app.pull_messages(pull).await.unwrap().into_inner().messages_list, []);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_object_is_refused_during_the_upload() {
    let link = start(Limits { object_bytes: 1 << 20, ..Limits::default() }).await;
    let node = link.node().await;
    let (run_id, mut app) = link.running_run().await;
    let big = encode(ObjectKind::ArrayChunk, &[], &vec![7; 3 << 20]);
    let id = announce_child(&mut app, run_id, node.id, &big).await;
    let refused = push_from_app(&mut app, run_id, &id, big).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_nodes_and_old_signatures_are_refused() {
    let link = start(Limits::default()).await;
    let node = link.node().await;
    let other = link.node().await;
    let mut client = node.client.clone();
    let beat = |id| SendNodeHeartbeatRequest { node: Some(Node { node_id: id }), heartbeat_interval: 30.0 };

    let code = |result: Result<tonic::Response<SendNodeHeartbeatResponse>, tonic::Status>| {
        result.map(|_| ()).map_err(|status| (status.code(), status.message().to_owned()))
    };
    let refused = |text: &str| Err((Code::Unauthenticated, text.to_owned()));
    let unsigned = client.send_node_heartbeat(Request::new(beat(node.id))).await;
    assert_eq!(code(unsigned), refused("Missing authentication metadata"));
    let old = client.send_node_heartbeat(node.signed_at(beat(node.id), "2025-03-01T00:00:00+00:00")).await;
    assert_eq!(code(old), refused("Invalid timestamp"));
    let nonsense = client.send_node_heartbeat(node.signed_at(beat(node.id), "yesterday")).await;
    assert_eq!(code(nonsense), refused("Invalid timestamp"));
    let mut forged = other.signed(beat(node.id));
    let key = node.signed(()).metadata().get_bin("flwr-public-key-bin").unwrap().clone();
    forged.metadata_mut().insert_bin("flwr-public-key-bin", key);
    assert_eq!(code(client.send_node_heartbeat(forged).await), refused("Invalid signature"));
    let foreign = client.send_node_heartbeat(other.signed(beat(node.id))).await;
    assert_eq!(code(foreign), refused("Invalid node ID"));
    let unknown = client.send_node_heartbeat(node.signed(beat(node.id ^ 1))).await;
    assert_eq!(code(unknown), refused("Invalid node ID"));
    let interval = SendNodeHeartbeatRequest { heartbeat_interval: 1.0, ..beat(node.id) };
    let refused = client.send_node_heartbeat(node.signed(interval)).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "Invalid heartbeat interval"));

    assert!(client.send_node_heartbeat(node.signed(beat(node.id))).await.unwrap().into_inner().success);
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_tokens_and_runs_are_refused() {
    let link = start(Limits::default()).await;
    let run_id = link.start_run().await;
    let mut app = link.app().await;
    let refused = app.pull_app_inputs(PullAppInputsRequest { token: "guess".into() }).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::PermissionDenied, "Invalid token."));
    let refused = app.get_nodes(GetNodesRequest { run_id }).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::PermissionDenied, "Run is pending."));
    let refused = app.get_nodes(GetNodesRequest { run_id: 1 }).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let beat = SendAppHeartbeatRequest { token: "guess".into() };
    assert!(!app.send_app_heartbeat(beat).await.unwrap().into_inner().success);

    let mut control = link.control().await;
    let refused = control.stop_run(StopRunRequest { run_id: 1 }).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, "Run ID not found"));
    let refused = control.start_run(StartRunRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "no FAB");
    let status = control.list_runs(ListRunsRequest::default()).await.unwrap().into_inner();
    assert_eq!(status.run_dict[&run_id].status.as_ref().unwrap().status, "pending", "unchanged");
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_messages_are_refused_as_a_whole() {
    let link = start(Limits { message_bytes: 100_000, ..Limits::default() }).await;
    let node = link.node().await;
    let (run_id, mut app) = link.running_run().await;
    let push = |message, tree| PushAppMessagesRequest {
        run_id,
        messages_list: vec![message],
        message_object_trees: vec![tree],
        ..Default::default()
    };
    let (message, tree, _) = instruction(run_id, node.id, now() - 100.0, 60.0);
    let refused = app.push_messages(push(message, tree)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("TTL has expired"), "{refused:?}");

    let (mut message, tree, _) = instruction(run_id, node.id, now(), 60.0);
    message.content = None;
    assert_eq!(app.push_messages(push(message, tree)).await.unwrap_err().code(), Code::InvalidArgument);

    let (message, mut tree, _) = instruction(run_id, node.id, now(), 60.0);
    tree.object_id = "0".repeat(64);
    assert_eq!(app.push_messages(push(message, tree)).await.unwrap_err().code(), Code::InvalidArgument);

    let refused = app.push_logs(PushLogsRequest { run_id, logs: vec!["x".repeat(200_000)], node: None }).await;
    assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted, "larger than the limit");

    let (message, tree, _) = instruction(run_id, node.id ^ 1, now(), 60.0);
    let pushed = app.push_messages(push(message, tree)).await.unwrap().into_inner();
    assert_eq!(pushed.message_ids, [""], "an unknown node: an empty id, as in the original");
    assert!(pushed.objects_to_push.is_empty());
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_affect_no_other_request() {
    let link = start(Limits::default()).await;
    // Not HTTP/2 at all.
    let mut socket = tokio::net::TcpStream::connect(link.addresses.fleet).await.unwrap();
    socket.write_all(&[0xff; 4096]).await.unwrap();
    let closed = tokio::time::timeout(Duration::from_secs(10), socket.read_to_end(&mut Vec::new())).await;
    assert!(closed.is_ok(), "the connection is closed");

    // HTTP/2 and gRPC with an invalid protobuf message.
    for path in ["/flwr.proto.Control/StartRun", "/flwr.proto.Control/ListRuns"] {
        let mut client = tonic::client::Grpc::new(super::peer::channel(link.addresses.control).await);
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<StreamLogsResponse, StreamLogsResponse>::default();
        // A string in field 1 where a message or a number is expected.
        let garbage = StreamLogsResponse { log_output: "\u{7f}garbage".into(), latest_timestamp: 1.0 };
        let refused = client.unary(Request::new(garbage), path.parse().unwrap(), codec).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{path} {refused:?}");
    }
    // An unknown call.
    let mut client = tonic::client::Grpc::new(super::peer::channel(link.addresses.fleet).await);
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<Node, Node>::default();
    let refused = client.unary(Request::new(Node::default()), "/flwr.proto.Fleet/No".parse().unwrap(), codec).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);

    link.node().await; // The SuperLink still serves.
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_superlink_on_the_same_state_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let link = TestLink::start_on_disk(config(Limits::default()), directory.path()).await;
    let error = state_on_disk(directory.path()).err().unwrap();
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    link.stop().await;
}

//! Calls of a node over real sockets, over both transports, with a SuperLink that behaves well or not.

#[path = "../calls/authority.rs"]
mod authority;
mod control;
mod security;
mod superlink;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use superlink::{Act, Speaks, SuperLink};
use trellis_client::fleet::{Fleet, FleetError, FleetOptions, PulledObject, Remedy, Transport};
use trellis_client::{NodeKey, Security, Target};
use trellis_core::id::{NodeId, RunId};
use trellis_wire::object::object_id;
use trellis_wire::proto;

const NODE: NodeId = NodeId(u64::MAX - 7);
const RUN: RunId = RunId(9);
const BOTH: [(Speaks, Transport); 2] = [(Speaks::Grpc, Transport::Grpc), (Speaks::Http, Transport::Http)];

fn fleet(port: u16, options: FleetOptions) -> Fleet {
    fleet_at(Target { host: "127.0.0.1".to_owned(), port, security: Security::Plaintext, token: None }, options)
}

fn fleet_at(target: Target, options: FleetOptions) -> Fleet {
    let directory = tempfile::tempdir().expect("a directory");
    let key = NodeKey::generate(&directory.path().join("key"), "test").expect("a key");
    Fleet::new(target, Arc::new(key), options)
}

fn only(transport: Transport) -> FleetOptions {
    FleetOptions { transport: Some(transport), ..FleetOptions::default() }
}

fn alive() -> Act {
    Act::Answer(proto::SendNodeHeartbeatResponse { success: true }.encode_to_vec())
}

async fn beat(fleet: &Fleet) -> Result<bool, FleetError> {
    fleet.send_heartbeat(NODE, 30.0).await
}

#[tokio::test]
async fn a_node_finds_the_transport_and_proves_itself() {
    for (speaks, transport) in BOTH {
        let superlink = SuperLink::start(speaks).await;
        superlink.on("activate-node", [Act::Answer(proto::ActivateNodeResponse { node_id: NODE.0 }.encode_to_vec())]);
        let fleet = fleet(superlink.port, FleetOptions::default());
        assert_eq!(fleet.transport(), None);
        assert_eq!(fleet.activate_node(30.0).await.unwrap(), NODE);
        assert_eq!(fleet.transport(), Some(transport));

        let asked = &superlink.asked()[0];
        let request = proto::ActivateNodeRequest::decode(asked.message.clone()).unwrap();
        assert!(request.public_key.starts_with(b"-----BEGIN PUBLIC KEY-----"), "{request:?}");
        assert_eq!(request.heartbeat_interval, 30.0);
        let (path, kind, headers) = match speaks {
            Speaks::Grpc => {
                assert_eq!(asked.headers["te"], "trailers");
                let names = ["flwr-public-key-bin", "flwr-signature-bin", "flwr-timestamp"];
                ("/flwr.proto.Fleet/ActivateNode", "application/grpc", names)
            }
            Speaks::Http => {
                let names = ["flwr-public-key", "flwr-signature", "flwr-timestamp"];
                ("/v1/fleet/activate-node", "application/protobuf", names)
            }
        };
        assert_eq!((asked.path.as_str(), asked.headers["content-type"].to_str().unwrap()), (path, kind));
        assert!(headers.into_iter().all(|name| asked.headers.contains_key(name)), "{:?}", asked.headers);
        assert_eq!(asked.headers["flwr-package-name"], "flwr");
    }
}

#[tokio::test]
async fn objects_go_and_come_as_they_are() {
    let content = Bytes::from([b"ArrayChunk  3000000\0".to_vec(), vec![7; 3_000_000]].concat());
    let id = object_id(&content);
    for (speaks, transport) in BOTH {
        let superlink = SuperLink::start(speaks).await;
        superlink.on("push-object", [Act::Answer(proto::PushObjectResponse { stored: true }.encode_to_vec())]);
        let pulled = |object_found, object_available, object_content: &Bytes| {
            let object_content = object_content.clone();
            Act::Answer(proto::PullObjectResponse { object_found, object_available, object_content }.encode_to_vec())
        };
        let acts = [
            pulled(true, true, &content),
            pulled(false, false, &Bytes::new()),
            pulled(true, false, &Bytes::new()),
            pulled(true, true, &content.slice(1..)),
        ];
        superlink.on("pull-object", acts);
        let fleet = fleet(superlink.port, only(transport));

        assert!(fleet.push_object(NODE, RUN, id, content.clone(), "session").await.unwrap());
        let request = proto::PushObjectRequest::decode(superlink.asked()[0].message.clone()).unwrap();
        assert_eq!((request.node.unwrap().node_id, request.run_id), (NODE.0, RUN.0));
        assert_eq!((request.object_id, request.session_id.as_str()), (id.to_string(), "session"));
        assert_eq!(request.object_content, content);

        let pull = || fleet.pull_object(NODE, RUN, id);
        assert_eq!(pull().await.unwrap(), PulledObject::Here(content.clone()));
        assert_eq!(pull().await.unwrap(), PulledObject::NotFound);
        assert_eq!(pull().await.unwrap(), PulledObject::NotHere);
        assert!(pull().await.unwrap_err().may_pass(), "a damaged object");
    }
}

#[tokio::test]
async fn a_held_pull_holds_nobody_else() {
    for (speaks, transport) in BOTH {
        let superlink = SuperLink::start(speaks).await;
        superlink.on("pull-messages", [Act::Held(Vec::new())]);
        superlink.on("send-node-heartbeat", [alive()]);
        let fleet = fleet(superlink.port, only(transport));
        let held = tokio::spawn({
            let fleet = fleet.clone();
            async move { fleet.pull_messages(NODE).await }
        });
        superlink.arrived.acquire().await.unwrap().forget();
        for _ in 0..3 {
            assert!(beat(&fleet).await.unwrap());
        }
        let expected = if speaks == Speaks::Grpc { 1 } else { 2 };
        assert_eq!(superlink.connections.load(Ordering::Relaxed), expected, "{speaks:?}");
        superlink.let_go.add_permits(1);
        assert!(held.await.unwrap().unwrap().messages_list.is_empty());
    }
}

#[tokio::test]
async fn what_does_not_work_may_work_later() {
    for (speaks, transport) in BOTH {
        let superlink = SuperLink::start(speaks).await;
        let busy = match speaks {
            Speaks::Grpc => Act::Status(14, "busy"),
            Speaks::Http => Act::Page(503, r#"{"code": 1005, "detail": "busy"}"#),
        };
        superlink.on("send-node-heartbeat", [Act::CutOff, busy, Act::Page(502, "<html>"), alive()]);
        let fleet = fleet(superlink.port, only(transport));
        for _ in 0..3 {
            let error = beat(&fleet).await.unwrap_err();
            assert!(matches!(error, FleetError::Unreachable { .. }), "{speaks:?}: {error:?}");
        }
        assert!(beat(&fleet).await.unwrap());
    }
}

#[tokio::test]
async fn silence_ends_a_call_and_its_connection() {
    for (speaks, transport) in BOTH {
        let superlink = SuperLink::start(speaks).await;
        superlink.on("pull-messages", [Act::Held(Vec::new())]);
        superlink.on("send-node-heartbeat", [alive()]);
        let fleet = fleet(superlink.port, FleetOptions { hold_timeout: Duration::from_millis(50), ..only(transport) });
        let error = fleet.pull_messages(NODE).await.unwrap_err();
        assert!(error.to_string().ends_with("for PullMessages: no answer within 0.05 s"), "{error}");
        assert!(error.may_pass());
        assert!(beat(&fleet).await.unwrap());
        assert_eq!(superlink.connections.load(Ordering::Relaxed), 2);
    }
}

#[tokio::test]
async fn a_superlink_that_came_back_with_another_transport_is_found() {
    for [(before, _), (after, transport)] in [BOTH, [BOTH[1], BOTH[0]]] {
        let (old, life) = SuperLink::start_at(before, 0, None).await;
        old.on("send-node-heartbeat", [alive()]);
        let fleet = fleet(old.port, FleetOptions::default());
        assert!(beat(&fleet).await.unwrap());
        life.abort();
        assert!(life.await.unwrap_err().is_cancelled());
        let error = beat(&fleet).await.unwrap_err();
        assert!(matches!(error, FleetError::Unreachable { .. }), "{error:?}");

        let (new, _life) = SuperLink::start_at(after, old.port, None).await;
        new.on("send-node-heartbeat", [alive()]);
        assert!(beat(&fleet).await.unwrap());
        assert_eq!(fleet.transport(), Some(transport));
    }
}

#[tokio::test]
async fn a_refusal_says_what_the_node_can_do() {
    let superlink = SuperLink::start(Speaks::Grpc).await;
    superlink.on("register-node", [Act::Status(9, "Public key already in use")]);
    superlink.on("activate-node", [Act::Status(9, "No SuperNode found with the given public key.")]);
    superlink.on("get-run", [Act::Status(7, "Run is finished.")]);
    let fleet = fleet(superlink.port, FleetOptions::default());
    assert_eq!(fleet.register_node().await, Ok(None));
    let error = fleet.activate_node(30.0).await.unwrap_err();
    assert!(matches!(error, FleetError::NotKnown { remedy: Remedy::Register, .. }), "{error:?}");
    let error = fleet.get_run(NODE, RUN).await.unwrap_err();
    assert!(matches!(error, FleetError::RunOver { .. }), "{error:?}");
}

#[tokio::test]
async fn the_content_of_objects_is_slowed_down_each_way() {
    const BYTES: usize = 100_000;
    let content = Bytes::from(vec![7; BYTES]);
    let superlink = SuperLink::start(Speaks::Grpc).await;
    let (object_found, object_available, object_content) = (true, true, content.clone());
    let answer = proto::PullObjectResponse { object_found, object_available, object_content };
    superlink.on("pull-object", [Act::Answer(answer.encode_to_vec())]);
    superlink.on("push-object", [Act::Answer(proto::PushObjectResponse { stored: true }.encode_to_vec())]);
    let fleet = fleet(superlink.port, FleetOptions { bandwidth: Some(5 * BYTES as u64), ..FleetOptions::default() });
    let id = object_id(&content);
    // A fifth of a second, less the burst.
    let least = Duration::from_millis(100);
    let began = Instant::now();
    assert!(fleet.push_object(NODE, RUN, id, content.clone(), "").await.unwrap());
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    let began = Instant::now();
    assert_eq!(fleet.pull_object(NODE, RUN, id).await.unwrap(), PulledObject::Here(content));
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
}

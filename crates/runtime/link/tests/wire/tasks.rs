//! A run over HTTP with the calls of ServerApps and SuperExecs of 1.35 and later.

use prost::Message as _;
use trellis_link::config::Limits;
use trellis_wire::proto::*;

use super::http::{Response, header, post};
use super::peer::{TestLink, TestNode, config, fab, instruction, now, timestamp};

fn read<R: prost::Message + Default>(response: &Response) -> R {
    assert_eq!(response.status, 200, "{}", response.text());
    R::decode(response.body.as_slice()).unwrap()
}

async fn start_run(link: &TestLink) -> u64 {
    let request = StartRunRequest { fab: Some(Fab { content: fab(), ..Default::default() }), ..Default::default() };
    let announced = [header("flwr-package-version", "1.42.0")];
    let started: StartRunResponse =
        read(&post(link.addresses.http, "/v1/control/start-run", &announced, &request).await);
    assert_eq!((started.federation.as_str(), started.series_id), ("@none/default", started.run_id));
    started.run_id.unwrap()
}

async fn acquire(link: &TestLink) -> AcquireTaskResponse {
    let request = AcquireTaskRequest { supported_task_types: vec!["flwr-serverapp".into()], ..Default::default() };
    read(&post(link.addresses.http, "/v1/runtime/acquire-task", &[], &request).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_from_its_start_to_its_end() {
    let limits = Limits { hold_launch_poll: std::time::Duration::from_millis(50), ..Limits::default() };
    let link = TestLink::start(config(limits)).await;
    let http = link.addresses.http;
    let node = TestNode::join(link.addresses.fleet).await;
    assert_eq!(acquire(&link).await, AcquireTaskResponse::default(), "no pending run");
    let run = start_run(&link).await;

    let other = AcquireTaskRequest { supported_task_types: vec!["flwr-agentapp".into()], ..Default::default() };
    let other: AcquireTaskResponse = read(&post(http, "/v1/runtime/acquire-task", &[], &other).await);
    assert_eq!(other.task, None, "another type");
    let AcquireTaskResponse { task, token } = acquire(&link).await;
    assert_eq!(task.map(|task| (task.task_id, task.run_id, task.r#type)), Some((run, run, "flwr-serverapp".into())));
    assert_eq!(acquire(&link).await.token, "", "a run is claimed once");

    let token = [header("flwr-task-token", &token)];
    let beat: SendTaskHeartbeatResponse =
        read(&post(http, "/v1/runtime/send-task-heartbeat", &token, &SendTaskHeartbeatRequest {}).await);
    assert!(beat.success, "before the inputs are pulled");
    let input: PullTaskInputResponse =
        read(&post(http, "/v1/runtime/pull-task-input", &token, &PullTaskInputRequest {}).await);
    assert_eq!((input.task_id, input.context.unwrap().node_id), (run, 1));
    let nodes: GetNodesResponse = read(&post(http, "/v1/runtime/get-nodes", &token, &GetTaskNodesRequest {}).await);
    assert_eq!(nodes.nodes, [Node { node_id: node.id }]);

    let (mut message, tree, objects) = instruction(run, node.id, now(), 60.0);
    message.metadata.as_mut().unwrap().src_task_id = Some(run);
    let push = PushTaskMessagesRequest { messages_list: vec![message], message_object_trees: vec![tree] };
    let pushed: PushAppMessagesResponse = read(&post(http, "/v1/runtime/push-messages", &token, &push).await);
    assert_eq!((pushed.objects_to_push.len(), pushed.session_id.is_empty()), (2, false));
    for (id, content) in objects {
        // The run in the message is ignored: the token determines it.
        let push = PushObjectRequest {
            node: Some(Node { node_id: 1 }),
            run_id: 7,
            object_id: id,
            object_content: content,
            session_id: pushed.session_id.clone(),
        };
        let stored: PushObjectResponse = read(&post(http, "/v1/runtime/push-object", &token, &push).await);
        assert!(stored.stored);
    }
    let pull = PullMessagesRequest { node: node.reference(), ..Default::default() };
    let pulled: PullMessagesResponse =
        read(&post(http, "/v1/fleet/pull-messages", &node.signature(&timestamp(0)), &pull).await);
    let metadata = pulled.messages_list[0].metadata.clone().unwrap();
    assert_eq!((metadata.message_id, metadata.src_task_id), (pushed.message_ids[0].clone(), Some(run)));
    let object = PullObjectRequest { node: node.reference(), run_id: run, object_id: pushed.message_ids[0].clone() };
    let object = post(http, "/v1/fleet/pull-object", &node.signature(&timestamp(0)), &object).await;
    assert_eq!(object.header("content-length").map(|length| length.parse()), Some(Ok(object.body.len())));
    assert!(read::<PullObjectResponse>(&object).object_available);

    let logs = PushLogsRequest { logs: vec!["one\n".into(), "two\n".into()], ..Default::default() };
    read::<PushLogsResponse>(&post(http, "/v1/runtime/push-logs", &token, &logs).await);
    let output = PushTaskOutputRequest {
        context: Some(Context::default()),
        sub_status: "completed".into(),
        ..Default::default()
    };
    read::<PushTaskOutputResponse>(&post(http, "/v1/runtime/push-task-output", &token, &output).await);
    let runs: ListRunsResponse = read(&post(http, "/v1/control/list-runs", &[], &ListRunsRequest::default()).await);
    assert_eq!(runs.run_dict[&run].status.as_ref().unwrap().sub_status, "completed");
    let late = post(http, "/v1/runtime/get-nodes", &token, &GetTaskNodesRequest {}).await;
    assert_eq!((late.status, late.code()), (401, Some(1008)), "the token was deleted with the run");

    let log =
        post(http, "/v1/control/stream-logs", &[], &StreamLogsRequest { run_id: run, after_timestamp: 0.0 }).await;
    assert_eq!(log.header("content-type"), Some("application/flower-protobuf-stream"));
    let length = u32::from_be_bytes(log.body[..4].try_into().unwrap()) as usize;
    let frame = StreamLogsResponse::decode(&log.body[4..4 + length]).unwrap();
    assert_eq!((frame.log_output.as_str(), log.body.len()), ("one\ntwo\n", 4 + length));
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_carry_flowers_numbers() {
    let link = TestLink::start(config(Limits::default())).await;
    let http = link.addresses.http;
    let stop = post(http, "/v1/control/stop-run", &[], &StopRunRequest { run_id: 5 }).await;
    assert_eq!((stop.status, stop.code()), (404, Some(16)));
    let log = post(http, "/v1/control/stream-logs", &[], &StreamLogsRequest { run_id: 5, ..Default::default() }).await;
    assert_eq!((log.status, log.code()), (404, Some(16)), "before the stream starts");
    let node = TestNode::join(link.addresses.fleet).await;
    let run = GetRunRequest { node: node.reference(), run_id: 5 };
    let run = post(http, "/v1/fleet/get-run", &node.signature(&timestamp(0)), &run).await;
    assert_eq!((run.status, run.code()), (403, Some(2008)), "nodes drop a run without an error on 403");
    link.stop().await;
}

/// 1.30 to 1.39 list and claim in two calls; 1.30 to 1.34 over gRPC.
#[tokio::test(flavor = "multi_thread")]
async fn older_superexecs_list_and_claim() {
    let link = TestLink::start(config(Limits::default())).await;
    let run = start_run(&link).await;
    let tasks: PullPendingTasksResponse =
        read(&post(link.addresses.http, "/v1/runtime/pull-pending-tasks", &[], &PullPendingTasksRequest {}).await);
    assert_eq!(tasks.tasks.iter().map(|task| task.task_id).collect::<Vec<_>>(), [run]);
    let mut grpc = runtime_client::RuntimeClient::new(super::peer::channel(link.addresses.serverappio).await);
    let claimed = grpc.claim_task(ClaimTaskRequest { task_id: run }).await.unwrap().into_inner();
    assert!(claimed.token.is_some());
    let again: ClaimTaskResponse =
        read(&post(link.addresses.http, "/v1/runtime/claim-task", &[], &ClaimTaskRequest { task_id: run }).await);
    assert_eq!(again.token, None);
    link.stop().await;
}

//! Calls that must be refused.

use prost::Message as _;
use tonic::Code;
use tonic::transport::Channel;
use trellis_node::app::Outcome;
use trellis_node::official::Launch;
use trellis_node::official::calls::{ALL, Access, Transport};
use trellis_wire::error_reply::ErrorCode;
use trellis_wire::proto::client_app_io_client::ClientAppIoClient;
use trellis_wire::proto::*;

use crate::http::{call, send};
use crate::scene::{Letter, RUN, Scene, reference};

/// Plays a SuperExec over HTTP: returns the token of the only job.
async fn acquire(scene: &Scene) -> String {
    let acquire = AcquireTaskRequest { supported_task_types: vec!["flwr-clientapp".to_owned()], ..Default::default() };
    let acquired: AcquireTaskResponse = call(scene.apps.address(), "acquire-task", "", &acquire).await;
    acquired.token
}

#[tokio::test]
async fn an_invalid_token_is_refused_everywhere() {
    let scene = Scene::new(Launch::BySuperExec).await;
    let outsider = async {
        acquire(&scene).await;
        for rpc in ALL.iter().filter(|rpc| rpc.access == Access::App) {
            for path in rpc.paths(Transport::Http) {
                let path = path.strip_prefix("/v1/runtime/").unwrap();
                for token in [Some("0".repeat(256)), None] {
                    let (status, body) = send(scene.apps.address(), path, token.as_deref(), b"").await;
                    let said = String::from_utf8_lossy(&body);
                    assert!(status == 401 && said.contains(r#""code":1008"#), "{path}: {status} {said}");
                }
            }
        }
        let mut app = scene.grpc().await;
        let token = "0".repeat(256);
        let denied = app.pull_client_app_inputs(PullAppInputsRequest { token: token.clone() }).await;
        assert_eq!(denied.unwrap_err().code(), Code::PermissionDenied);
        let denied = app.pull_message(PullAppMessagesRequest { token: token.clone(), ..Default::default() }).await;
        assert_eq!(denied.unwrap_err().code(), Code::PermissionDenied);
        let alive = app.send_app_heartbeat(SendAppHeartbeatRequest { token }).await;
        assert!(!alive.unwrap().into_inner().success);
        nameless_calls(&scene, &mut app).await;
    };
    tokio::select! {
        outcome = scene.apps.execute(scene.job()) => panic!("{outcome:?}"),
        () = outsider => {}
    }
}

/// Calls for objects without a token are only for apps that received their inputs in the dialect without one.
async fn nameless_calls(scene: &Scene, app: &mut ClientAppIoClient<Channel>) {
    let id = Letter::new(scene.job().instruction.metadata.unwrap(), b"instruction").ids().remove(0);
    assert!(scene.objects.has(id.parse().unwrap()));
    let pull = PullObjectRequest { node: reference(), run_id: RUN, object_id: id.clone() };
    assert!(!app.pull_object(pull).await.unwrap().into_inner().object_found);
    let confirm = ConfirmMessageReceivedRequest { node: reference(), run_id: RUN, message_object_id: id };
    assert_eq!(app.confirm_message_received(confirm).await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn without_the_secret_no_job_is_given_out() {
    let scene = Scene::with_secret(Launch::BySuperExec, Some("s3cret")).await;
    for rpc in ALL.iter().filter(|rpc| rpc.access == Access::Launcher) {
        for path in rpc.paths(Transport::Http) {
            let path = path.strip_prefix("/v1/runtime/").unwrap();
            assert_eq!(send(scene.apps.address(), path, None, b"").await.0, 401, "{path}");
        }
    }
    let mut superexec = scene.grpc().await;
    let listed = superexec.list_apps_to_launch(ListAppsToLaunchRequest {}).await;
    assert_eq!(listed.unwrap_err().code(), Code::Unauthenticated);
    let given = superexec.request_token(RequestTokenRequest { run_id: RUN }).await;
    assert_eq!(given.unwrap_err().code(), Code::Unauthenticated);
    let refused = superexec.get_run(GetRunRequest { node: None, run_id: RUN }).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn an_app_has_access_to_its_own_objects_only() {
    let scene = Scene::new(Launch::BySuperExec).await;
    let at = scene.apps.address();
    let job = scene.job();
    let asked = job.instruction.clone();
    let stranger = Letter::new(Metadata { run_id: 7, ..Default::default() }, b"of another run");
    let (id, bytes) = stranger.objects[2].clone();
    scene.objects.put(id, &bytes).unwrap();
    let play = async {
        let token = acquire(&scene).await;
        let pull = PullObjectRequest { node: reference(), run_id: RUN, object_id: id.to_string() };
        let pulled: PullObjectResponse = call(at, "pull-object", &token, &pull).await;
        assert!(!pulled.object_found);

        let reply = Letter::reply(&asked);
        let push = async |id: &str, content: &[u8]| {
            let push = PushObjectRequest {
                object_id: id.to_owned(),
                object_content: content.to_vec().into(),
                ..Default::default()
            };
            let pushed: PushObjectResponse = call(at, "push-object", &token, &push).await;
            pushed.stored
        };
        let (first, content) = &reply.objects[0];
        assert!(!push(&first.to_string(), content).await, "not announced yet");
        let announce = PushTaskMessagesRequest {
            messages_list: vec![reply.message.clone()],
            message_object_trees: vec![reply.tree.clone()],
        };
        let _: PushAppMessagesResponse = call(at, "push-messages", &token, &announce).await;
        assert!(!push(&first.to_string(), b"something else").await, "another hash");
        assert!(push(&first.to_string(), content).await);
        assert!(push(&first.to_string(), content).await, "pushed again");

        let wrong = PushTaskMessagesRequest { messages_list: vec![stranger.message], ..announce };
        let (status, _) = send(at, "push-messages", Some(&token), &wrong.encode_to_vec()).await;
        assert_eq!(status, 400, "a reply to something else");
        let _: PushTaskOutputResponse = call(at, "push-task-output", &token, &PushTaskOutputRequest::default()).await;
    };
    let (outcome, ()) = tokio::join!(scene.apps.execute(job), play);
    let Outcome::Failed { code, reason } = outcome else { panic!("{outcome:?}") };
    assert_eq!(code, ErrorCode::ClientAppCrashed);
    assert_eq!(reason, "The reply is incomplete: 2 of its objects were not sent.");
}

/// A damaged object of the instruction is not a failure of the app: the instruction is executed again with a new copy.
#[tokio::test]
async fn a_damaged_object_postpones_the_instruction() {
    let scene = Scene::new(Launch::BySuperExec).await;
    let job = scene.job();
    let id: trellis_core::id::ObjectId = job.tree.children[0].object_id.parse().unwrap();
    scene.objects.put(id, b"damaged").unwrap();
    let play = async {
        let token = acquire(&scene).await;
        let pull = PullObjectRequest { object_id: id.to_string(), ..Default::default() };
        let pulled: PullObjectResponse = call(scene.apps.address(), "pull-object", &token, &pull).await;
        assert!(!pulled.object_found);
    };
    let (outcome, ()) = tokio::join!(scene.apps.execute(job), play);
    assert!(matches!(outcome, Outcome::Postponed { reason } if reason.contains(&id.to_string())));
}

#[tokio::test]
async fn a_stopping_node_postpones_active_instructions() {
    let scene = Scene::new(Launch::BySuperExec).await;
    let stop = async {
        acquire(&scene).await;
        scene.shutdown.cancel();
    };
    let (outcome, ()) = tokio::join!(scene.apps.execute(scene.job()), stop);
    assert!(matches!(outcome, Outcome::Postponed { .. }), "{outcome:?}");
}

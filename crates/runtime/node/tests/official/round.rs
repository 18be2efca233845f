//! The calls of an app from its launch to its reply, in the order of official apps.

use trellis_node::app::Outcome;
use trellis_node::official::Launch;
use trellis_wire::proto::*;

use crate::http::call;
use crate::scene::{BUNDLE, Letter, RUN, Scene, changed, reference};

fn replied(outcome: Outcome) -> trellis_node::app::Reply {
    match outcome {
        Outcome::Replied(reply) => *reply,
        other => panic!("no reply: {other:?}"),
    }
}

#[tokio::test]
async fn an_app_of_the_first_dialect() {
    let scene = Scene::new(Launch::BySuperExec).await;
    let job = scene.job();
    let (asked, tree) = (job.instruction.clone(), job.tree.clone());
    let mut app = scene.grpc().await;
    let play = async {
        let listed = app.list_apps_to_launch(ListAppsToLaunchRequest {}).await.unwrap().into_inner();
        assert_eq!(listed.run_ids, [RUN]);
        let run = app.get_run(GetRunRequest { node: None, run_id: RUN }).await.unwrap().into_inner().run.unwrap();
        assert_eq!(run.fab_id, "me/app");
        let token = app.request_token(RequestTokenRequest { run_id: RUN }).await.unwrap().into_inner().token;
        let nothing = app.request_token(RequestTokenRequest { run_id: RUN }).await.unwrap().into_inner().token;
        assert_eq!((token.len(), nothing.as_str()), (256, ""), "one app for one instruction");

        let alive = app.send_app_heartbeat(SendAppHeartbeatRequest { token: token.clone() }).await.unwrap();
        assert!(alive.into_inner().success);
        let inputs = PullAppInputsRequest { token: token.clone() };
        let inputs = app.pull_client_app_inputs(inputs).await.unwrap().into_inner();
        assert_eq!(inputs.fab.unwrap().content, BUNDLE);
        let context = inputs.context.unwrap();

        let pull = PullAppMessagesRequest { token: token.clone(), ..Default::default() };
        let pulled = app.pull_message(pull).await.unwrap().into_inner();
        assert_eq!((&pulled.messages_list[0], &pulled.message_object_trees[0]), (&asked, &tree));
        for id in Letter::new(asked.metadata.clone().unwrap(), b"instruction").ids() {
            let pull = PullObjectRequest { node: reference(), run_id: RUN, object_id: id };
            assert!(app.pull_object(pull).await.unwrap().into_inner().object_available);
        }
        let confirm =
            ConfirmMessageReceivedRequest { node: reference(), run_id: RUN, message_object_id: String::new() };
        app.confirm_message_received(confirm).await.unwrap();

        let reply = Letter::reply(&asked);
        let push = PushAppMessagesRequest {
            token: token.clone(),
            messages_list: vec![reply.message.clone()],
            run_id: RUN,
            message_object_trees: vec![reply.tree.clone()],
        };
        let mut missing = app.push_message(push).await.unwrap().into_inner().objects_to_push;
        missing.sort();
        let mut ids = reply.ids();
        ids.sort();
        assert_eq!(missing, ids);
        for (id, bytes) in &reply.objects {
            let push = PushObjectRequest {
                node: reference(),
                run_id: RUN,
                object_id: id.to_string(),
                object_content: bytes.clone(),
                ..Default::default()
            };
            assert!(app.push_object(push).await.unwrap().into_inner().stored);
        }
        let outputs =
            PushAppOutputsRequest { token: token.clone(), context: Some(changed(&context)), ..Default::default() };
        app.push_client_app_outputs(outputs).await.unwrap();
        (reply, context, token)
    };
    let (outcome, (reply, context, token)) = tokio::join!(scene.apps.execute(job), play);
    let got = replied(outcome);
    assert_eq!((got.message, got.tree, got.context), (reply.message, reply.tree, changed(&context)));
    assert!(reply.objects.iter().all(|(id, bytes)| scene.objects.read(*id).unwrap().unwrap() == *bytes));
    let alive = scene.grpc().await.send_app_heartbeat(SendAppHeartbeatRequest { token }).await.unwrap();
    assert!(!alive.into_inner().success, "the token is invalid after the instruction");
}

#[tokio::test]
async fn an_app_of_the_second_dialect_over_http() {
    let scene = Scene::new(Launch::BySuperExec).await;
    let job = scene.job();
    let (asked, tree, at) = (job.instruction.clone(), job.tree.clone(), scene.apps.address());
    let play = async {
        let nothing =
            AcquireTaskRequest { supported_task_types: vec!["flwr-serverapp".to_owned()], ..Default::default() };
        let nothing: AcquireTaskResponse = call(at, "acquire-task", "", &nothing).await;
        assert_eq!(nothing, AcquireTaskResponse::default());
        let acquire =
            AcquireTaskRequest { supported_task_types: vec!["flwr-clientapp".to_owned()], ..Default::default() };
        let AcquireTaskResponse { task, token } = call(at, "acquire-task", "", &acquire).await;
        let task = task.unwrap();
        assert_eq!((task.run_id, task.r#type.as_str()), (RUN, "flwr-clientapp"));

        let alive: SendTaskHeartbeatResponse =
            call(at, "send-task-heartbeat", &token, &SendTaskHeartbeatRequest {}).await;
        assert!(alive.success);
        let input: PullTaskInputResponse = call(at, "pull-task-input", &token, &PullTaskInputRequest {}).await;
        assert_eq!((input.task_id, input.fab.unwrap().content.as_ref()), (task.task_id, BUNDLE));
        let pulled: PullAppMessagesResponse =
            call(at, "pull-messages", &token, &PullTaskMessagesRequest::default()).await;
        assert_eq!((&pulled.messages_list[0], &pulled.message_object_trees[0]), (&asked, &tree));
        for id in Letter::new(asked.metadata.clone().unwrap(), b"instruction").ids() {
            let pull = PullObjectRequest { node: reference(), run_id: RUN, object_id: id };
            let object: PullObjectResponse = call(at, "pull-object", &token, &pull).await;
            assert!(object.object_available);
        }
        let reply = Letter::reply(&asked);
        let push = PushTaskMessagesRequest {
            messages_list: vec![reply.message.clone()],
            message_object_trees: vec![reply.tree.clone()],
        };
        let pushed: PushAppMessagesResponse = call(at, "push-messages", &token, &push).await;
        assert_eq!((pushed.objects_to_push.len(), pushed.session_id.is_empty()), (3, false));
        for (id, bytes) in &reply.objects {
            let push = PushObjectRequest {
                node: reference(),
                run_id: RUN,
                object_id: id.to_string(),
                object_content: bytes.clone(),
                session_id: pushed.session_id.clone(),
            };
            let stored: PushObjectResponse = call(at, "push-object", &token, &push).await;
            assert!(stored.stored);
        }
        let context = changed(&input.context.unwrap());
        let output = PushTaskOutputRequest {
            context: Some(context.clone()),
            sub_status: "completed".to_owned(),
            ..Default::default()
        };
        let _: PushTaskOutputResponse = call(at, "push-task-output", &token, &output).await;
        (reply, context)
    };
    let (outcome, (reply, context)) = tokio::join!(scene.apps.execute(job), play);
    let got = replied(outcome);
    assert_eq!((got.message, got.tree, got.context), (reply.message, reply.tree, context));
}

/// From 1.30 to 1.38 a SuperExec lists tasks and claims one.
#[tokio::test]
async fn a_superexec_lists_and_claims_tasks() {
    let scene = Scene::new(Launch::BySuperExec).await;
    let mut superexec = scene.grpc().await;
    let play = async {
        let tasks = superexec.pull_pending_tasks(PullPendingTasksRequest {}).await.unwrap().into_inner().tasks;
        let claim = ClaimTaskRequest { task_id: tasks[0].task_id };
        let token = superexec.claim_task(claim).await.unwrap().into_inner().token.expect("it is free");
        assert_eq!(superexec.claim_task(claim).await.unwrap().into_inner().token, None);
        let failed = PushTaskOutputRequest { details: "no module".to_owned(), ..Default::default() };
        let _: PushTaskOutputResponse = call(scene.apps.address(), "push-task-output", &token, &failed).await;
    };
    let (outcome, ()) = tokio::join!(scene.apps.execute(scene.job()), play);
    assert!(matches!(outcome, Outcome::Failed { reason, .. } if reason.contains("no module")));
}

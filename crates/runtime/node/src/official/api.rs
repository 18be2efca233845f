//! The calls of apps and of whoever starts them, in both dialects: up to 1.29 a message brings the token (ClientAppIo), from
//! 1.30 a header does, and a job is a task (ClientAppIo to 1.33, Runtime from 1.34, HTTP from 1.35).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use trellis_core::id::ObjectId;
use trellis_core::refusal::{Kind, Refusal};
use trellis_front::{Answer, MessageReader, Transport};
use trellis_wire::object::object_id;
use trellis_wire::proto::*;

use super::assignment::{Delivery, objects_of};
use super::board::Board;
use super::caller::Caller;
use crate::app::{InstalledApp, Job};

/// What a job is called as a task.
const CLIENT_APP: &str = "flwr-clientapp";
/// How long a question for jobs is held open. SuperExecs over gRPC wait for ever, over HTTP 30 s.
const HOLD: Duration = Duration::from_secs(20);

// ---- those who start apps ----

/// Held until a job waits to be taken, or the hold is over.
pub async fn list_apps_to_launch(board: &Board, _: ListAppsToLaunchRequest) -> ListAppsToLaunchResponse {
    let mut run_ids: Vec<u64> = board.waiting(HOLD).await.iter().map(|(_, job)| job.metadata().run_id).collect();
    run_ids.dedup();
    ListAppsToLaunchResponse { run_ids }
}

/// An empty token: somebody else has the job.
pub async fn request_token(board: &Board, request: RequestTokenRequest) -> RequestTokenResponse {
    RequestTokenResponse { token: board.take_run(request.run_id).unwrap_or_default() }
}

pub async fn get_run(board: &Board, request: GetRunRequest) -> GetRunResponse {
    GetRunResponse { run: board.job(request.run_id).map(|job| job.run.clone()) }
}

/// Held as [`list_apps_to_launch`]; the same jobs, as tasks.
pub async fn pull_pending_tasks(board: &Board, _: PullPendingTasksRequest) -> PullPendingTasksResponse {
    PullPendingTasksResponse {
        tasks: board.waiting(HOLD).await.iter().map(|(task, job)| as_task(*task, job)).collect(),
    }
}

pub async fn claim_task(board: &Board, request: ClaimTaskRequest) -> ClaimTaskResponse {
    ClaimTaskResponse { token: board.take(request.task_id) }
}

/// Finds and takes in one step.
pub async fn acquire_task(board: &Board, request: AcquireTaskRequest) -> AcquireTaskResponse {
    if request.supported_task_types.iter().any(|supported| supported == CLIENT_APP) {
        for (task, job) in board.waiting(HOLD).await {
            if let Some(token) = board.take(task) {
                return AcquireTaskResponse { task: Some(as_task(task, &job)), token };
            }
        }
    }
    AcquireTaskResponse::default()
}

fn as_task(task_id: u64, job: &Job) -> Task {
    Task {
        task_id,
        r#type: CLIENT_APP.to_owned(),
        run_id: job.metadata().run_id,
        status: Some(TaskStatus { status: "pending".to_owned(), ..Default::default() }),
        fab_hash: job.app.as_ref().map(|app| app.hash.clone()),
        ..Default::default()
    }
}

// ---- apps ----

pub async fn pull_app_inputs(caller: Caller, mut body: MessageReader) -> Result<Answer, Refusal> {
    let request: PullAppInputsRequest = body.message().await?;
    let task = caller.task(&request.token)?;
    let is_named = caller.task_by_header()?.is_none();
    let (job, fab) = begin(&caller, task, is_named).await?;
    Ok(Answer::message(&PullAppInputsResponse {
        context: Some(job.context.clone()),
        run: Some(job.run.clone()),
        fab: Some(fab),
    }))
}

pub async fn pull_task_input(caller: Caller, mut body: MessageReader) -> Result<Answer, Refusal> {
    body.message::<PullTaskInputRequest>().await?;
    let task = caller.task("")?;
    let (job, fab) = begin(&caller, task, false).await?;
    Ok(Answer::message(&PullTaskInputResponse {
        context: Some(job.context.clone()),
        run: Some(job.run.clone()),
        fab: Some(fab),
        task_id: task,
    }))
}

async fn begin(caller: &Caller, task: u64, is_named: bool) -> Result<(Arc<Job>, Fab), Refusal> {
    let job = caller.with(task, |assignment, now| {
        assignment.begin(is_named, now);
        Arc::clone(&assignment.job)
    })?;
    // Over gRPC an app works over one connection, so the end of that says something. HTTP clients close what they do not use.
    if caller.transport == Transport::Grpc {
        let (server, closed) = (Arc::clone(&caller.server), caller.line.closed());
        tokio::spawn(async move {
            closed.await;
            server.board.with(task, |assignment, now| assignment.hang_up(now));
        });
    }
    let app = job.app.clone().ok_or_else(|| Refusal::new(Kind::NotFound, "this run has no app to be unpacked"))?;
    match bundle(app).await {
        Ok(fab) => Ok((job, fab)),
        Err(what) => {
            let text = what.clone();
            caller.with(task, |assignment, _| assignment.deliver(Delivery::Damaged { what }))?;
            Err(Refusal::new(Kind::NotFound, text))
        }
    }
}

/// The bundle of an app as its process wants it, or what is wrong with it.
async fn bundle(app: InstalledApp) -> Result<Fab, String> {
    let read = tokio::task::spawn_blocking(move || {
        let content = std::fs::read(&app.bundle)
            .map(Bytes::from)
            .map_err(|error| format!("the bundle {} cannot be read: {error}", app.bundle.display()))?;
        if object_id(&content).to_string() != app.hash {
            return Err(format!("the bundle {} is damaged", app.bundle.display()));
        }
        Ok(Fab { hash_str: app.hash, content, ..Default::default() })
    });
    read.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// A token that is not good is told so without an error, as apps of this dialect expect it.
pub async fn send_app_heartbeat(caller: Caller, mut body: MessageReader) -> Result<Answer, Refusal> {
    let request: SendAppHeartbeatRequest = body.message().await?;
    let success = caller.task(&request.token).and_then(|task| heartbeat(&caller, task)).is_ok();
    Ok(Answer::message(&SendAppHeartbeatResponse { success }))
}

pub async fn send_task_heartbeat(caller: Caller, mut body: MessageReader) -> Result<Answer, Refusal> {
    body.message::<SendTaskHeartbeatRequest>().await?;
    heartbeat(&caller, caller.task("")?)?;
    Ok(Answer::message(&SendTaskHeartbeatResponse { success: true }))
}

fn heartbeat(caller: &Caller, task: u64) -> Result<(), Refusal> {
    caller.with(task, |assignment, now| assignment.heartbeat(now))
}

/// The one message there is.
pub async fn pull_messages(caller: Caller, mut body: MessageReader) -> Result<Answer, Refusal> {
    let request: PullAppMessagesRequest = body.message().await?;
    let task = caller.task(&request.token)?;
    let (message, tree) = caller.with(task, |assignment, now| assignment.message(now))?;
    Ok(Answer::message(&PullAppMessagesResponse { messages_list: vec![message], message_object_trees: vec![tree] }))
}

/// What the app confirms stays until its job is done: then it is tidied up, whatever was confirmed.
pub async fn confirm_message_received(caller: Caller, mut body: MessageReader) -> Result<Answer, Refusal> {
    let request: ConfirmMessageReceivedRequest = body.message().await?;
    if caller.tasks(request.run_id)?.is_empty() {
        return Err(Refusal::new(Kind::Denied, "no app of this run is at work"));
    }
    Ok(Answer::message(&ConfirmMessageReceivedResponse {}))
}

pub async fn push_messages(caller: Caller, mut body: MessageReader) -> Result<Answer, Refusal> {
    // Field 3 is the run's number in one dialect and the first tree in the other.
    let (token, mut messages, mut trees) = if caller.is_task() {
        let request: PushTaskMessagesRequest = body.message().await?;
        (String::new(), request.messages_list, request.message_object_trees)
    } else {
        let request: PushAppMessagesRequest = body.message().await?;
        (request.token, request.messages_list, request.message_object_trees)
    };
    let task = caller.task(&token)?;
    let (Some(message), Some(tree), true, true) = (messages.pop(), trees.pop(), messages.is_empty(), trees.is_empty())
    else {
        return Err(Refusal::new(Kind::Invalid, "one message and its object tree are expected"));
    };
    let missing = missing(&caller, &tree).await?;
    let message_id = message.metadata.as_ref().map(|metadata| metadata.message_id.clone()).unwrap_or_default();
    let objects_to_push = missing.iter().map(ToString::to_string).collect();
    caller.with(task, |assignment, now| assignment.announce(message, tree, missing, now))??;
    // From 1.33 objects are pushed in a session that the announcement opened. Here that is only a name.
    let session_id = message_id.chars().take(32).collect();
    Ok(Answer::message(&PushAppMessagesResponse { message_ids: vec![message_id], objects_to_push, session_id }))
}

/// The objects of a tree that are not here.
async fn missing(caller: &Caller, tree: &ObjectTree) -> Result<HashSet<ObjectId>, Refusal> {
    let (wanted, objects) = (objects_of(tree), caller.server.objects.clone());
    let look = tokio::task::spawn_blocking(move || wanted.into_iter().filter(|id| !objects.has(*id)).collect());
    look.await.map_err(|error| Refusal::transient("The SuperNode cannot look at its objects right now.", error))
}

pub async fn push_app_outputs(caller: Caller, mut body: MessageReader) -> Result<Answer, Refusal> {
    let request: PushAppOutputsRequest = body.message().await?;
    let task = caller.task(&request.token)?;
    caller.with(task, |assignment, now| assignment.finish(request.context, "", now))?;
    Ok(Answer::message(&PushAppOutputsResponse {}))
}

/// The context and the outcome in one. An app that failed has sent a reply that says so, if it could.
pub async fn push_task_output(caller: Caller, mut body: MessageReader) -> Result<Answer, Refusal> {
    let request: PushTaskOutputRequest = body.message().await?;
    let task = caller.task("")?;
    caller.with(task, |assignment, now| assignment.finish(request.context, &request.details, now))?;
    Ok(Answer::message(&PushTaskOutputResponse {}))
}

pub async fn push_logs(caller: Caller, mut body: MessageReader) -> Result<Answer, Refusal> {
    let request: PushLogsRequest = body.message().await?;
    let run = caller.with(caller.task("")?, |assignment, _| assignment.run())?;
    for line in request.logs.concat().lines() {
        tracing::info!(run, "{line}");
    }
    Ok(Answer::message(&PushLogsResponse {}))
}

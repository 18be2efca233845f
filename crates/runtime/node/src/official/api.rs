//! The calls of apps and of SuperExecs in both dialects: up to 1.29 the token is in the message (ClientAppIo), from 1.30 in a
//! header, and a job is a task (ClientAppIo to 1.33, Runtime from 1.34, HTTP from 1.35).

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
use super::caller::Caller;
use super::job_queue::JobQueue;
use crate::app::{InstalledApp, Job};

/// The type of a job as a task.
const CLIENT_APP: &str = "flwr-clientapp";
/// The maximum duration of a long poll for jobs. SuperExecs wait forever over gRPC, and 30 s over HTTP.
const HOLD: Duration = Duration::from_secs(20);

// ---- calls of SuperExecs ----

/// A long poll: answers when a job is available, or with an empty list.
pub async fn list_apps_to_launch(queue: &JobQueue, _: ListAppsToLaunchRequest) -> ListAppsToLaunchResponse {
    let mut run_ids: Vec<u64> = queue.waiting(HOLD).await.iter().map(|(_, job)| job.metadata().run_id).collect();
    run_ids.dedup();
    ListAppsToLaunchResponse { run_ids }
}

/// An empty token: the job was taken.
pub async fn request_token(queue: &JobQueue, request: RequestTokenRequest) -> RequestTokenResponse {
    RequestTokenResponse { token: queue.take_run(request.run_id).unwrap_or_default() }
}

pub async fn get_run(queue: &JobQueue, request: GetRunRequest) -> GetRunResponse {
    GetRunResponse { run: queue.job(request.run_id).map(|job| job.run.clone()) }
}

/// Like [`list_apps_to_launch`], with jobs as tasks.
pub async fn pull_pending_tasks(queue: &JobQueue, _: PullPendingTasksRequest) -> PullPendingTasksResponse {
    PullPendingTasksResponse {
        tasks: queue.waiting(HOLD).await.iter().map(|(task, job)| as_task(*task, job)).collect(),
    }
}

pub async fn claim_task(queue: &JobQueue, request: ClaimTaskRequest) -> ClaimTaskResponse {
    ClaimTaskResponse { token: queue.take(request.task_id) }
}

/// Finds and takes a job in one call.
pub async fn acquire_task(queue: &JobQueue, request: AcquireTaskRequest) -> AcquireTaskResponse {
    if request.supported_task_types.iter().any(|supported| supported == CLIENT_APP) {
        for (task, job) in queue.waiting(HOLD).await {
            if let Some(token) = queue.take(task) {
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

// ---- calls of apps ----

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
    // A gRPC app uses one connection, so its end is significant. HTTP clients close idle connections.
    if caller.transport == Transport::Grpc {
        let (server, closed) = (Arc::clone(&caller.server), caller.connection.closed());
        tokio::spawn(async move {
            closed.await;
            server.queue.with(task, |assignment, now| assignment.hang_up(now));
        });
    }
    let app = job.app.clone().ok_or_else(|| Refusal::new(Kind::NotFound, "this run has no app to unpack"))?;
    match bundle(app).await {
        Ok(fab) => Ok((job, fab)),
        Err(what) => {
            let text = what.clone();
            caller.with(task, |assignment, _| assignment.deliver(Delivery::Damaged { what }))?;
            Err(Refusal::new(Kind::NotFound, text))
        }
    }
}

/// The bundle of an app as its process expects it, or an error.
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

/// An invalid token is reported in the response, not as an error, as apps of this dialect expect it.
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

/// Returns the only message of the job.
pub async fn pull_messages(caller: Caller, mut body: MessageReader) -> Result<Answer, Refusal> {
    let request: PullAppMessagesRequest = body.message().await?;
    let task = caller.task(&request.token)?;
    let (message, tree) = caller.with(task, |assignment, now| assignment.message(now))?;
    Ok(Answer::message(&PullAppMessagesResponse { messages_list: vec![message], message_object_trees: vec![tree] }))
}

/// Confirmed objects remain until the job is done, which removes all.
pub async fn confirm_message_received(caller: Caller, mut body: MessageReader) -> Result<Answer, Refusal> {
    let request: ConfirmMessageReceivedRequest = body.message().await?;
    if caller.tasks(request.run_id)?.is_empty() {
        return Err(Refusal::new(Kind::Denied, "no app of this run is active"));
    }
    Ok(Answer::message(&ConfirmMessageReceivedResponse {}))
}

pub async fn push_messages(caller: Caller, mut body: MessageReader) -> Result<Answer, Refusal> {
    // Field 3 is the run id in one dialect and the first tree in the other.
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
    // From 1.33 objects are pushed in a session that the announcement opens. Here a session is only a name.
    let session_id = message_id.chars().take(32).collect();
    Ok(Answer::message(&PushAppMessagesResponse { message_ids: vec![message_id], objects_to_push, session_id }))
}

/// The missing objects of a tree.
async fn missing(caller: &Caller, tree: &ObjectTree) -> Result<HashSet<ObjectId>, Refusal> {
    let (wanted, objects) = (objects_of(tree), caller.server.objects.clone());
    let look = tokio::task::spawn_blocking(move || wanted.into_iter().filter(|id| !objects.has(*id)).collect());
    look.await.map_err(|error| Refusal::transient("The SuperNode cannot read its objects at the moment.", error))
}

pub async fn push_app_outputs(caller: Caller, mut body: MessageReader) -> Result<Answer, Refusal> {
    let request: PushAppOutputsRequest = body.message().await?;
    let task = caller.task(&request.token)?;
    caller.with(task, |assignment, now| assignment.finish(request.context, "", now))?;
    Ok(Answer::message(&PushAppOutputsResponse {}))
}

/// The context and the outcome in one call. A failed app has pushed an error reply, if it could.
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

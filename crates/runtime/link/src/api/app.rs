//! ServerAppIo: the calls of ServerApps and their launchers.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use trellis_core::app;
use trellis_core::awaited::Awaited;
use trellis_core::fleet::running;
use trellis_core::id::{MessageId, NodeId, RunId};
use trellis_core::message::Envelope;
use trellis_core::object;
use trellis_core::port::{Fab, Topic, crash};
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::run::{Outcome, ServerApp};
use trellis_digest::{hex, sha256};
use trellis_wire::error_reply::{ErrorCode, error_message};
use trellis_wire::proto::*;

use super::{random, training};
use crate::convert::{self, malformed_push};
use crate::dialect::app::{self as dialect, Caller};
use crate::fab;
use crate::link::Link;
use crate::watch::{Facts, Failure, Instruction, reply_values};

/// Poll interval of a held pull: nodes go offline without an event.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The kind of runs for launchers that do not name one.
const DEFAULT_SERVER_APP: ServerApp = ServerApp::Flower;

/// Generates a secret and its hash.
pub fn new_token() -> (String, [u8; 32]) {
    let secret = hex(&random::<128>());
    let hash = sha256(secret.as_bytes());
    (secret, hash)
}

/// Returns pending runs. Held until there is one, up to the hold time.
pub async fn list_apps_to_launch(link: &Link, _: ListAppsToLaunchRequest) -> Result<ListAppsToLaunchResponse, Refusal> {
    let runs = pending_runs(link, |server_app| server_app == DEFAULT_SERVER_APP).await?;
    Ok(ListAppsToLaunchResponse { run_ids: runs.iter().map(|(run, _)| run.0).collect() })
}

/// Waits for pending runs of the kinds that the caller can start.
async fn pending_runs(link: &Link, starts: impl Fn(ServerApp) -> bool) -> Result<Vec<(RunId, ServerApp)>, Refusal> {
    let runs = link
        .room
        .wait(Topic::Launch, link.limits.hold_launch_poll, POLL_INTERVAL, || {
            let mut runs = link.read(|view| view.pending_runs())?;
            runs.retain(|(_, server_app)| starts(*server_app));
            Ok((!runs.is_empty()).then_some(runs))
        })
        .await?;
    Ok(runs.unwrap_or_default())
}

/// Like [`list_apps_to_launch`], with runs as tasks.
pub async fn pull_pending_tasks(link: &Link, _: PullPendingTasksRequest) -> Result<PullPendingTasksResponse, Refusal> {
    let runs = pending_runs(link, |server_app| server_app == DEFAULT_SERVER_APP).await?;
    let tasks = runs.into_iter().filter_map(|(run, _)| task(link, run).transpose());
    Ok(PullPendingTasksResponse { tasks: tasks.collect::<Result<_, _>>()? })
}

fn task(link: &Link, run: RunId) -> Result<Option<Task>, Refusal> {
    let run = link.read(|view| view.run(run))?;
    Ok(run.map(|run| dialect::task(&convert::run_out(&run, Default::default()), run.server_app)))
}

/// Claims a run. Returns the secret of its token, or `None` if the run is already claimed.
async fn claim(link: &Link, run: RunId, server_app: ServerApp) -> Result<Option<String>, Refusal> {
    let now = link.now();
    let (secret, hash) = new_token();
    let claimed = link.write(move |tx| app::claim(tx, run, server_app, hash, now)).await?;
    crash::point("run-claimed");
    Ok(claimed.then_some(secret))
}

pub async fn claim_task(link: &Link, request: ClaimTaskRequest) -> Result<ClaimTaskResponse, Refusal> {
    Ok(ClaimTaskResponse { token: claim(link, RunId(request.task_id), DEFAULT_SERVER_APP).await? })
}

/// Finds and claims a run in one call. Held until there is one, up to the hold time.
pub async fn acquire_task(link: &Link, request: AcquireTaskRequest) -> Result<AcquireTaskResponse, Refusal> {
    let supported = |server_app| request.supported_task_types.iter().any(|it| it == dialect::task_type(server_app));
    if ![ServerApp::Flower, ServerApp::Native].into_iter().any(supported) {
        return Ok(AcquireTaskResponse::default());
    }
    for (run, server_app) in pending_runs(link, supported).await? {
        if let Some(token) = claim(link, run, server_app).await? {
            return Ok(AcquireTaskResponse { task: task(link, run)?, token });
        }
    }
    Ok(AcquireTaskResponse::default())
}

/// Claims a run. Returns an empty token if the run is already claimed.
pub async fn request_token(link: &Link, request: RequestTokenRequest) -> Result<RequestTokenResponse, Refusal> {
    Ok(RequestTokenResponse {
        token: claim(link, RunId(request.run_id), DEFAULT_SERVER_APP).await?.unwrap_or_default(),
    })
}

pub async fn pull_app_inputs(
    link: &Link,
    request: PullAppInputsRequest,
    client: String,
) -> Result<PullAppInputsResponse, Refusal> {
    let inputs = pull_inputs(link, sha256(request.token.as_bytes()), client).await?;
    Ok(PullAppInputsResponse { run: inputs.run.map(dialect::first_run), ..inputs })
}

pub async fn pull_task_input(
    link: &Link,
    caller: &Caller,
    _: PullTaskInputRequest,
    client: String,
) -> Result<PullTaskInputResponse, Refusal> {
    pull_inputs(link, hash_of(caller)?, client).await.map(dialect::task_input)
}

/// From 1.30 on, every call needs the token in a header.
fn hash_of(caller: &Caller) -> Result<[u8; 32], Refusal> {
    match caller {
        Caller::Token { hash, .. } => Ok(*hash),
        Caller::Named => Err(Refusal::new(Kind::Unauthenticated, "the task token is missing")),
    }
}

async fn pull_inputs(link: &Link, hash: [u8; 32], client: String) -> Result<PullAppInputsResponse, Refusal> {
    let now = link.now();
    let inputs = link.write(move |tx| app::pull_inputs(tx, &hash, &client, now)).await?;
    crash::point("inputs-pulled");
    tracing::info!(run = inputs.run.id.0, client = inputs.run.client, "run is running");
    link.watch.run_started(inputs.run.id, facts(&inputs.run, &inputs.fab), link.now());
    let context = Context::decode(inputs.context)
        .map_err(|_| Refusal::new(Kind::Precondition, "the stored context of the run is damaged"))?;
    Ok(PullAppInputsResponse {
        context: Some(context),
        run: Some(convert::run_out(&inputs.run, Default::default())),
        fab: Some(convert::fab_out(inputs.fab)),
    })
}

/// Returns what is known of a run's training before it starts.
pub fn facts(run: &trellis_core::run::Run, fab: &Fab) -> Facts {
    let overrides = convert::override_config_out(&run.override_config);
    let facts = Facts::of(fab::pyproject(&fab.content).ok().as_ref(), &overrides);
    Facts { reports: run.server_app == ServerApp::Native, ..facts }
}

/// Records that the connection of a ServerApp was closed; the app may have ended too.
pub async fn hangup(link: &Link, run: RunId) {
    let now = link.now();
    if let Err(error) = link.write(move |tx| app::hangup(tx, run, now)).await {
        tracing::debug!(run = run.0, %error, "cannot record a closed connection");
    }
}

pub async fn push_app_outputs(
    link: &Link,
    _: &Caller,
    request: PushAppOutputsRequest,
) -> Result<PushAppOutputsResponse, Refusal> {
    let (hash, run, now) = (sha256(request.token.as_bytes()), RunId(request.run_id), link.now());
    let context = request.context.unwrap_or_default().encode_to_vec();
    link.write(move |tx| app::push_outputs(tx, &hash, run, &context, now)).await?;
    crash::point("outputs-pushed");
    Ok(PushAppOutputsResponse {})
}

/// Stores the context and the outcome, and finishes the run.
pub async fn push_task_output(
    link: &Link,
    caller: &Caller,
    request: PushTaskOutputRequest,
) -> Result<PushTaskOutputResponse, Refusal> {
    let (hash, run, now) = (hash_of(caller)?, caller.run(0), link.now());
    let outcome = outcome(&request.sub_status)?;
    let context = request.context.map(|context| context.encode_to_vec());
    let details = request.details.clone();
    link.write(move |tx| {
        if let Some(context) = &context
            && outcome == Outcome::Completed
        {
            app::push_outputs(tx, &hash, run, context, now)?;
        }
        app::finish(tx, run, outcome, &details, now)
    })
    .await?;
    crash::point("run-finished");
    tracing::info!(run = run.0, outcome = outcome.name(), details = request.details, "run finished");
    Ok(PushTaskOutputResponse {})
}

fn outcome(name: &str) -> Result<Outcome, Refusal> {
    let unknown = || Refusal::new(Kind::Invalid, format!("unknown sub-status '{name:.40}'"));
    Outcome::from_name(name).ok_or_else(unknown)
}

pub async fn send_task_heartbeat(
    link: &Link,
    caller: &Caller,
    _: SendTaskHeartbeatRequest,
) -> Result<SendTaskHeartbeatResponse, Refusal> {
    Ok(SendTaskHeartbeatResponse { success: heartbeat(link, hash_of(caller)?).await? })
}

async fn heartbeat(link: &Link, hash: [u8; 32]) -> Result<bool, Refusal> {
    let now = link.now();
    link.write(move |tx| app::heartbeat(tx, &hash, now)).await
}

pub async fn send_app_heartbeat(
    link: &Link,
    _: &Caller,
    request: SendAppHeartbeatRequest,
) -> Result<SendAppHeartbeatResponse, Refusal> {
    Ok(SendAppHeartbeatResponse { success: heartbeat(link, sha256(request.token.as_bytes())).await? })
}

pub async fn update_run_status(
    link: &Link,
    caller: &Caller,
    request: UpdateRunStatusRequest,
) -> Result<UpdateRunStatusResponse, Refusal> {
    let (run, now) = (caller.run(request.run_id), link.now());
    let status = request.run_status.unwrap_or_default();
    if status.status != "finished" {
        // Starting and running follow from the app's calls, not from its reports.
        link.read(|view| running(view, run))?;
        return Ok(UpdateRunStatusResponse {});
    }
    let outcome = outcome(&status.sub_status)?;
    let details = status.details.clone();
    link.write(move |tx| app::finish(tx, run, outcome, &details, now)).await?;
    crash::point("run-finished");
    tracing::info!(run = run.0, outcome = outcome.name(), details = status.details, "run finished");
    Ok(UpdateRunStatusResponse {})
}

pub async fn get_nodes(link: &Link, caller: &Caller, request: GetNodesRequest) -> Result<GetNodesResponse, Refusal> {
    let (run, now) = (caller.run(request.run_id), link.now());
    let mut online = link.read(|view| {
        running(view, run)?;
        view.online_nodes(now)
    })?;
    link.draining.leave_out(&mut online);
    link.shards.select(run, &mut online);
    Ok(GetNodesResponse { nodes: online.into_iter().map(|id| Node { node_id: id.0 }).collect() })
}

pub async fn push_messages(
    link: &Link,
    run: RunId,
    messages: &[Message],
    trees: &[ObjectTree],
) -> Result<PushAppMessagesResponse, Refusal> {
    let pushed = convert::pushed_messages(messages, trees)?;
    let session_id = session_id(&messages[0]);
    let messages = pushed
        .into_iter()
        .map(|(envelope, reply_to, tree)| match reply_to {
            None => Ok((envelope, tree)),
            Some(_) => Err(malformed_push("`metadata.reply_to_message_id` MUST not be set.")),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let now = link.now();
    let sent: Vec<_> = messages.iter().map(|(envelope, _)| Instruction::of(envelope)).collect();
    let mut pushed = app::Pushed::default();
    for messages in object::transactions(messages, |(_, tree)| tree) {
        pushed.extend(link.write(move |tx| app::push_messages(tx, run, &messages, now)).await?);
    }
    crash::point("messages-announced");
    let taken: Vec<_> =
        sent.into_iter().zip(&pushed.ids).filter(|(_, id)| id.is_some()).map(|(sent, _)| sent).collect();
    link.watch.instructions_pushed(run, &taken, now);
    training::store_observed(link);
    Ok(PushAppMessagesResponse {
        message_ids: pushed.ids.iter().map(|id| id.map(|id| id.to_string()).unwrap_or_default()).collect(),
        objects_to_push: pushed.missing.iter().map(ToString::to_string).collect(),
        session_id,
    })
}

/// Returns the name of the session for pushed objects, which official clients need from 1.33 on. Sessions have no state
/// here, because the announcement lists the missing objects: the name is the id of the first message.
pub fn session_id(first: &Message) -> String {
    first.metadata.as_ref().map(|metadata| metadata.message_id.chars().take(32).collect()).unwrap_or_default()
}

/// Returns replies. Held until all requested replies, or enough of them, are ready or will never arrive, up to the hold
/// time. An invalid id gets an error reply; it does not fail the call, which would lose the other replies.
pub async fn pull_messages(
    link: &Link,
    caller: &Caller,
    request: PullAppMessagesRequest,
) -> Result<PullAppMessagesResponse, Refusal> {
    let run = caller.run(request.run_id);
    link.confirmed(run).await;
    let mut asked = Asked::new(run, request.message_ids);
    let hold = match link.read(|view| running(view, run))?.server_app {
        ServerApp::Flower => link.limits.hold_app_pull,
        ServerApp::Native => link.limits.hold_native_app_pull,
    };
    let mut awaited = Awaited::new(run, asked.ids.clone(), request.enough as usize, link.now());
    let settled = link
        .room
        .wait(Topic::Replies(run), hold, POLL_INTERVAL, || link.read(|view| awaited.check(view, link.now())))
        .await?;
    tracing::debug!(run = run.0, asked = asked.ids.len(), enough = settled.is_some(), "replies requested");
    let mut ids = settled.unwrap_or_else(|| asked.ids.clone());
    let mut collected = link.read(|view| app::collect_replies(view, run, &ids, link.now()))?;
    if !collected.unavailable.is_empty() || !collected.of_another_run.is_empty() {
        ids.retain(|id| !collected.of_another_run.contains(id));
        let aliases: Vec<_> = collected.of_another_run.iter().map(|id| asked.alias(id.to_string())).collect();
        ids.extend(&aliases);
        let (unavailable, now) = ([collected.unavailable, aliases].concat(), link.now());
        let texts = asked.aliases.clone();
        let encode = move |envelope: &Envelope, id| encode_error_reply(envelope, id, texts.get(&id));
        link.write(move |tx| app::answer_missing(tx, run, &unavailable, now, &encode)).await?;
        collected = link.read(|view| app::collect_replies(view, run, &ids, link.now()))?;
    }
    crash::point("replies-collected");
    let values =
        link.read(|view| Ok(collected.replies.iter().map(|(_, tree)| reply_values(view, tree)).collect::<Vec<_>>()));
    for ((reply, _), values) in collected.replies.iter().zip(values.unwrap_or_default()) {
        let error = reply.envelope.error.as_ref();
        let failure = error.map(|error| Failure { code: error.code, reason: &error.reason });
        link.watch.reply_collected(run, reply.reply_to, failure, &values, link.now());
    }
    training::store_observed(link);
    let (messages_list, message_object_trees) = collected
        .replies
        .iter()
        .map(|(reply, tree)| {
            let mut message = convert::message_out(&reply.envelope, Some(reply.reply_to));
            if let (Some(text), Some(metadata)) = (asked.aliases.get(&reply.reply_to), &mut message.metadata) {
                text.clone_into(&mut metadata.reply_to_message_id);
            }
            (message, convert::tree_out(tree))
        })
        .unzip();
    Ok(PullAppMessagesResponse { messages_list, message_object_trees })
}

/// The messages that a pull requests. A text that is not the id of a message of the run gets an error reply, like an
/// unknown message; the reply is stored under an alias.
struct Asked {
    run: RunId,
    ids: Vec<MessageId>,
    aliases: HashMap<MessageId, String>,
}

impl Asked {
    fn new(run: RunId, texts: Vec<String>) -> Asked {
        let mut asked = Asked { run, ids: Vec::with_capacity(texts.len()), aliases: HashMap::new() };
        for text in texts {
            let id = match text.parse::<MessageId>() {
                Ok(id) if id.to_string() == text => id,
                _ => asked.alias(text),
            };
            asked.ids.push(id);
        }
        let mut listed = HashSet::new();
        asked.ids.retain(|id| listed.insert(*id));
        asked
    }

    /// Returns an id that no message has: the hashed bytes of a message start with its kind.
    fn alias(&mut self, text: String) -> MessageId {
        let id = MessageId::new(sha256(format!("{} {text}", self.run).as_bytes()));
        self.aliases.insert(id, text);
        id
    }
}

/// Encodes an error reply as an object. `alias_of` is the text that the app requested under an alias.
fn encode_error_reply(envelope: &Envelope, reply_to: MessageId, alias_of: Option<&String>) -> (MessageId, Bytes) {
    let mut metadata = convert::metadata_out(envelope, Some(reply_to));
    if let Some(text) = alias_of {
        text.clone_into(&mut metadata.reply_to_message_id);
    }
    metadata.message_id.clear();
    let error = envelope.error.clone().unwrap_or_else(|| app::Unavailable::Message.error());
    let code = match error.code {
        4 => ErrorCode::ReplyMessageUnavailable,
        5 => ErrorCode::NodeUnavailable,
        _ => ErrorCode::MessageUnavailable,
    };
    let (id, object, _) = error_message(metadata, code, &error.reason);
    (id, object)
}

/// Does not wait for the commit: a confirmation lost in a crash only delays cleanup to the end of the run.
pub async fn confirm_message_received(
    link: &Link,
    caller: &Caller,
    request: ConfirmMessageReceivedRequest,
) -> Result<ConfirmMessageReceivedResponse, Refusal> {
    let run = caller.run(request.run_id);
    link.read(|view| running(view, run))?;
    if let Ok(id) = convert::object_id(&request.message_object_id) {
        link.write_confirmation(run, move |tx| app::confirm_reply(tx, run, id));
    }
    crash::point("reply-confirmed");
    Ok(ConfirmMessageReceivedResponse {})
}

pub async fn get_run(link: &Link, caller: &Caller, request: GetRunRequest) -> Result<GetRunResponse, Refusal> {
    let run = link.read(|view| view.run(caller.run(request.run_id)))?;
    Ok(GetRunResponse { run: run.map(|run| dialect::first_run(convert::run_out(&run, Default::default()))) })
}

pub async fn get_fab(link: &Link, _: &Caller, request: GetFabRequest) -> Result<GetFabResponse, Refusal> {
    match link.read(|view| view.fab(&request.hash_str))? {
        Some(fab) => Ok(GetFabResponse { fab: Some(convert::fab_out(fab)) }),
        None => Err(Refusal::new(Kind::NotFound, format!("Found no FAB with hash: {:.80}", request.hash_str))),
    }
}

pub async fn get_run_status(
    link: &Link,
    _: &Caller,
    request: GetRunStatusRequest,
) -> Result<GetRunStatusResponse, Refusal> {
    let run_status_dict = link.read(|view| {
        let mut found = std::collections::BTreeMap::new();
        for id in request.run_ids {
            if let Some(run) = view.run(RunId(id))? {
                found.insert(id, convert::run_status(run.state()));
            }
        }
        Ok(found)
    })?;
    Ok(GetRunStatusResponse { run_status_dict })
}

pub async fn push_logs(link: &Link, caller: &Caller, request: PushLogsRequest) -> Result<PushLogsResponse, Refusal> {
    append_log(link, caller.run(request.run_id), request.logs.concat()).await?;
    crash::point("logs-pushed");
    Ok(PushLogsResponse {})
}

/// Appends to a run's log and wakes its readers.
pub async fn append_log(link: &Link, run: RunId, text: String) -> Result<(), Refusal> {
    if text.is_empty() {
        return Ok(());
    }
    let now = link.now();
    link.write(move |tx| {
        if tx.run(run)?.is_none() {
            return Err(Refusal::new(Kind::NotFound, format!("Run {run} not found")));
        }
        tx.append_log(run, now, &text)?;
        tx.wake(Topic::Log(run));
        Ok(())
    })
    .await
}

/// Objects of a ServerApp have the SuperLink's node id.
pub fn check_sender(node: NodeId) -> Result<(), Refusal> {
    if node == NodeId::SUPERLINK {
        return Ok(());
    }
    Err(Refusal::new(Kind::Precondition, "Unexpected node ID."))
}

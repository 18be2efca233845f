//! The simulated ServerApp: starts a run, takes its token like a SuperExec, sends instructions, collects replies.
//!
//! Only its calls differ between the transports; the differences are hidden here.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tokio::task::AbortHandle;
use trellis_core::id::NodeId;
use trellis_wire::proto::{
    AcquireTaskRequest, ConfirmMessageReceivedRequest, Context, ListAppsToLaunchRequest, ListNodesRequest, Metadata,
    Node, NodeInfo, ObjectTree, PullAppInputsRequest, PullAppMessagesRequest, PullObjectRequest, PullObjectResponse,
    PullTaskInputRequest, PullTaskMessagesRequest, PushAppMessagesRequest, PushAppOutputsRequest, PushObjectRequest,
    PushObjectResponse, PushTaskMessagesRequest, PushTaskOutputRequest, RequestTokenRequest, RunStatus,
    SendAppHeartbeatRequest, SendTaskHeartbeatRequest, StartRunRequest, UpdateRunStatusRequest,
};

use crate::Failure;
use crate::call::{CallError, Caller, Credentials, Tally};
use crate::client::{Client, Transport};
use crate::fab;
use crate::payload::{Envelope, Model};
use crate::rpc::{Rpc, app, control, runtime, server_app_io};
use crate::superlink::Addresses;
use crate::transfer::{ObjectPort, pull_tree, push_requested};

/// A token expires 30 s after its issue without a heartbeat.
const HEARTBEAT_PAUSE: Duration = Duration::from_secs(20);
const TASK_TYPE: &str = "flwr-serverapp";

pub struct ServerApp {
    pub run_id: u64,
    ticket: Ticket,
    context: Option<Context>,
    caller: Arc<Caller>,
    heartbeat: AbortHandle,
}

/// The credentials of the app for its run.
#[derive(Clone)]
enum Ticket {
    /// 1.25: a token in some of the messages.
    Token(String),
    /// 1.42: a token in the headers of every call; messages name the task.
    Task(u64),
}

/// A reply as announced by PullMessages; its objects are not pulled yet.
pub struct Reply {
    metadata: Metadata,
    tree: ObjectTree,
}

impl Reply {
    /// The message that it answers.
    pub fn answers(&self) -> &str {
        &self.metadata.reply_to_message_id
    }

    /// The node that sent it.
    pub fn sender(&self) -> u64 {
        self.metadata.src_node_id
    }
}

/// Lists the nodes as a user does.
pub async fn list_nodes(addresses: &Addresses) -> Result<Vec<NodeInfo>, Failure> {
    let cli = cli(addresses, Arc::default()).await?;
    Ok(cli.once(&control::LIST_NODES, &ListNodesRequest {}).await?.nodes_info)
}

async fn cli(addresses: &Addresses, tally: Arc<Tally>) -> Result<Caller, CallError> {
    let client = Client::open(addresses.transport, addresses.control, Ipv4Addr::LOCALHOST).await?;
    Ok(Caller::new(client, Credentials::Fixed(addresses.transport.announcement("flwr CLI")), tally))
}

async fn app_caller(addresses: &Addresses, headers: HeaderMap, tally: Arc<Tally>) -> Result<Caller, CallError> {
    let client = Client::open(addresses.transport, addresses.server_app_io, Ipv4Addr::LOCALHOST).await?;
    Ok(Caller::new(client, Credentials::Fixed(headers), tally))
}

impl ServerApp {
    /// Starts a run and brings it to `running`.
    pub async fn launch(addresses: &Addresses, tally: Arc<Tally>) -> Result<Self, Failure> {
        let cli = cli(addresses, tally.clone()).await?;
        let federation = match addresses.transport {
            Transport::Grpc => "default".to_owned(),
            Transport::Http => String::new(),
        };
        let start = StartRunRequest { fab: Some(fab::build()?), federation, ..StartRunRequest::default() };
        let run_id = cli.once(&control::START_RUN, &start).await?.run_id.ok_or("StartRun returned no run id")?;
        match addresses.transport {
            Transport::Grpc => Self::launch_by_token(addresses, run_id, tally).await,
            Transport::Http => Self::launch_by_task(addresses, run_id, tally).await,
        }
    }

    async fn launch_by_token(addresses: &Addresses, run_id: u64, tally: Arc<Tally>) -> Result<Self, Failure> {
        let caller = app_caller(addresses, HeaderMap::new(), tally).await?;
        let pending = caller.once(&server_app_io::LIST_APPS_TO_LAUNCH, &ListAppsToLaunchRequest {}).await?.run_ids;
        if !pending.contains(&run_id) {
            return Err(format!("run {run_id} is not among the apps to launch").into());
        }
        let token = caller.once(&server_app_io::REQUEST_TOKEN, &RequestTokenRequest { run_id }).await?.token;
        if token.is_empty() {
            return Err(format!("run {run_id} was taken by somebody else").into());
        }
        let pull = PullAppInputsRequest { token: token.clone() };
        let inputs = caller.once(&server_app_io::PULL_APP_INPUTS, &pull).await?;
        Ok(Self::run(run_id, Ticket::Token(token), inputs.context, caller))
    }

    async fn launch_by_task(addresses: &Addresses, run_id: u64, tally: Arc<Tally>) -> Result<Self, Failure> {
        let transport = addresses.transport;
        let superexec = app_caller(addresses, transport.announcement("SuperExec"), tally.clone()).await?;
        let acquire = AcquireTaskRequest { supported_task_types: vec![TASK_TYPE.to_owned()], ..Default::default() };
        let acquired = superexec.once(&runtime::ACQUIRE_TASK, &acquire).await?;
        let task = acquired.task.filter(|task| task.run_id == run_id);
        let task = task.ok_or_else(|| format!("the task of run {run_id} was not the one to acquire"))?;

        let mut headers = transport.announcement(TASK_TYPE);
        headers.insert("flwr-task-token", HeaderValue::try_from(acquired.token)?);
        let caller = app_caller(addresses, headers, tally).await?;
        caller.once(&runtime::SEND_TASK_HEARTBEAT, &SendTaskHeartbeatRequest {}).await?;
        let input = caller.once(&runtime::PULL_TASK_INPUT, &PullTaskInputRequest {}).await?;
        Ok(Self::run(run_id, Ticket::Task(task.task_id), input.context, caller))
    }

    fn run(run_id: u64, ticket: Ticket, context: Option<Context>, caller: Caller) -> Self {
        let caller = Arc::new(caller);
        let heartbeat = tokio::spawn(keep_alive(caller.clone(), ticket.clone())).abort_handle();
        Self { run_id, ticket, context, caller, heartbeat }
    }

    /// Makes an instruction for one node.
    pub fn instruction(&self, node_id: u64, group_id: &str, model: &Model) -> Envelope {
        let task_id = match self.ticket {
            Ticket::Token(_) => None,
            Ticket::Task(task_id) => Some(task_id),
        };
        Envelope::instruction(self.run_id, task_id, node_id, group_id, model)
    }

    /// Pushes one instruction per node, then the objects: shared objects once.
    pub async fn push(&self, envelopes: &[Envelope], model: &Model) -> Result<HashSet<String>, CallError> {
        let messages_list = envelopes.iter().map(|envelope| envelope.message.clone()).collect();
        let message_object_trees = envelopes.iter().map(|envelope| envelope.tree.clone()).collect();
        let pushed = match self.ticket {
            Ticket::Token(_) => {
                let (token, run_id) = (String::new(), self.run_id);
                let push = PushAppMessagesRequest { token, messages_list, run_id, message_object_trees };
                self.caller.with_retries(&server_app_io::PUSH_MESSAGES, &push).await?
            }
            Ticket::Task(_) => {
                let push = PushTaskMessagesRequest { messages_list, message_object_trees };
                self.caller.with_retries(&runtime::PUSH_MESSAGES, &push).await?
            }
        };
        let objects = model.objects.iter().chain(envelopes.iter().map(|envelope| &envelope.object));
        push_requested(self, self.run_id, &pushed.session_id, objects, &pushed.objects_to_push).await?;
        Ok(pushed.message_ids.into_iter().filter(|id| !id.is_empty()).collect())
    }

    /// Polls for replies to these messages. Returns those that are ready; a server that holds the call returns all.
    pub async fn pull(&self, message_ids: &HashSet<String>) -> Result<Vec<Reply>, CallError> {
        let message_ids = message_ids.iter().cloned().collect();
        let pulled = match self.ticket {
            Ticket::Token(_) => {
                let pull = PullAppMessagesRequest { message_ids, run_id: self.run_id, ..Default::default() };
                self.caller.with_retries(&server_app_io::PULL_MESSAGES, &pull).await?
            }
            Ticket::Task(_) => {
                self.caller
                    .with_retries(&runtime::PULL_MESSAGES, &PullTaskMessagesRequest { message_ids, enough: 0 })
                    .await?
            }
        };
        let pairs = pulled.messages_list.into_iter().zip(pulled.message_object_trees);
        Ok(pairs.map(|(message, tree)| Reply { metadata: message.metadata.unwrap_or_default(), tree }).collect())
    }

    /// Pulls a reply's objects and confirms it.
    pub async fn receive(&self, reply: &Reply) -> Result<(), CallError> {
        pull_tree(self, self.run_id, &reply.tree).await?;
        let confirm = ConfirmMessageReceivedRequest {
            node: Some(Node { node_id: self.node_id() }),
            run_id: self.run_id,
            message_object_id: reply.tree.object_id.clone(),
        };
        self.caller.with_retries(&app::CONFIRM_MESSAGE_RECEIVED, &confirm).await.map(|_| ())
    }

    /// Ends the run like a ServerApp that completed.
    pub async fn finish(mut self) -> Result<(), Failure> {
        let (run_id, context) = (self.run_id, self.context.take());
        match self.ticket.clone() {
            Ticket::Token(token) => {
                let output = PushAppOutputsRequest { token, run_id, context };
                self.caller.once(&server_app_io::PUSH_APP_OUTPUTS, &output).await?;
                let status = RunStatus { status: "finished".into(), sub_status: "completed".into(), ..<_>::default() };
                let update = UpdateRunStatusRequest { run_id, run_status: Some(status) };
                self.caller.once(&server_app_io::UPDATE_RUN_STATUS, &update).await?;
            }
            Ticket::Task(_) => {
                let sub_status = "completed".to_owned();
                let output = PushTaskOutputRequest { context, sub_status, ..PushTaskOutputRequest::default() };
                self.caller.once(&runtime::PUSH_TASK_OUTPUT, &output).await?;
            }
        }
        Ok(())
    }
}

impl Drop for ServerApp {
    fn drop(&mut self) {
        self.heartbeat.abort();
    }
}

async fn keep_alive(caller: Arc<Caller>, ticket: Ticket) {
    loop {
        let beat = match &ticket {
            Ticket::Token(token) => {
                let beat = SendAppHeartbeatRequest { token: token.clone() };
                caller.once(&server_app_io::SEND_APP_HEARTBEAT, &beat).await.map(|_| ())
            }
            Ticket::Task(_) => {
                caller.once(&runtime::SEND_TASK_HEARTBEAT, &SendTaskHeartbeatRequest {}).await.map(|_| ())
            }
        };
        if let Err(error) = beat {
            caller.tally().fail(&error);
        }
        tokio::time::sleep(HEARTBEAT_PAUSE).await;
    }
}

impl ObjectPort for ServerApp {
    const PULL: Rpc<PullObjectRequest, PullObjectResponse> = app::PULL_OBJECT;
    const PUSH: Rpc<PushObjectRequest, PushObjectResponse> = app::PUSH_OBJECT;

    fn caller(&self) -> &Caller {
        &self.caller
    }

    fn node_id(&self) -> u64 {
        NodeId::SUPERLINK.0
    }
}

//! The simulated ServerApp: starts a run, takes its token as a SuperExec would, sends instructions, collects replies.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::AbortHandle;
use tonic::Status;
use tonic::transport::Channel;
use trellis_core::id::NodeId;
use trellis_wire::proto::control_client::ControlClient;
use trellis_wire::proto::server_app_io_client::ServerAppIoClient;
use trellis_wire::proto::{
    ConfirmMessageReceivedRequest, Context, ListAppsToLaunchRequest, Metadata, Node, ObjectTree, PullAppInputsRequest,
    PullAppMessagesRequest, PullObjectRequest, PullObjectResponse, PushAppMessagesRequest, PushAppOutputsRequest,
    PushObjectRequest, PushObjectResponse, RequestTokenRequest, RunStatus, SendAppHeartbeatRequest, StartRunRequest,
    UpdateRunStatusRequest,
};

use crate::Failure;
use crate::call::{Tally, persistently};
use crate::fab;
use crate::payload::{Envelope, Model};
use crate::superlink::Addresses;
use crate::transfer::{ObjectPort, pull_tree, push_wanted};

/// A token dies 30 s after it was issued unless the app is heard from.
const HEARTBEAT_PAUSE: Duration = Duration::from_secs(20);

pub struct ServerApp {
    pub run_id: u64,
    token: String,
    context: Option<Context>,
    client: ServerAppIoClient<Channel>,
    tally: Arc<Tally>,
    heartbeat: AbortHandle,
}

/// A reply as PullMessages announces it; its objects have still to be pulled.
pub struct Reply {
    metadata: Metadata,
    tree: ObjectTree,
}

impl Reply {
    /// The message it answers.
    pub fn answers(&self) -> &str {
        &self.metadata.reply_to_message_id
    }

    /// The node it comes from.
    pub fn sender(&self) -> u64 {
        self.metadata.src_node_id
    }
}

impl ServerApp {
    /// Starts a run and brings it to `running`.
    pub async fn launch(addresses: &Addresses, tally: Arc<Tally>) -> Result<Self, Failure> {
        let mut control = ControlClient::new(addresses.control().connect().await?);
        let start = StartRunRequest {
            fab: Some(fab::build()?),

            federation: "default".to_owned(),
            ..StartRunRequest::default()
        };
        let run_id = control.start_run(start).await?.into_inner().run_id.ok_or("StartRun returned no run id")?;

        let channel = addresses.server_app_io().connect().await?;
        let mut client = ServerAppIoClient::new(channel).max_decoding_message_size(usize::MAX);
        let pending = client.list_apps_to_launch(ListAppsToLaunchRequest {}).await?.into_inner().run_ids;
        if !pending.contains(&run_id) {
            return Err(format!("run {run_id} is not among the apps to launch").into());
        }
        let token = client.request_token(RequestTokenRequest { run_id }).await?.into_inner().token;
        if token.is_empty() {
            return Err(format!("run {run_id} was taken by somebody else").into());
        }
        let inputs = client.pull_app_inputs(PullAppInputsRequest { token: token.clone() }).await?.into_inner();
        let heartbeat = tokio::spawn(keep_alive(client.clone(), token.clone(), tally.clone())).abort_handle();
        Ok(Self { run_id, token, context: inputs.context, client, tally, heartbeat })
    }

    /// Pushes one instruction per node, then the objects: the shared ones once.
    pub async fn push(&self, envelopes: &[Envelope], model: &Model) -> Result<HashSet<String>, Status> {
        let pushed = persistently(&self.tally, || {
            let mut client = self.client.clone();
            let request = PushAppMessagesRequest {
                token: String::new(),
                messages_list: envelopes.iter().map(|envelope| envelope.message.clone()).collect(),
                run_id: self.run_id,
                message_object_trees: envelopes.iter().map(|envelope| envelope.tree.clone()).collect(),
            };
            async move { client.push_messages(request).await }
        })
        .await?;
        let objects = model.objects.iter().chain(envelopes.iter().map(|envelope| &envelope.object));
        push_wanted(self, self.run_id, objects, &pushed.objects_to_push).await?;
        Ok(pushed.message_ids.into_iter().filter(|id| !id.is_empty()).collect())
    }

    /// Asks for replies to these messages; gets those that are there, or all of them from a server that waits.
    pub async fn pull(&self, message_ids: &HashSet<String>) -> Result<Vec<Reply>, Status> {
        let response = persistently(&self.tally, || {
            let mut client = self.client.clone();
            let request = PullAppMessagesRequest {
                token: String::new(),
                message_ids: message_ids.iter().cloned().collect(),
                run_id: self.run_id,
            };
            async move { client.pull_messages(request).await }
        })
        .await?;
        let pairs = response.messages_list.into_iter().zip(response.message_object_trees);
        Ok(pairs.map(|(message, tree)| Reply { metadata: message.metadata.unwrap_or_default(), tree }).collect())
    }

    /// Pulls a reply's objects and confirms it.
    pub async fn receive(&self, reply: &Reply) -> Result<(), Status> {
        pull_tree(self, self.run_id, &reply.tree).await?;
        persistently(&self.tally, || {
            let mut client = self.client.clone();
            let request = ConfirmMessageReceivedRequest {
                node: self.node(),
                run_id: self.run_id,
                message_object_id: reply.tree.object_id.clone(),
            };
            async move { client.confirm_message_received(request).await }
        })
        .await?;
        Ok(())
    }

    /// Ends the run as a ServerApp does that came to its end.
    pub async fn finish(mut self) -> Result<(), Failure> {
        let (token, run_id, context) = (self.token.clone(), self.run_id, self.context.take());
        self.client.push_app_outputs(PushAppOutputsRequest { token, run_id, context }).await?;
        let status = RunStatus { status: "finished".into(), sub_status: "completed".into(), details: String::new() };
        self.client.update_run_status(UpdateRunStatusRequest { run_id, run_status: Some(status) }).await?;
        Ok(())
    }

    fn node(&self) -> Option<Node> {
        Some(Node { node_id: NodeId::SUPERLINK.0 })
    }
}

impl Drop for ServerApp {
    fn drop(&mut self) {
        self.heartbeat.abort();
    }
}

async fn keep_alive(mut client: ServerAppIoClient<Channel>, token: String, tally: Arc<Tally>) {
    loop {
        if let Err(status) = client.send_app_heartbeat(SendAppHeartbeatRequest { token: token.clone() }).await {
            tally.fail(&status);
        }
        tokio::time::sleep(HEARTBEAT_PAUSE).await;
    }
}

impl ObjectPort for ServerApp {
    async fn pull_object(&self, run_id: u64, object_id: &str) -> Result<PullObjectResponse, Status> {
        persistently(&self.tally, || {
            let mut client = self.client.clone();
            let request = PullObjectRequest { node: self.node(), run_id, object_id: object_id.to_owned() };
            async move { client.pull_object(request).await }
        })
        .await
    }

    async fn push_object(&self, run_id: u64, object_id: &str, content: Bytes) -> Result<PushObjectResponse, Status> {
        persistently(&self.tally, || {
            let mut client = self.client.clone();
            let request = PushObjectRequest {
                node: self.node(),
                run_id,
                object_id: object_id.to_owned(),
                object_content: content.clone(),
                ..Default::default()
            };
            async move { client.push_object(request).await }
        })
        .await
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}

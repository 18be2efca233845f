//! One simulated SuperNode: its key, its connections, and its calls.

use std::net::Ipv4Addr;
use std::sync::Arc;

use trellis_wire::proto::{
    ActivateNodeRequest, ConfirmMessageReceivedRequest, GetRunRequest, Message, Metadata, Node, ObjectTree,
    PullMessagesRequest, PullObjectRequest, PullObjectResponse, PushMessagesRequest, PushObjectRequest,
    PushObjectResponse, RegisterNodeFleetRequest, SendNodeHeartbeatRequest,
};

use crate::call::{CallError, Caller, Credentials, Tally};
use crate::client::Client;
use crate::identity::Identity;
use crate::pacing::{HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT};
use crate::payload::{Envelope, Model};
use crate::rpc::{Rpc, fleet};
use crate::superlink::Addresses;
use crate::transfer::{ObjectPort, pull_tree, push_requested};

pub struct SimNode {
    pub id: u64,
    caller: Caller,
}

/// A message delivered to the node.
pub struct Delivery {
    pub message: Message,
    pub tree: ObjectTree,
}

impl Delivery {
    fn metadata(&self) -> Result<&Metadata, CallError> {
        self.message.metadata.as_ref().ok_or_else(|| CallError::fatal("a message without metadata"))
    }
}

impl SimNode {
    /// Connects, registers and activates like a SuperNode without a key file.
    pub async fn join(addresses: &Addresses, home: Ipv4Addr, tally: Arc<Tally>) -> Result<Self, CallError> {
        let identity = Identity::generate(addresses.transport).map_err(|_| CallError::fatal("no key could be made"))?;
        let public_key = identity.public_key_pem();
        let client = Client::open(addresses.transport, addresses.fleet, home).await?;
        let caller = Caller::new(client, Credentials::Signed(identity), tally);
        let register = RegisterNodeFleetRequest { public_key: public_key.clone() };
        caller.with_retries(&fleet::REGISTER_NODE, &register).await?;
        let activate = ActivateNodeRequest { public_key, heartbeat_interval: HEARTBEAT_INTERVAL_S };
        let activated = caller.with_retries(&fleet::ACTIVATE_NODE, &activate).await?;
        Ok(Self { id: activated.node_id, caller })
    }

    /// Sends a heartbeat with the official timeout. Not retried: the next heartbeat follows.
    pub async fn heartbeat(&self) -> Result<(), CallError> {
        let request = SendNodeHeartbeatRequest { node: self.node(), heartbeat_interval: HEARTBEAT_INTERVAL_S };
        let call = self.caller.once(&fleet::SEND_NODE_HEARTBEAT, &request);
        let outcome = match tokio::time::timeout(HEARTBEAT_TIMEOUT, call).await {
            Ok(Ok(answer)) if answer.success => Ok(()),
            Ok(Ok(_)) => Err(CallError::fatal("heartbeat answered with success=false")),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(CallError::fatal("no answer to a heartbeat within its timeout")),
        };
        outcome.inspect_err(|error| self.caller.tally().fail(error))
    }

    pub async fn get_run(&self, run_id: u64) -> Result<(), CallError> {
        let request = GetRunRequest { node: self.node(), run_id };
        self.caller.with_retries(&fleet::GET_RUN, &request).await.map(|_| ())
    }

    /// Polls for a message; the server may answer "none" at once or hold the call.
    pub async fn poll(&self) -> Result<Option<Delivery>, CallError> {
        let request = PullMessagesRequest { node: self.node(), message_ids: Vec::new() };
        let answer = self.caller.with_retries(&fleet::PULL_MESSAGES, &request).await?;
        let pair = answer.messages_list.into_iter().zip(answer.message_object_trees).next();
        Ok(pair.map(|(message, tree)| Delivery { message, tree }))
    }

    /// Processes a message without training: receives, confirms and answers it.
    pub async fn answer(&self, delivery: &Delivery, model: &Model) -> Result<(), CallError> {
        let metadata = delivery.metadata()?;
        pull_tree(self, metadata.run_id, &delivery.tree).await?;
        let confirm = ConfirmMessageReceivedRequest {
            node: self.node(),
            run_id: metadata.run_id,
            message_object_id: metadata.message_id.clone(),
        };
        self.caller.with_retries(&fleet::CONFIRM_MESSAGE_RECEIVED, &confirm).await?;

        let reply = Envelope::reply(metadata, model);
        let push = PushMessagesRequest {
            node: self.node(),
            messages_list: vec![reply.message],
            message_object_trees: vec![reply.tree],
            clientapp_runtime_list: vec![0.0],
        };
        let pushed = self.caller.with_retries(&fleet::PUSH_MESSAGES, &push).await?;
        let objects = model.objects.iter().chain([&reply.object]);
        push_requested(self, metadata.run_id, &pushed.session_id, objects, &pushed.objects_to_push).await
    }

    fn node(&self) -> Option<Node> {
        Some(Node { node_id: self.id })
    }
}

impl ObjectPort for SimNode {
    const PULL: Rpc<PullObjectRequest, PullObjectResponse> = fleet::PULL_OBJECT;
    const PUSH: Rpc<PushObjectRequest, PushObjectResponse> = fleet::PUSH_OBJECT;

    fn caller(&self) -> &Caller {
        &self.caller
    }

    fn node_id(&self) -> u64 {
        self.id
    }
}

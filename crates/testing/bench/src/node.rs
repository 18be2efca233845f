//! One simulated SuperNode: its own key, its own connections, the calls a real one makes.

use std::net::Ipv4Addr;
use std::sync::Arc;

use trellis_wire::proto::{
    ActivateNodeRequest, ConfirmMessageReceivedRequest, GetRunRequest, Message, Metadata, Node, ObjectTree,
    PullMessagesRequest, PullObjectRequest, PullObjectResponse, PushMessagesRequest, PushObjectRequest,
    PushObjectResponse, RegisterNodeFleetRequest, SendNodeHeartbeatRequest,
};

use crate::call::{CallError, Caller, Credentials, Tally};
use crate::identity::Identity;
use crate::line::Line;
use crate::pacing::{HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT};
use crate::payload::{Envelope, Model};
use crate::rpc::{Rpc, fleet};
use crate::superlink::Addresses;
use crate::transfer::{ObjectPort, pull_tree, push_wanted};

pub struct SimNode {
    pub id: u64,
    caller: Caller,
}

/// A message handed to the node.
pub struct Delivery {
    pub message: Message,
    pub tree: ObjectTree,
}

impl Delivery {
    fn metadata(&self) -> Result<&Metadata, CallError> {
        self.message.metadata.as_ref().ok_or_else(|| CallError::end("a message without metadata"))
    }
}

impl SimNode {
    /// Connects, registers and activates, as a SuperNode without a key file does when it starts.
    pub async fn join(addresses: &Addresses, home: Ipv4Addr, tally: Arc<Tally>) -> Result<Self, CallError> {
        let identity = Identity::generate(addresses.transport).map_err(|_| CallError::end("no key could be made"))?;
        let public_key = identity.public_key_pem();
        let line = Line::open(addresses.transport, addresses.fleet, home).await?;
        let caller = Caller::new(line, Credentials::Signed(identity), tally);
        let register = RegisterNodeFleetRequest { public_key: public_key.clone() };
        caller.insist(&fleet::REGISTER_NODE, &register).await?;
        let activate = ActivateNodeRequest { public_key, heartbeat_interval: HEARTBEAT_INTERVAL_S };
        let activated = caller.insist(&fleet::ACTIVATE_NODE, &activate).await?;
        Ok(Self { id: activated.node_id, caller })
    }

    /// A heartbeat with the official timeout; never retried at once, the next one follows anyway.
    pub async fn heartbeat(&self) -> Result<(), CallError> {
        let request = SendNodeHeartbeatRequest { node: self.node(), heartbeat_interval: HEARTBEAT_INTERVAL_S };
        let call = self.caller.once(&fleet::SEND_NODE_HEARTBEAT, &request);
        let outcome = match tokio::time::timeout(HEARTBEAT_TIMEOUT, call).await {
            Ok(Ok(answer)) if answer.success => Ok(()),
            Ok(Ok(_)) => Err(CallError::end("heartbeat answered with success=false")),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(CallError::end("no answer to a heartbeat within its timeout")),
        };
        outcome.inspect_err(|error| self.caller.tally().fail(error))
    }

    pub async fn get_run(&self, run_id: u64) -> Result<(), CallError> {
        let request = GetRunRequest { node: self.node(), run_id };
        self.caller.insist(&fleet::GET_RUN, &request).await.map(|_| ())
    }

    /// Asks for a message; the server may answer "none" at once or hold the question for a while.
    pub async fn poll(&self) -> Result<Option<Delivery>, CallError> {
        let request = PullMessagesRequest { node: self.node(), message_ids: Vec::new() };
        let answer = self.caller.insist(&fleet::PULL_MESSAGES, &request).await?;
        let pair = answer.messages_list.into_iter().zip(answer.message_object_trees).next();
        Ok(pair.map(|(message, tree)| Delivery { message, tree }))
    }

    /// All a node does with a message, but for the training: receive it, confirm it, answer it.
    pub async fn answer(&self, delivery: &Delivery, model: &Model) -> Result<(), CallError> {
        let metadata = delivery.metadata()?;
        pull_tree(self, metadata.run_id, &delivery.tree).await?;
        let confirm = ConfirmMessageReceivedRequest {
            node: self.node(),
            run_id: metadata.run_id,
            message_object_id: metadata.message_id.clone(),
        };
        self.caller.insist(&fleet::CONFIRM_MESSAGE_RECEIVED, &confirm).await?;

        let reply = Envelope::reply(metadata, model);
        let push = PushMessagesRequest {
            node: self.node(),
            messages_list: vec![reply.message],
            message_object_trees: vec![reply.tree],
            clientapp_runtime_list: vec![0.0],
        };
        let pushed = self.caller.insist(&fleet::PUSH_MESSAGES, &push).await?;
        let objects = model.objects.iter().chain([&reply.object]);
        push_wanted(self, metadata.run_id, &pushed.session_id, objects, &pushed.objects_to_push).await
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

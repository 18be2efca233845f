//! One simulated SuperNode: its own key, its own connection, the calls a real one makes.

use std::sync::Arc;

use bytes::Bytes;
use tonic::transport::{Channel, Endpoint};
use tonic::{Extensions, Request, Status};
use trellis_wire::proto::fleet_client::FleetClient;
use trellis_wire::proto::{
    ActivateNodeRequest, ConfirmMessageReceivedRequest, GetRunRequest, Message, Metadata, Node, ObjectTree,
    PullMessagesRequest, PullObjectRequest, PullObjectResponse, PushMessagesRequest, PushObjectRequest,
    PushObjectResponse, RegisterNodeFleetRequest, SendNodeHeartbeatRequest,
};

use crate::call::{Tally, persistently};
use crate::identity::Identity;
use crate::pacing::{HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT};
use crate::payload::{Envelope, Model};
use crate::transfer::{ObjectPort, pull_tree, push_wanted};

pub struct SimNode {
    pub id: u64,
    identity: Identity,
    client: FleetClient<Channel>,
    tally: Arc<Tally>,
}

/// A message handed to the node.
pub struct Delivery {
    pub message: Message,
    pub tree: ObjectTree,
}

impl Delivery {
    fn metadata(&self) -> Result<&Metadata, Status> {
        self.message.metadata.as_ref().ok_or_else(|| Status::internal("a message without metadata"))
    }
}

impl SimNode {
    /// Connects, registers and activates, as a SuperNode without a key file does when it starts.
    pub async fn join(endpoint: &Endpoint, tally: Arc<Tally>) -> Result<Self, Status> {
        let identity = Identity::generate().map_err(|_| Status::internal("no key could be made"))?;
        let channel = endpoint.connect().await.map_err(|error| Status::from_error(error.into()))?;
        let client = FleetClient::new(channel).max_decoding_message_size(usize::MAX);
        let mut node = Self { id: 0, identity, client, tally };
        let public_key = node.identity.public_key_pem();
        persistently(&node.tally, || {
            let request = RegisterNodeFleetRequest { public_key: public_key.clone() };
            let (mut client, request) = node.prepare(request);
            async move { client.register_node(request).await }
        })
        .await?;
        let activated = persistently(&node.tally, || {
            let public_key = public_key.clone();
            let request = ActivateNodeRequest { public_key, heartbeat_interval: HEARTBEAT_INTERVAL_S };
            let (mut client, request) = node.prepare(request);
            async move { client.activate_node(request).await }
        })
        .await?;
        node.id = activated.node_id;
        Ok(node)
    }

    /// A heartbeat with the official timeout; never retried at once, the next one follows anyway.
    pub async fn heartbeat(&self) -> Result<(), Status> {
        let request = SendNodeHeartbeatRequest { node: self.node(), heartbeat_interval: HEARTBEAT_INTERVAL_S };
        let (mut client, request) = self.prepare(request);
        let outcome = match tokio::time::timeout(HEARTBEAT_TIMEOUT, client.send_node_heartbeat(request)).await {
            Ok(Ok(response)) if response.get_ref().success => Ok(()),
            Ok(Ok(_)) => Err(Status::unknown("heartbeat answered with success=false")),
            Ok(Err(status)) => Err(status),
            Err(_) => Err(Status::deadline_exceeded("no answer to a heartbeat within its timeout")),
        };
        outcome.inspect_err(|status| self.tally.fail(status))
    }

    pub async fn get_run(&self, run_id: u64) -> Result<(), Status> {
        let call = || {
            let request = GetRunRequest { node: self.node(), run_id };
            let (mut client, request) = self.prepare(request);
            async move { client.get_run(request).await }
        };
        persistently(&self.tally, call).await.map(|_| ())
    }

    /// Asks for a message; the server may answer "none" at once or hold the question for a while.
    pub async fn poll(&self) -> Result<Option<Delivery>, Status> {
        let call = || {
            let request = PullMessagesRequest { node: self.node(), message_ids: Vec::new() };
            let (mut client, request) = self.prepare(request);
            async move { client.pull_messages(request).await }
        };
        let response = persistently(&self.tally, call).await?;
        let pair = response.messages_list.into_iter().zip(response.message_object_trees).next();
        Ok(pair.map(|(message, tree)| Delivery { message, tree }))
    }

    /// All a node does with a message, but for the training: receive it, confirm it, answer it.
    pub async fn answer(&self, delivery: &Delivery, model: &Model) -> Result<(), Status> {
        let metadata = delivery.metadata()?;
        pull_tree(self, metadata.run_id, &delivery.tree).await?;
        persistently(&self.tally, || {
            let request = ConfirmMessageReceivedRequest {
                node: self.node(),
                run_id: metadata.run_id,
                message_object_id: metadata.message_id.clone(),
            };
            let (mut client, request) = self.prepare(request);
            async move { client.confirm_message_received(request).await }
        })
        .await?;

        let reply = Envelope::reply(metadata, model);
        let pushed = persistently(&self.tally, || {
            let request = PushMessagesRequest {
                node: self.node(),
                messages_list: vec![reply.message.clone()],
                message_object_trees: vec![reply.tree.clone()],
                clientapp_runtime_list: vec![0.0],
            };
            let (mut client, request) = self.prepare(request);
            async move { client.push_messages(request).await }
        })
        .await?;
        let objects = model.objects.iter().chain([&reply.object]);
        push_wanted(self, metadata.run_id, objects, &pushed.objects_to_push).await
    }

    fn node(&self) -> Option<Node> {
        Some(Node { node_id: self.id })
    }

    /// A handle on the connection and the request with its signature.
    fn prepare<T>(&self, message: T) -> (FleetClient<Channel>, Request<T>) {
        (self.client.clone(), Request::from_parts(self.identity.headers(), Extensions::new(), message))
    }
}

impl ObjectPort for SimNode {
    async fn pull_object(&self, run_id: u64, object_id: &str) -> Result<PullObjectResponse, Status> {
        persistently(&self.tally, || {
            let request = PullObjectRequest { node: self.node(), run_id, object_id: object_id.to_owned() };
            let (mut client, request) = self.prepare(request);
            async move { client.pull_object(request).await }
        })
        .await
    }

    async fn push_object(&self, run_id: u64, object_id: &str, content: Bytes) -> Result<PushObjectResponse, Status> {
        persistently(&self.tally, || {
            let request = PushObjectRequest {
                node: self.node(),
                run_id,
                object_id: object_id.to_owned(),
                object_content: content.clone(),
                ..Default::default()
            };
            let (mut client, request) = self.prepare(request);
            async move { client.push_object(request).await }
        })
        .await
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}

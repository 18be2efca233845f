//! The Fleet API for nodes: typed calls without retries, over gRPC or HTTP, whichever the SuperLink has. Callers decide what to
//! do after a failure; `retry` computes when.
//!
//! ```text
//! Fleet --Question--> line (a working one) --> grpc (one HTTP/2 connection) | http (a pool of connections)
//!       <--Reply----- refusal (its meaning for the node), error
//! ```

mod bandwidth;
mod body;
mod detect;
pub(crate) mod error;
mod grpc;
mod http;
pub(crate) mod line;
mod proof;
pub(crate) mod refusal;
pub mod retry;
pub(crate) mod rpc;

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message as _;
use trellis_core::id::{NodeId, ObjectId, RunId};
use trellis_wire::call::{AskShard, Call, DescribeNode, NodeShard, PushAppLog};
use trellis_wire::object::object_id;
use trellis_wire::proto;

use self::bandwidth::Throttle;
use self::body::{Intake, Outgoing, Pulse};
pub use self::error::{FleetError, Remedy};
use self::line::Lines;
use self::proof::Proof;
use self::refusal::Refusal;
use self::rpc::Rpc;
use crate::{Error, NodeKey, SuperLink, Target};

/// Answers without content of objects; apps are the largest.
const MESSAGE_BYTES: usize = 256 << 20;
/// The maximum that official SuperLinks send.
const OBJECT_BYTES: usize = i32::MAX as usize;
/// The field `object_content` of a PushObject, as it is announced on the wire.
const CONTENT_KEY: u8 = 0x22;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// As Flower 1.25 to 1.39 speak it.
    Grpc,
    /// As Flower 1.40 and later speak it.
    Http,
}

#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// `None`: detected, and detected again after every reconnect, since the SuperLink may have been upgraded.
    pub transport: Option<Transport>,
    /// Ping interval of silent gRPC connections; `None`: no pings. Official SuperLinks close connections with frequent pings.
    pub keepalive_interval: Option<Duration>,
    /// Timeout of a ping.
    pub keepalive_timeout: Duration,
    /// Bytes of objects per second and direction; `None`: unlimited.
    pub bandwidth: Option<u64>,
    /// Timeout of a connection, including name resolution, TLS and detection of the transport.
    pub connect_timeout: Duration,
    /// Maximum silence within a call.
    pub answer_timeout: Duration,
    /// Maximum silence while a SuperLink holds a pull. Ours holds for up to 120 s.
    pub hold_timeout: Duration,
}

impl Default for FleetOptions {
    fn default() -> FleetOptions {
        FleetOptions {
            transport: None,
            keepalive_interval: None,
            keepalive_timeout: Duration::from_secs(20),
            bandwidth: None,
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(60),
            hold_timeout: Duration::from_secs(150),
        }
    }
}

/// The result of pulling an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PulledObject {
    /// It was never announced, or was deleted.
    NotFound,
    /// It was announced, and is on its way to the SuperLink.
    NotHere,
    Here(Bytes),
}

/// The SuperLink of a node. Clones share everything.
#[derive(Clone)]
pub struct Fleet {
    inner: Arc<Inner>,
}

struct Inner {
    lines: Lines,
    proof: Proof,
    sending: Option<Arc<Throttle>>,
    receiving: Option<Arc<Throttle>>,
}

/// A call as both transports make it.
pub(crate) struct Question<'a> {
    pub rpc: &'static Rpc,
    /// The message, or the part of it before the content of an object.
    head: Bytes,
    content: Bytes,
    max_bytes: usize,
    sending: Option<&'a Arc<Throttle>>,
    receiving: Option<&'a Throttle>,
    pulse: Pulse,
}

impl Question<'_> {
    pub fn new(rpc: &'static Rpc, request: &impl prost::Message) -> Question<'static> {
        Question {
            rpc,
            head: request.encode_to_vec().into(),
            content: Bytes::new(),
            max_bytes: MESSAGE_BYTES,
            sending: None,
            receiving: None,
            pulse: Pulse::new(),
        }
    }

    /// The request for an object.
    pub fn for_object(rpc: &'static Rpc, request: &proto::PullObjectRequest) -> Question<'static> {
        Question { max_bytes: OBJECT_BYTES, ..Question::new(rpc, request) }
    }

    /// The request with an object, whose content follows the message.
    pub fn with_object(rpc: &'static Rpc, request: &proto::PushObjectRequest, content: Bytes) -> Question<'static> {
        Question { head: before_content(request, content.len()), content, ..Question::new(rpc, request) }
    }

    fn outgoing(&self, head: Bytes) -> Outgoing {
        Outgoing::new(head, self.content.clone(), self.sending.cloned(), self.pulse.clone())
    }

    fn intake(&self) -> Intake<'_> {
        Intake { max_bytes: self.max_bytes, throttle: self.receiving, pulse: &self.pulse }
    }
}

/// A response.
pub(crate) enum Reply {
    Message(Bytes),
    Refused(Refusal),
}

impl Fleet {
    pub fn new(target: Target, key: Arc<NodeKey>, options: FleetOptions) -> Fleet {
        let throttle = || options.bandwidth.map(|bytes_per_s| Arc::new(Throttle::new(bytes_per_s)));
        let (sending, receiving) = (throttle(), throttle());
        Fleet {
            inner: Arc::new(Inner { lines: Lines::new(target, options), proof: Proof::new(key), sending, receiving }),
        }
    }

    /// `host:port` of the SuperLink.
    pub fn endpoint(&self) -> String {
        self.inner.lines.target.endpoint()
    }

    /// The transport of the last connection; `None` before the first.
    pub fn transport(&self) -> Option<Transport> {
        self.inner.lines.transport()
    }

    /// Registers the key. `None`: it is registered already, and official SuperLinks do not return its id; the activation does.
    /// Unregistered keys get the same answer, and are refused at the activation for good.
    pub async fn register_node(&self) -> Result<Option<NodeId>, FleetError> {
        let request = proto::RegisterNodeFleetRequest { public_key: self.inner.proof.public_key().into() };
        let question = Question::new(rpc::REGISTER_NODE, &request);
        let reply = self.reply(&question, self.inner.lines.options.answer_timeout).await?;
        if matches!(&reply, Reply::Refused(refusal) if refusal.is_key_in_use()) {
            return Ok(None);
        }
        let response: proto::RegisterNodeFleetResponse = self.read(&question, reply)?;
        Ok(Some(NodeId(response.node_id)))
    }

    /// Activates the node, and returns its identity.
    pub async fn activate_node(&self, heartbeat_interval_s: f64) -> Result<NodeId, FleetError> {
        let public_key = self.inner.proof.public_key().into();
        let request = proto::ActivateNodeRequest { public_key, heartbeat_interval: heartbeat_interval_s };
        let response: proto::ActivateNodeResponse = self.call(rpc::ACTIVATE_NODE, &request).await?;
        Ok(NodeId(response.node_id))
    }

    /// Reports data that Flower's messages do not have, in a call of ours that only SuperLinks of Trellis know.
    pub async fn describe_node(&self, description: &DescribeNode) -> Result<(), Error> {
        self.call_of_ours(description).await.map(drop)
    }

    /// Which part of the data the node has, in a run: only a SuperLink of Trellis understands it.
    pub async fn node_shard(&self, asked: &AskShard) -> Result<NodeShard, Error> {
        self.call_of_ours(asked).await
    }

    /// Sends output of apps, which only a SuperLink of Trellis stores.
    pub async fn push_app_log(&self, lines: &PushAppLog) -> Result<(), Error> {
        self.call_of_ours(lines).await.map(drop)
    }

    async fn call_of_ours<C: Call>(&self, call: &C) -> Result<C::Answer, Error> {
        SuperLink::new(self.inner.lines.target.clone()).call_as_node(call, self.inner.proof.key()).await
    }

    pub async fn deactivate_node(&self, node: NodeId) -> Result<(), FleetError> {
        let request = proto::DeactivateNodeRequest { node_id: node.0 };
        self.call::<proto::DeactivateNodeResponse>(rpc::DEACTIVATE_NODE, &request).await.map(drop)
    }

    /// Unregisters the node for good.
    pub async fn unregister_node(&self, node: NodeId) -> Result<(), FleetError> {
        let request = proto::UnregisterNodeFleetRequest { node_id: node.0 };
        self.call::<proto::UnregisterNodeFleetResponse>(rpc::UNREGISTER_NODE, &request).await.map(drop)
    }

    /// `false`: the node counts as offline and must activate itself again.
    pub async fn send_heartbeat(&self, node: NodeId, interval_s: f64) -> Result<bool, FleetError> {
        let request = proto::SendNodeHeartbeatRequest { node: Some(wire_node(node)), heartbeat_interval: interval_s };
        let response: proto::SendNodeHeartbeatResponse = self.call(rpc::SEND_NODE_HEARTBEAT, &request).await?;
        Ok(response.success)
    }

    /// Pulls an instruction. Our SuperLink holds the call until there is one, or for a while; official ones answer at once.
    pub async fn pull_messages(&self, node: NodeId) -> Result<proto::PullMessagesResponse, FleetError> {
        let request = proto::PullMessagesRequest { node: Some(wire_node(node)), message_ids: Vec::new() };
        let question = Question::new(rpc::PULL_MESSAGES, &request);
        let reply = self.reply(&question, self.inner.lines.options.hold_timeout).await?;
        self.read(&question, reply)
    }

    /// Announces a reply. The answer lists the missing objects.
    pub async fn push_messages(
        &self,
        node: NodeId,
        message: proto::Message,
        tree: proto::ObjectTree,
        runtime_s: f64,
    ) -> Result<proto::PushMessagesResponse, FleetError> {
        let request = proto::PushMessagesRequest {
            node: Some(wire_node(node)),
            messages_list: vec![message],
            message_object_trees: vec![tree],
            clientapp_runtime_list: vec![runtime_s],
        };
        self.call(rpc::PUSH_MESSAGES, &request).await
    }

    pub async fn get_run(&self, node: NodeId, run: RunId) -> Result<proto::Run, FleetError> {
        let request = proto::GetRunRequest { node: Some(wire_node(node)), run_id: run.0 };
        let response: proto::GetRunResponse = self.call(rpc::GET_RUN, &request).await?;
        response.run.ok_or_else(|| self.empty(rpc::GET_RUN))
    }

    /// The app of a run. Callers verify its hash.
    pub async fn get_fab(&self, node: NodeId, run: RunId, hash: &str) -> Result<proto::Fab, FleetError> {
        let request = proto::GetFabRequest { node: Some(wire_node(node)), hash_str: hash.to_owned(), run_id: run.0 };
        let response: proto::GetFabResponse = self.call(rpc::GET_FAB, &request).await?;
        response.fab.ok_or_else(|| self.empty(rpc::GET_FAB))
    }

    /// Pulls an object. Damaged content is a transient error.
    pub async fn pull_object(&self, node: NodeId, run: RunId, id: ObjectId) -> Result<PulledObject, FleetError> {
        let request =
            proto::PullObjectRequest { node: Some(wire_node(node)), run_id: run.0, object_id: id.to_string() };
        let receiving = self.inner.receiving.as_deref();
        let question = Question { receiving, ..Question::for_object(rpc::PULL_OBJECT, &request) };
        let reply = self.reply(&question, self.inner.lines.options.answer_timeout).await?;
        // The content stays in the read buffer.
        let response: proto::PullObjectResponse = self.read(&question, reply)?;
        match response {
            proto::PullObjectResponse { object_found: false, .. } => Ok(PulledObject::NotFound),
            proto::PullObjectResponse { object_available: false, .. } => Ok(PulledObject::NotHere),
            proto::PullObjectResponse { object_content, .. } if object_id(&object_content) == id => {
                Ok(PulledObject::Here(object_content))
            }
            _ => {
                let why = format!("the content of object {id} does not match its digest");
                Err(FleetError::Unreachable { endpoint: self.endpoint(), call: rpc::PULL_OBJECT.name, why })
            }
        }
    }

    /// Brings an object. `session` is from the answer to its announcement. `false`: it was not announced, or no longer is.
    pub async fn push_object(
        &self,
        node: NodeId,
        run: RunId,
        id: ObjectId,
        content: Bytes,
        session: &str,
    ) -> Result<bool, FleetError> {
        let request = proto::PushObjectRequest {
            node: Some(wire_node(node)),
            run_id: run.0,
            object_id: id.to_string(),
            object_content: Bytes::new(),
            session_id: session.to_owned(),
        };
        let sending = self.inner.sending.as_ref();
        let question = Question { sending, ..Question::with_object(rpc::PUSH_OBJECT, &request, content) };
        let reply = self.reply(&question, self.inner.lines.options.answer_timeout).await?;
        let response: proto::PushObjectResponse = self.read(&question, reply)?;
        Ok(response.stored)
    }

    /// Confirms a message and all its objects.
    pub async fn confirm(&self, node: NodeId, run: RunId, message_id: &str) -> Result<(), FleetError> {
        let request = proto::ConfirmMessageReceivedRequest {
            node: Some(wire_node(node)),
            run_id: run.0,
            message_object_id: message_id.to_owned(),
        };
        let done = self.call::<proto::ConfirmMessageReceivedResponse>(rpc::CONFIRM_MESSAGE_RECEIVED, &request);
        done.await.map(drop)
    }

    async fn call<A: prost::Message + Default>(
        &self,
        rpc: &'static Rpc,
        request: &impl prost::Message,
    ) -> Result<A, FleetError> {
        let question = Question::new(rpc, request);
        let reply = self.reply(&question, self.inner.lines.options.answer_timeout).await?;
        self.read(&question, reply)
    }

    async fn reply(&self, question: &Question<'_>, silence: Duration) -> Result<Reply, FleetError> {
        let proof = |transport| self.inner.proof.headers(transport);
        let reply = self.inner.lines.reply(question, silence, proof).await;
        reply.map_err(|failure| failure.to_error(self.endpoint(), question.rpc.name))
    }

    fn read<A: prost::Message + Default>(&self, question: &Question<'_>, reply: Reply) -> Result<A, FleetError> {
        match reply {
            Reply::Refused(refusal) => Err(refusal.into_error(self.endpoint(), question.rpc)),
            Reply::Message(bytes) => A::decode(bytes).map_err(|error| {
                let (call, why) = (question.rpc.name, format!("the answer cannot be read: {error}"));
                FleetError::Refused { endpoint: self.endpoint(), call, is_fault: true, why }
            }),
        }
    }

    fn empty(&self, rpc: &Rpc) -> FleetError {
        let why = "the answer is empty".to_owned();
        FleetError::Refused { endpoint: self.endpoint(), call: rpc.name, is_fault: true, why }
    }
}

fn wire_node(node: NodeId) -> proto::Node {
    proto::Node { node_id: node.0 }
}

/// A PushObject up to its content, which follows as it is.
fn before_content(request: &proto::PushObjectRequest, content_bytes: usize) -> Bytes {
    let mut head = BytesMut::with_capacity(request.encoded_len() + 11);
    request.encode(&mut head).expect("a buffer grows");
    head.put_u8(CONTENT_KEY);
    prost::encoding::encode_varint(content_bytes as u64, &mut head);
    head.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_sent_beside_its_message_and_not_in_it() {
        let content = Bytes::from_static(b"ArrayChunk  2\0ab");
        let without = proto::PushObjectRequest {
            node: Some(wire_node(NodeId(7))),
            run_id: 8,
            object_id: "ab".repeat(32),
            object_content: Bytes::new(),
            session_id: "s".to_owned(),
        };
        let sent = [before_content(&without, content.len()), content.clone()].concat();
        let with = proto::PushObjectRequest { object_content: content, ..without };
        assert_eq!(proto::PushObjectRequest::decode(sent.as_slice()).unwrap(), with);
    }
}

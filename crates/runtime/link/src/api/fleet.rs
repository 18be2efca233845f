//! The Fleet API: calls of SuperNodes. Each call is signed with the node's key.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use trellis_clock::now_s;
use trellis_core::account::{NOBODY_ID, NOBODY_NAME};
use trellis_core::fleet::{self, NewReply, PushOutcome};
use trellis_core::id::{NodeId, RunId};
use trellis_core::object;
use trellis_core::port::{Read, Topic, Tx, crash};
use trellis_core::refusal::{Kind, Refusal};
use trellis_front::Transport;
use trellis_wire::call::{AskShard, DescribeNode, Done, MAX_APP_LOG_BYTES, NodeShard, PushAppLog};
use trellis_wire::proto::*;

use super::app::session_id;
use super::random_id;
use super::trellis::{node_id, run_id};
use crate::convert::{self, malformed_push};
use crate::dialect::Client;
use crate::identity::Signature;
use crate::link::Link;
use crate::shards::Shard;
use crate::watch::{Departure, numbers, round_of};

/// Returned with every answer; official nodes ignore it.
const RECONNECT_S: u64 = 5;
/// Poll interval of a held pull: another SuperLink on the same store cannot wake it.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// The caller: the key that signed the call, the node of the key, and the dialect of the call.
#[derive(Clone)]
pub struct Caller {
    key: Bytes,
    /// `None` if no node has the key, or the node was removed.
    node: Option<NodeId>,
    transport: Transport,
    client: String,
    remote: SocketAddr,
}

impl Caller {
    /// Verifies the signature. Refuses unknown keys unless `unknown_senders` is set. The key is looked up first, so that
    /// unknown callers cause no signature verification.
    pub fn verify(
        link: &Link,
        client: &Client,
        headers: &HeaderMap,
        remote: SocketAddr,
        unknown_senders: bool,
    ) -> Result<Caller, Refusal> {
        let shown = Signature::of(headers)?;
        // Read the version before the node, so that a concurrent removal of the node leads to another lookup.
        let version = link.changes.nodes_version();
        let look_up = || link.read(|view| fleet::member(view, &shown.key));
        let node = link.identities.member(&shown.key, version, look_up)?;
        if node.is_none() && !unknown_senders {
            return Err(no_node());
        }
        // Not the link's monotonic clock: signatures contain the system time of other machines.
        link.identities.verify(&shown, now_s())?;
        Ok(Caller { key: shown.key, node, transport: client.transport, client: client.describe(headers), remote })
    }

    pub fn key(&self) -> &Bytes {
        &self.key
    }

    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Checks that the caller is this node.
    pub fn is_node(&self, id: NodeId) -> Result<NodeId, Refusal> {
        if self.node == Some(id) { Ok(id) } else { Err(no_node()) }
    }

    fn is_node_in(&self, view: &(impl Read + ?Sized), id: NodeId) -> Result<NodeId, Refusal> {
        if fleet::is_member(view, id, &self.key)? { Ok(id) } else { Err(no_node()) }
    }

    fn has_key(&self, key: &[u8]) -> Result<(), Refusal> {
        if self.key == key { Ok(()) } else { Err(no_node()) }
    }
}

fn no_node() -> Refusal {
    Refusal::new(Kind::Unauthenticated, "Invalid node ID")
}

fn registered_elsewhere(what: &str) -> Refusal {
    let text = format!("SuperNode authentication is enabled. All SuperNodes must be {what} via the CLI.");
    Refusal::new(Kind::Precondition, text)
}

pub async fn register_node(
    link: &Link,
    caller: &Caller,
    request: RegisterNodeFleetRequest,
) -> Result<RegisterNodeFleetResponse, Refusal> {
    caller.has_key(&request.public_key)?;
    if link.supernode_auth {
        return Err(registered_elsewhere("registered"));
    }
    let (id, now) = (NodeId(random_id()), link.now());
    let node =
        link.write(move |tx| fleet::register(tx, id, (NOBODY_ID, NOBODY_NAME), &request.public_key, now)).await?;
    crash::point("node-registered");
    tracing::debug!(node = node.0, "node registered");
    Ok(RegisterNodeFleetResponse { node_id: node.0 })
}

pub async fn activate_node(
    link: &Link,
    caller: &Caller,
    request: ActivateNodeRequest,
) -> Result<ActivateNodeResponse, Refusal> {
    caller.has_key(&request.public_key)?;
    let (now, client) = (link.now(), caller.client.clone());
    let activate =
        move |tx: &mut dyn Tx| fleet::activate(tx, &request.public_key, request.heartbeat_interval, &client, now);
    let node = link.write(activate).await?;
    crash::point("node-activated");
    tracing::debug!(node = node.0, client = caller.client, "node activated");
    // A new process accepts work until it reports otherwise.
    link.draining.set(node, false);
    link.watch.node_joined(node, Some(caller.remote));
    Ok(ActivateNodeResponse { node_id: node.0 })
}

pub async fn deactivate_node(
    link: &Link,
    caller: &Caller,
    request: DeactivateNodeRequest,
) -> Result<DeactivateNodeResponse, Refusal> {
    let (node, now) = (caller.is_node(NodeId(request.node_id))?, link.now());
    link.write(move |tx| fleet::deactivate(tx, node, now)).await?;
    link.draining.set(node, false);
    link.watch.node_left(node, Departure::Deactivated);
    Ok(DeactivateNodeResponse {})
}

pub async fn unregister_node(
    link: &Link,
    caller: &Caller,
    request: UnregisterNodeFleetRequest,
) -> Result<UnregisterNodeFleetResponse, Refusal> {
    let (node, now) = (caller.is_node(NodeId(request.node_id))?, link.now());
    if link.supernode_auth {
        return Err(registered_elsewhere("unregistered"));
    }
    link.write(move |tx| fleet::unregister(tx, node, now)).await?;
    link.draining.set(node, false);
    link.shards.forget(node);
    link.watch.node_left(node, Departure::Unregistered);
    Ok(UnregisterNodeFleetResponse {})
}

pub async fn send_node_heartbeat(
    link: &Link,
    caller: &Caller,
    request: SendNodeHeartbeatRequest,
) -> Result<SendNodeHeartbeatResponse, Refusal> {
    let (node, now) = (caller.is_node(convert::node_id(request.node.as_ref()))?, link.now());
    let success =
        link.write_deferred(move |tx: &mut dyn Tx| fleet::heartbeat(tx, node, request.heartbeat_interval, now)).await?;
    Ok(SendNodeHeartbeatResponse { success })
}

pub async fn describe_node(link: &Link, caller: &Caller, said: DescribeNode) -> Result<Done, Refusal> {
    let node = caller.is_node(node_id(&said.node_id)?)?;
    if let Some(name) = said.name {
        let (caller, owned) = (caller.clone(), link.supernode_auth);
        let rename = move |tx: &mut dyn Tx| {
            let node = caller.is_node_in(tx, node)?;
            fleet::name_itself(tx, node, &name, owned)
        };
        link.write(rename).await?;
    }
    if let Some(draining) = said.draining
        && link.draining.set(node, draining)
    {
        tracing::info!(node = node.0, draining, "node changed its draining status");
        link.nodes_changed();
    }
    Ok(Done {})
}

/// Returns the shard of a node in a run. Nodes with a configured shard do not ask.
pub async fn node_shard(link: &Link, caller: &Caller, asked: AskShard) -> Result<NodeShard, Refusal> {
    let node = caller.is_node(node_id(&asked.node_id)?)?;
    let run = asked.run_id.as_deref().map(run_id).transpose()?;
    let (shard, is_first) = link.shards.ask(node, run);
    if is_first {
        link.nodes_changed();
    }
    Ok(match shard {
        Shard::Unassigned => NodeShard::default(),
        Shard::None { total } => NodeShard { total: Some(total), ..NodeShard::default() },
        Shard::Pending => NodeShard { pending: true, ..NodeShard::default() },
        Shard::Assigned { shard, total } => NodeShard { shard: Some(shard), total: Some(total), pending: false },
    })
}

/// Stores output of ClientApps of a node. The caller has checked the rate.
pub async fn push_app_log(link: &Link, caller: &Caller, pushed: PushAppLog) -> Result<Done, Refusal> {
    let (node, run) = (caller.is_node(node_id(&pushed.node_id)?)?, run_id(&pushed.run_id)?);
    if pushed.text.len() > MAX_APP_LOG_BYTES {
        let text = format!("{} bytes of output are more than the limit of {MAX_APP_LOG_BYTES}", pushed.text.len());
        return Err(Refusal::new(Kind::TooLarge, text));
    }
    // A run that was selected before a restart of the SuperLink is only in the store.
    if !link.app_logs.has_part(run, node) && !link.read(|view| view.runs_waiting_for(node))?.contains(&run) {
        let text = format!("node {node} does not take part in run {run}, so it cannot add to its logs");
        return Err(Refusal::new(Kind::Denied, text));
    }
    let logs = Arc::clone(&link.app_logs);
    let stored = tokio::task::spawn_blocking(move || logs.append(run, node, &pushed.text)).await;
    let failed = |error| Refusal::transient("The output of an app cannot be stored.", error);
    stored.map_err(std::io::Error::other).flatten().map_err(failed)?;
    Ok(Done {})
}

/// Held until there is an instruction for the node, up to the hold time.
pub async fn pull_messages(
    link: &Link,
    caller: &Caller,
    request: PullMessagesRequest,
) -> Result<PullMessagesResponse, Refusal> {
    let node = caller.is_node(convert::node_id(request.node.as_ref()))?;
    let hold = match caller.transport {
        Transport::Grpc => link.limits.hold_node_pull,
        Transport::Http => link.limits.hold_node_pull_http,
    };
    let pulled = loop {
        // Check the identity with every poll: the node may be removed while it waits.
        let look = || link.read(|view| caller.is_node_in(view, node).and_then(|node| view.deliverable(node)));
        if link.room.wait(Topic::Node(node), hold, POLL_INTERVAL, look).await?.is_none() {
            return Ok(PullMessagesResponse::default());
        }
        let (caller, now) = (caller.clone(), link.now());
        // No instruction: it has just expired, or a concurrent call of the node got it.
        let pull = move |tx: &mut dyn Tx| caller.is_node_in(tx, node).and_then(|node| fleet::pull(tx, node, now));
        if let Some(pulled) = link.write(pull).await? {
            break pulled;
        }
    };
    let (instruction, tree) = pulled;
    let look_up = || link.read(|view| Ok(round_of(&numbers(view, &tree)))).ok().flatten();
    link.app_logs.takes_part(instruction.envelope.run, node);
    link.watch.instruction_delivered(instruction.envelope.run, instruction.envelope.id, look_up, link.now());
    crash::point("instruction-delivered");
    tracing::debug!(node = node.0, run = instruction.envelope.run.0, message = %instruction.envelope.id,
        deliveries = instruction.deliveries, "instruction delivered");
    let response = PullMessagesResponse {
        reconnect: None,
        messages_list: vec![convert::message_out(&instruction.envelope, None)],
        message_object_trees: vec![convert::tree_out(&tree)],
    };
    link.note_traffic(instruction.envelope.run, prost::Message::encoded_len(&response) as u64, 0);
    Ok(response)
}

pub async fn push_messages(
    link: &Link,
    caller: &Caller,
    request: PushMessagesRequest,
) -> Result<PushMessagesResponse, Refusal> {
    let node = caller.is_node(convert::node_id(request.node.as_ref()))?;
    let received = prost::Message::encoded_len(&request) as u64;
    let replies = incoming_replies(&request)?;
    let run = replies[0].envelope.run;
    let ids: Vec<String> = replies.iter().map(|reply| reply.envelope.id.to_string()).collect();
    let runtimes_s: Vec<f64> = replies.iter().map(|reply| reply.runtime_s).collect();
    let now = link.now();
    replies.iter().for_each(|reply| link.watch.reply_arrived(run, reply.reply_to, now));
    let mut taken = Vec::with_capacity(replies.len());
    for replies in object::transactions(replies, |reply| &reply.tree) {
        let push = move |tx: &mut dyn Tx| {
            replies.iter().map(|reply| fleet::push_reply(tx, node, reply, now)).collect::<Result<Vec<_>, _>>()
        };
        taken.extend(link.write(push).await?);
    }
    crash::point("reply-announced");
    let mut objects_to_push = Vec::new();
    for ((id, runtime_s), taken) in ids.iter().zip(runtimes_s).zip(taken) {
        match taken {
            PushOutcome::Announced { missing } => {
                objects_to_push.extend(missing.iter().map(ToString::to_string));
                link.watch.metrics.clientapp_worked(runtime_s);
            }
            PushOutcome::Ignored(why) => tracing::warn!(node = node.0, run = run.0, message = id, why, "reply ignored"),
        }
    }
    let response = PushMessagesResponse {
        reconnect: Some(Reconnect { reconnect: RECONNECT_S }),
        results: ids.into_iter().map(|id| (id, 0)).collect(),
        objects_to_push,
        session_id: session_id(&request.messages_list[0]),
    };
    link.note_traffic(run, prost::Message::encoded_len(&response) as u64, received);
    Ok(response)
}

fn incoming_replies(request: &PushMessagesRequest) -> Result<Vec<NewReply>, Refusal> {
    let messages = convert::pushed_messages(&request.messages_list, &request.message_object_trees)?;
    let runtimes = request.clientapp_runtime_list.iter().copied().chain(std::iter::repeat(0.0));
    messages
        .into_iter()
        .zip(runtimes)
        .map(|((envelope, reply_to, tree), runtime_s)| {
            let reply_to = reply_to.ok_or_else(|| malformed_push("`metadata.reply_to_message_id` MUST be set."))?;
            Ok(NewReply { envelope, reply_to, tree, runtime_s })
        })
        .collect()
}

pub async fn get_run(link: &Link, caller: &Caller, request: GetRunRequest) -> Result<GetRunResponse, Refusal> {
    caller.is_node(convert::node_id(request.node.as_ref()))?;
    let run = link.read(|view| fleet::running(view, RunId(request.run_id)))?;
    Ok(GetRunResponse { run: Some(convert::run_out(&run, Default::default())) })
}

pub async fn get_fab(link: &Link, caller: &Caller, request: GetFabRequest) -> Result<GetFabResponse, Refusal> {
    caller.is_node(convert::node_id(request.node.as_ref()))?;
    let fab = link.read(|view| {
        let run = fleet::running(view, RunId(request.run_id))?;
        if run.fab_hash != request.hash_str {
            return Ok(None);
        }
        view.fab(&request.hash_str)
    })?;
    let Some(fab) = fab else {
        return Err(Refusal::new(Kind::Denied, format!("Found no FAB with hash: {:.80}", request.hash_str)));
    };
    Ok(GetFabResponse { fab: Some(convert::fab_out(fab)) })
}

/// Does not wait for the commit: if a crash loses a confirmation, the reply implies it.
pub async fn confirm_message_received(
    link: &Link,
    caller: &Caller,
    request: ConfirmMessageReceivedRequest,
) -> Result<ConfirmMessageReceivedResponse, Refusal> {
    let node = caller.is_node(convert::node_id(request.node.as_ref()))?;
    let (run, id) = (RunId(request.run_id), convert::object_id(&request.message_object_id)?);
    link.read(|view| fleet::running(view, run))?;
    link.submit(move |tx| fleet::confirm(tx, node, run, id));
    crash::point("instruction-confirmed");
    Ok(ConfirmMessageReceivedResponse {})
}

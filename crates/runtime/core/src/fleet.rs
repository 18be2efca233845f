//! Transactions of nodes: register, activate, heartbeat, pull instructions, push replies.

use crate::Seconds;
use crate::audit;
use crate::id::{MessageId, NodeId, RunId};
use crate::message::{self, Envelope, Instruction, Reply, TTL_TOLERANCE_S};
use crate::node::{Event, HEARTBEAT_INTERVAL_S, Node, State};
use crate::object::{self, Announcement, MAX_OUTSTANDING_OBJECTS, Scope, Tree};
use crate::port::{Read, Topic, Tx};
use crate::refusal::{Kind, Refusal};
use crate::run;

/// Error if the key belongs or belonged to a node.
pub const KEY_IN_USE: &str = "Public key already in use";

/// A reply with at most this many objects is accepted regardless of outstanding objects. Most replies are this small,
/// and a node sends at most one reply per instruction of a ServerApp.
const SMALL_TREE_OBJECTS: u64 = 1024;

/// Longer names do not fit into tables.
const MAX_NAME_CHARS: usize = 64;

/// Registers a node for its key. Idempotent for the same key: the first answer may have been lost. The caller has
/// verified that the node owns the key.
pub fn register(tx: &mut dyn Tx, id: NodeId, owner: (&str, &str), key: &[u8], now: Seconds) -> Result<NodeId, Refusal> {
    match tx.node_by_key(key)? {
        Some(node) if node.state() == State::Unregistered => Err(Refusal::new(Kind::Precondition, KEY_IN_USE)),
        Some(node) => Ok(node.id),
        None if tx.node(id)?.is_some() => Err(Refusal::new(Kind::Transient, "node ID taken, try again")),
        None => {
            tx.put_node(&Node::register(id, owner, key, 0.0, now))?;
            tx.wake(Topic::Nodes);
            let subject = audit::node(id);
            audit::record(tx, audit::Event::NodeRegisteredByItself, &subject, &subject, "", now)?;
            Ok(id)
        }
    }
}

/// Activates a node after its process started. Instructions of its previous process are delivered again. `client` is
/// the release of the node.
pub fn activate(tx: &mut dyn Tx, key: &[u8], interval_s: f64, client: &str, now: Seconds) -> Result<NodeId, Refusal> {
    check_interval(interval_s)?;
    let node = tx.node_by_key(key)?.filter(|node| node.state() != State::Unregistered);
    let Some(mut node) = node else {
        return Err(Refusal::new(Kind::Precondition, "No SuperNode found with the given public key."));
    };
    // A retry, or a process that restarted before it was missed, is not a new activation.
    let is_news = !matches!(node.state().at(now), State::Online { .. }) || node.client != client;
    node.apply(Event::Activate { interval_s }, now).map_err(|why| {
        Refusal::new(Kind::Precondition, format!("SuperNode with node ID {} could not be activated: {why}.", node.id))
    })?;
    client.clone_into(&mut node.client);
    tx.put_node(&node)?;
    tx.wake(Topic::Nodes);
    if is_news {
        let subject = audit::node(node.id);
        audit::record(tx, audit::Event::NodeActivated, &subject, &subject, client, now)?;
    }
    for mut instruction in tx.in_progress(node.id)? {
        if let Some(reply) = tx.reply_to(instruction.envelope.id)? {
            drop_reply(tx, &reply)?;
        }
        if instruction.apply(message::Event::NodeRestarts).is_ok() {
            tx.put_instruction(&instruction)?;
            tx.wake(Topic::Node(node.id));
        }
    }
    Ok(node.id)
}

pub fn deactivate(tx: &mut dyn Tx, id: NodeId, now: Seconds) -> Result<(), Refusal> {
    let mut node = known(tx, id)?;
    node.apply(Event::Deactivate, now).map_err(|_| {
        Refusal::new(Kind::Precondition, format!("SuperNode with node ID {id} could not be deactivated."))
    })?;
    tx.put_node(&node)?;
    tx.wake(Topic::Nodes);
    let subject = audit::node(id);
    audit::record(tx, audit::Event::NodeDeactivated, &subject, &subject, "", now)?;
    wake_waiting_runs(tx, id)
}

/// Unregisters a node for good; its key cannot be registered again.
pub fn unregister(tx: &mut dyn Tx, id: NodeId, now: Seconds) -> Result<(), Refusal> {
    let gone = || Refusal::new(Kind::Precondition, format!("Node ID {id} already unregistered or not found."));
    let node = tx.node(id)?.ok_or_else(gone)?;
    let event = audit::Event::NodeUnregistered;
    if end(tx, node, event, &audit::node(id), now)? { Ok(()) } else { Err(gone()) }
}

/// Ends a node for good, and wakes its held calls and the runs that wait for it. Returns `false` if it had already
/// ended.
pub(crate) fn end(
    tx: &mut dyn Tx,
    mut node: Node,
    event: audit::Event,
    actor: &str,
    now: Seconds,
) -> Result<bool, Refusal> {
    if node.apply(Event::Unregister, now).is_err() {
        return Ok(false);
    }
    tx.put_node(&node)?;
    audit::record(tx, event, actor, &audit::node(node.id), &node.name, now)?;
    tx.wake(Topic::Node(node.id));
    tx.wake(Topic::Nodes);
    wake_waiting_runs(tx, node.id)?;
    Ok(true)
}

/// Wakes the runs that wait for the node, because they may have nothing left to wait for.
fn wake_waiting_runs(tx: &mut dyn Tx, node: NodeId) -> Result<(), Refusal> {
    for run in tx.runs_waiting_for(node)? {
        tx.wake(Topic::Replies(run));
    }
    Ok(())
}

/// Checks that `key` belongs to the node. Runs for every call of a node, and again when a held call wakes up: a node
/// may be removed at any time.
pub fn is_member(read: &(impl Read + ?Sized), id: NodeId, key: &[u8]) -> Result<bool, Refusal> {
    let node = read.node(id)?.filter(|node| node.state() != State::Unregistered);
    Ok(node.is_some_and(|node| node.public_key == key))
}

/// The node that owns the key, unless the node was removed.
pub fn member(read: &(impl Read + ?Sized), key: &[u8]) -> Result<Option<NodeId>, Refusal> {
    let node = read.node_by_key(key)?.filter(|node| node.state() != State::Unregistered);
    Ok(node.map(|node| node.id))
}

/// Applies a heartbeat. Returns whether the node is online.
pub fn heartbeat(tx: &mut dyn Tx, id: NodeId, interval_s: f64, now: Seconds) -> Result<bool, Refusal> {
    check_interval(interval_s)?;
    let Some(mut node) = tx.node(id)? else { return Ok(false) };
    let was_online = matches!(node.state().at(now), State::Online { .. });
    if node.apply(Event::Heartbeat { interval_s }, now).is_err() {
        return Ok(false);
    }
    if !was_online {
        tx.wake(Topic::Nodes);
    }
    tx.put_node(&node)?;
    Ok(true)
}

/// Sets the name that a node reports for itself. If nodes have owners (`owned`), a name from the owner is kept.
pub fn name_itself(tx: &mut dyn Tx, id: NodeId, name: &str, owned: bool) -> Result<(), Refusal> {
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control) {
        let text = format!("a node's name has 1 to {MAX_NAME_CHARS} characters, and none that cannot be shown");
        return Err(Refusal::new(Kind::Invalid, text));
    }
    let mut node = known(tx, id)?;
    if node.name == name || (owned && !node.name.is_empty()) {
        return Ok(());
    }
    name.clone_into(&mut node.name);
    tx.put_node(&node)?;
    tx.wake(Topic::Nodes);
    Ok(())
}

/// Delivers the oldest instruction for the node. Delivers unconfirmed instructions again: a node pulls one message at a
/// time, so it has lost the previous answer.
pub fn pull(tx: &mut dyn Tx, node: NodeId, now: Seconds) -> Result<Option<(Instruction, Tree)>, Refusal> {
    while let Some(mut instruction) = tx.deliverable(node)? {
        let id = instruction.envelope.id;
        if instruction.envelope.expires_at() <= now || instruction.apply(message::Event::Pull).is_err() {
            drop_instruction(tx, &instruction)?;
            tx.wake(Topic::Replies(instruction.envelope.run));
            continue;
        }
        tx.put_instruction(&instruction)?;
        let tree = object::tree(tx, Scope::of_message(&instruction.envelope), id)?;
        return Ok(Some((instruction, tree)));
    }
    Ok(None)
}

/// Confirms that the node received all objects of the instruction.
pub fn confirm(tx: &mut dyn Tx, node: NodeId, run: RunId, id: MessageId) -> Result<(), Refusal> {
    running(tx, run)?;
    let Some(mut instruction) = tx.instruction(id)?.filter(|found| found.envelope.dst == node) else { return Ok(()) };
    if instruction.apply(message::Event::Confirm).is_ok() {
        tx.put_instruction(&instruction)?;
    }
    Ok(())
}

/// The result of a pushed reply.
#[derive(Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// The reply becomes ready once these objects arrived; children before parents.
    Announced { missing: Vec<MessageId> },
    /// The reply is not needed, for this reason. The node gets no error.
    Ignored(&'static str),
}

/// A reply as sent by a node.
#[derive(Debug, Clone)]
pub struct NewReply {
    pub envelope: Envelope,
    pub reply_to: MessageId,
    pub tree: Tree,
    pub runtime_s: f64,
}

/// Accepts a node's reply. An instruction gets one reply, however often the node sends it.
pub fn push_reply(tx: &mut dyn Tx, node: NodeId, new: &NewReply, now: Seconds) -> Result<PushOutcome, Refusal> {
    let envelope = &new.envelope;
    let mut run = running(tx, envelope.run)?;
    let mut errors = envelope.errors();
    if envelope.src != node {
        errors.push("`metadata.src_node_id` is not the sending node");
    }
    if envelope.dst != NodeId::SUPERLINK {
        errors.push("`metadata.dst_node_id` is not the SuperLink");
    }
    if new.tree.id != envelope.id {
        errors.push("`metadata.message_id` is not the root of the object tree");
    }
    if !errors.is_empty() {
        return Err(Refusal::new(Kind::Invalid, format!("Malformed PushMessages: {}", errors.join(", "))));
    }
    let mut instruction = match answerable(tx, node, new, now)? {
        Ok(instruction) => instruction,
        Err(why) => return Ok(PushOutcome::Ignored(why)),
    };
    let scope = Scope::of_message(envelope);
    let mut announcement = Announcement::new(scope);
    match tx.reply_to(new.reply_to)? {
        Some(reply) if reply.envelope.id == envelope.id => {
            announcement.announce(tx, &new.tree)?;
            return Ok(PushOutcome::Announced { missing: announcement.write(tx)? });
        }
        Some(reply) if reply.ready => return Ok(PushOutcome::Ignored("the instruction is answered already")),
        Some(reply) => drop_reply(tx, &reply)?,
        None => {}
    }
    if instruction.apply(message::Event::AnnounceReply).is_err() {
        return Ok(PushOutcome::Ignored("the instruction was never handed out or is answered already"));
    }
    if tx.reply(envelope.id)?.is_some() {
        return Err(Refusal::new(Kind::Invalid, format!("message {} answers another instruction", envelope.id)));
    }
    tx.put_instruction(&instruction)?;
    tx.put_reply(&Reply { envelope: envelope.clone(), reply_to: new.reply_to, ready: false })?;
    let root = announcement.hold(tx, &new.tree)?;
    check_outstanding(tx, node, root.tree_objects)?;
    let missing = announcement.write(tx)?;
    if root.is_complete() {
        object::complete_message(tx, scope, envelope.id)?;
    }
    if new.runtime_s.is_finite() && new.runtime_s > 0.0 {
        run.clientapp_runtime_s += new.runtime_s;
        tx.put_run(&run)?;
    }
    Ok(PushOutcome::Announced { missing })
}

/// Checks that the node may announce a reply with `new_objects` in addition to its incomplete replies.
fn check_outstanding(tx: &dyn Tx, node: NodeId, new_objects: u64) -> Result<(), Refusal> {
    if new_objects <= SMALL_TREE_OBJECTS {
        return Ok(());
    }
    let mut objects = new_objects;
    for instruction in tx.in_progress(node)? {
        let Some(reply) = tx.reply_to(instruction.envelope.id)? else { continue };
        let root = tx.object(Scope::of_message(&reply.envelope), reply.envelope.id)?;
        objects = objects.saturating_add(root.map_or(0, |root| root.tree_objects));
    }
    if objects <= MAX_OUTSTANDING_OBJECTS {
        return Ok(());
    }
    let text = format!(
        "node {node} would have {objects} objects of replies announced and not delivered; the limit is \
         {MAX_OUTSTANDING_OBJECTS}: push the objects of earlier replies first"
    );
    Err(Refusal::new(Kind::Transient, text))
}

/// Returns the instruction that `new` answers, or why there is none.
fn answerable(
    tx: &mut dyn Tx,
    node: NodeId,
    new: &NewReply,
    now: Seconds,
) -> Result<Result<Instruction, &'static str>, Refusal> {
    let Some(instruction) = tx.instruction(new.reply_to)? else {
        return Ok(Err("no such instruction, or it is over"));
    };
    let asked = &instruction.envelope;
    let reply = &new.envelope;
    let allowed_ttl_s = asked.expires_at() - reply.created_at;
    Ok(if asked.dst != node || asked.run != reply.run {
        Err("the instruction was for another node or run")
    } else if asked.expires_at() <= now {
        Err("the instruction has expired")
    } else if reply.ttl_s - allowed_ttl_s > TTL_TOLERANCE_S {
        Err("the reply would outlive its instruction")
    } else {
        Ok(instruction)
    })
}

/// Returns the run, or an error if it is not running.
pub fn running(read: &(impl Read + ?Sized), id: RunId) -> Result<run::Run, Refusal> {
    let Some(run) = read.run(id)? else {
        return Err(Refusal::new(Kind::RunOver, format!("Run ID not found: {id}")));
    };
    match run.state() {
        run::State::Running => Ok(run),
        run::State::Finished { outcome: run::Outcome::Stopped, .. } => {
            Err(Refusal::new(Kind::RunOver, "Run is finished. Stopped by user."))
        }
        state => Err(Refusal::new(Kind::RunOver, format!("Run is {}.", state.name()))),
    }
}

/// Deletes a reply and its objects.
pub(crate) fn drop_reply(tx: &mut dyn Tx, reply: &Reply) -> Result<(), Refusal> {
    tx.delete_reply(reply.envelope.id)?;
    object::release(tx, Scope::of_message(&reply.envelope), reply.envelope.id)
}

/// Deletes an instruction, its reply and all their objects.
pub(crate) fn drop_instruction(tx: &mut dyn Tx, instruction: &Instruction) -> Result<(), Refusal> {
    let id = instruction.envelope.id;
    if let Some(reply) = tx.reply_to(id)? {
        drop_reply(tx, &reply)?;
    }
    tx.delete_instruction(id)?;
    object::release(tx, Scope::of_message(&instruction.envelope), id)
}

fn known(read: &(impl Read + ?Sized), id: NodeId) -> Result<Node, Refusal> {
    read.node(id)?.ok_or_else(|| Refusal::new(Kind::Precondition, format!("Node ID {id} not found")))
}

fn check_interval(interval_s: f64) -> Result<(), Refusal> {
    if HEARTBEAT_INTERVAL_S.contains(&interval_s) {
        return Ok(());
    }
    Err(Refusal::new(Kind::Invalid, "Invalid heartbeat interval"))
}

//! Transactions of a ServerApp and its launcher: claim a run, pull inputs, push instructions, collect replies, finish.

use std::collections::HashSet;

use bytes::Bytes;

use crate::Seconds;
use crate::fleet::{drop_instruction, drop_reply, running};
use crate::id::{MessageId, NodeId, ObjectId, RunId};
use crate::message::{Envelope, Instruction, MessageError, Reply};
use crate::node;
use crate::object::{self, Announcement, Content, Object, Scope, Tree};
use crate::port::{Fab, Read, Topic, Tx};
use crate::refusal::{Kind, Refusal};
use crate::run::{self, MAX_LAUNCHES, MAX_RESTARTS, Outcome, Run, ServerApp};
use crate::token::{self, Token};

/// Claims the run for the caller, who must start its ServerApp with the secret behind `hash`. Returns `false` if the
/// run is already claimed or needs another kind of ServerApp.
pub fn claim(tx: &mut dyn Tx, id: RunId, server_app: ServerApp, hash: [u8; 32], now: Seconds) -> Result<bool, Refusal> {
    claim_with(tx, id, server_app, Token { run: id, hash, state: token::State::issue(now) }, now)
}

/// Like [`claim`], for a launcher that watches the process and calls [`process_exited`] after its end. Until then
/// nobody else can claim the run, however long the app takes to start.
pub fn claim_watched(
    tx: &mut dyn Tx,
    id: RunId,
    server_app: ServerApp,
    hash: [u8; 32],
    now: Seconds,
) -> Result<bool, Refusal> {
    claim_with(tx, id, server_app, Token { run: id, hash, state: token::State::issue_watched() }, now)
}

fn claim_with(tx: &mut dyn Tx, id: RunId, server_app: ServerApp, token: Token, now: Seconds) -> Result<bool, Refusal> {
    let Some(mut run) = tx.run(id)?.filter(|run| run.server_app == server_app) else { return Ok(false) };
    if run.apply(run::Event::Claim, now).is_err() {
        return Ok(false);
    }
    tx.put_run(&run)?;
    tx.wake(Topic::Run(id));
    tx.put_token(&token)?;
    Ok(true)
}

/// The inputs of a ServerApp.
#[derive(Debug)]
pub struct Inputs {
    pub run: Run,
    pub fab: Fab,
    pub context: Bytes,
}

/// Returns the inputs to the holder of the token and marks the run as running. `client` is the release of the app.
pub fn pull_inputs(tx: &mut dyn Tx, hash: &[u8; 32], client: &str, now: Seconds) -> Result<Inputs, Refusal> {
    let mut token = valid(tx, hash)?;
    let failed = |why: &dyn std::fmt::Display| {
        Refusal::new(Kind::Precondition, format!("Failed to start run {}: {why}", token.run))
    };
    let mut run = tx.run(token.run)?.ok_or_else(|| failed(&"it does not exist"))?;
    run.apply(run::Event::PullInputs, now).map_err(|why| failed(&why))?;
    let fab = tx.fab(&run.fab_hash)?.ok_or_else(|| failed(&"its FAB is missing"))?;
    let context = tx.context(run.id)?.ok_or_else(|| failed(&"its context is missing"))?;
    token.state = token::next(token.state, token::Event::PullInputs, now).map_err(|why| failed(&why))?;
    client.clone_into(&mut run.client);
    tx.put_run(&run)?;
    tx.wake(Topic::Run(run.id));
    tx.put_token(&token)?;
    Ok(Inputs { run, fab, context })
}

/// Renews the app's token. Returns whether the token is still valid.
pub fn heartbeat(tx: &mut dyn Tx, hash: &[u8; 32], now: Seconds) -> Result<bool, Refusal> {
    let Some(mut token) = tx.token_by_hash(hash)? else { return Ok(false) };
    let Ok(state) = token::next(token.state, token::Event::Heartbeat, now) else { return Ok(false) };
    token.state = state;
    tx.put_token(&token)?;
    Ok(true)
}

/// Shortens the token's timeout after the app's connection was closed.
pub fn hangup(tx: &mut dyn Tx, run: RunId, now: Seconds) -> Result<(), Refusal> {
    let Some(mut token) = tx.token(run)? else { return Ok(()) };
    if let Ok(state) = token::next(token.state, token::Event::Hangup, now) {
        token.state = state;
        tx.put_token(&token)?;
    }
    Ok(())
}

/// Stores the app's final context. The app still has to report that it finished.
pub fn push_outputs(tx: &mut dyn Tx, hash: &[u8; 32], run: RunId, context: &[u8], now: Seconds) -> Result<(), Refusal> {
    let mut token = valid(tx, hash)?;
    if token.run != run {
        return Err(invalid_token());
    }
    running(tx, run)?;
    token.state = token::next(token.state, token::Event::PushOutputs, now)
        .map_err(|why| Refusal::new(Kind::Precondition, why.to_string()))?;
    tx.put_context(run, context)?;
    tx.put_token(&token)
}

fn valid(tx: &mut dyn Tx, hash: &[u8; 32]) -> Result<Token, Refusal> {
    tx.token_by_hash(hash)?.ok_or_else(invalid_token)
}

fn invalid_token() -> Refusal {
    Refusal::new(Kind::Denied, "Invalid token.")
}

/// The result of announced instructions: the id of each, or `None` if its destination cannot receive messages.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    pub ids: Vec<Option<MessageId>>,
    /// Children before parents, without duplicates.
    pub missing: Vec<ObjectId>,
}

impl Pushed {
    /// Appends the result of another transaction.
    pub fn extend(&mut self, more: Pushed) {
        let listed: HashSet<ObjectId> = self.missing.iter().copied().collect();
        self.ids.extend(more.ids);
        self.missing.extend(more.missing.into_iter().filter(|id| !listed.contains(id)));
    }
}

/// Announces instructions of a running run.
pub fn push_messages(
    tx: &mut dyn Tx,
    run: RunId,
    messages: &[(Envelope, Tree)],
    now: Seconds,
) -> Result<Pushed, Refusal> {
    running(tx, run)?;
    let scope = Scope::of_app(run);
    let mut announcement = Announcement::new(scope);
    let mut ids = Vec::with_capacity(messages.len());
    for (envelope, tree) in messages {
        check_instruction(run, envelope, tree, now)?;
        let known = tx.instruction(envelope.id)?;
        if known.as_ref().is_some_and(|known| known.envelope.run != run) {
            return Err(Refusal::new(Kind::Invalid, format!("message {} belongs to another run", envelope.id)));
        }
        let known = known.is_some();
        if tx.reply_to(envelope.id)?.is_some_and(|reply| reply.ready) {
            // A late retry: the instruction is answered and needs no objects.
            ids.push(Some(envelope.id));
            continue;
        }
        if !known && !can_take(tx, envelope.dst, now)? {
            ids.push(None);
            continue;
        }
        if known {
            announcement.announce(tx, tree)?;
        } else {
            tx.put_instruction(&Instruction::new(envelope.clone()))?;
            if announcement.hold(tx, tree)?.is_complete() {
                object::complete_message(tx, scope, envelope.id)?;
            }
        }
        ids.push(Some(envelope.id));
    }
    Ok(Pushed { ids, missing: announcement.write(tx)? })
}

fn check_instruction(run: RunId, envelope: &Envelope, tree: &Tree, now: Seconds) -> Result<(), Refusal> {
    let mut errors = envelope.errors();
    if envelope.expires_at() <= now {
        errors.push("Message TTL has expired");
    }
    if envelope.run != run {
        errors.push("`Message.metadata` has mismatched `run_id`");
    }
    if envelope.src != NodeId::SUPERLINK {
        errors.push("`metadata.src_node_id` is not the SuperLink");
    }
    if tree.id != envelope.id {
        errors.push("`metadata.message_id` is not the root of the object tree");
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Refusal::new(Kind::Invalid, format!("Malformed PushMessages: {}", errors.join(", "))))
}

fn can_take(tx: &mut dyn Tx, node: NodeId, now: Seconds) -> Result<bool, Refusal> {
    let state = tx.node(node)?.map(|node| node.state().at(now));
    Ok(matches!(state, Some(node::State::Online { .. } | node::State::Offline)))
}

/// Why the SuperLink answers for a node. The codes are Flower's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    Message,
    Reply,
    Node,
}

impl Unavailable {
    pub fn error(self) -> MessageError {
        let (code, reason) = match self {
            Unavailable::Message => (3, "Message unavailable: the SuperLink does not know it, or it has expired."),
            Unavailable::Reply => (4, "Reply unavailable: it expired before it was pulled."),
            Unavailable::Node => (5, "Node unavailable: it is offline, unregistered, or lost the message too often."),
        };
        MessageError { code, reason: reason.to_owned() }
    }
}

pub(crate) enum ReplyStatus {
    Ready(Reply),
    Waiting,
    Unavailable(Unavailable, Option<Instruction>),
    OfAnotherRun,
}

pub(crate) fn reply_status(
    read: &(impl Read + ?Sized),
    run: RunId,
    id: MessageId,
    now: Seconds,
) -> Result<ReplyStatus, Refusal> {
    let (reply, instruction) = (read.reply_to(id)?, read.instruction(id)?);
    let envelopes = reply.iter().map(|reply| &reply.envelope).chain(instruction.iter().map(|found| &found.envelope));
    if envelopes.into_iter().any(|envelope| envelope.run != run) {
        return Ok(ReplyStatus::OfAnotherRun);
    }
    Ok(match (reply.filter(|reply| reply.ready), instruction) {
        (Some(reply), _) if reply.envelope.src == NodeId::SUPERLINK => ReplyStatus::Ready(reply),
        (Some(reply), instruction) if reply.envelope.expires_at() < now => {
            ReplyStatus::Unavailable(Unavailable::Reply, instruction)
        }
        (Some(reply), _) => ReplyStatus::Ready(reply),
        (None, None) => ReplyStatus::Unavailable(Unavailable::Message, None),
        // Flower gives the same answer for expired and unknown messages.
        (None, Some(instruction)) if instruction.envelope.expires_at() <= now => {
            ReplyStatus::Unavailable(Unavailable::Message, None)
        }
        (None, Some(instruction)) => match read.node(instruction.envelope.dst)?.map(|node| node.state().at(now)) {
            Some(node::State::Online { .. }) if !instruction.is_undeliverable() => ReplyStatus::Waiting,
            _ => ReplyStatus::Unavailable(Unavailable::Node, Some(instruction)),
        },
    })
}

/// Encodes the object of an error reply: (envelope without id, answered instruction) -> (id, bytes). The wire crate
/// implements it.
pub type EncodeErrorReply<'a> = &'a dyn Fn(&Envelope, MessageId) -> (MessageId, Bytes);

/// Ready replies, and instructions that will never get a reply.
#[derive(Debug, Default)]
pub struct Collected {
    pub replies: Vec<(Reply, Tree)>,
    pub unavailable: Vec<MessageId>,
    /// Messages of other runs. They stay unchanged.
    pub of_another_run: Vec<MessageId>,
}

/// Collects the replies that are ready.
pub fn collect_replies(
    read: &(impl Read + ?Sized),
    run: RunId,
    ids: &[MessageId],
    now: Seconds,
) -> Result<Collected, Refusal> {
    running(read, run)?;
    let mut collected = Collected::default();
    for id in ids {
        match reply_status(read, run, *id, now)? {
            ReplyStatus::Waiting => {}
            ReplyStatus::Ready(reply) => {
                let tree = object::tree(read, Scope::of_message(&reply.envelope), reply.envelope.id)?;
                collected.replies.push((reply, tree));
            }
            ReplyStatus::Unavailable(..) => collected.unavailable.push(*id),
            ReplyStatus::OfAnotherRun => collected.of_another_run.push(*id),
        }
    }
    Ok(collected)
}

/// Answers each of `ids` that will never get a reply with an error. Idempotent.
pub fn answer_missing(
    tx: &mut dyn Tx,
    run: RunId,
    ids: &[MessageId],
    now: Seconds,
    encode: EncodeErrorReply<'_>,
) -> Result<(), Refusal> {
    running(tx, run)?;
    for id in ids {
        if let ReplyStatus::Unavailable(why, instruction) = reply_status(tx, run, *id, now)? {
            answer_with_error(tx, run, *id, instruction, why, now, encode)?;
        }
    }
    Ok(())
}

/// Stores an error as the final reply to an instruction.
fn answer_with_error(
    tx: &mut dyn Tx,
    run: RunId,
    id: MessageId,
    instruction: Option<Instruction>,
    why: Unavailable,
    now: Seconds,
    encode: EncodeErrorReply<'_>,
) -> Result<(), Refusal> {
    let asked = instruction.map(|instruction| instruction.envelope);
    let mut envelope = Envelope {
        id,
        run,
        src: NodeId::SUPERLINK,
        dst: NodeId::SUPERLINK,
        group_id: asked.as_ref().map(|asked| asked.group_id.clone()).unwrap_or_default(),
        ttl_s: asked.as_ref().map_or(0.0, |asked| (asked.expires_at() - now).max(0.0)),
        src_task: None,
        dst_task: asked.as_ref().and_then(|asked| asked.src_task),
        message_type: asked.map_or_else(|| "system".to_owned(), |asked| asked.message_type),
        created_at: now,
        error: Some(why.error()),
    };
    let (reply_id, object) = encode(&envelope, id);
    envelope.id = reply_id;
    if let Some(old) = tx.reply_to(id)? {
        drop_reply(tx, &old)?;
    }
    let reply = Reply { envelope, reply_to: id, ready: true };
    tx.put_reply(&reply)?;
    let row = Object { references: 1, has_content: true, ..Object::new(Scope::of_app(run), reply_id) };
    tx.insert_object(&row, &[])?;
    tx.put_content(reply_id, &Content::Inline(object))?;
    object::answer(tx, id)
}

/// Deletes a reply and its instruction after the app received all objects of the reply.
pub fn confirm_reply(tx: &mut dyn Tx, run: RunId, id: MessageId) -> Result<(), Refusal> {
    running(tx, run)?;
    let Some(reply) = tx.reply(id)?.filter(|reply| reply.envelope.run == run) else { return Ok(()) };
    match tx.instruction(reply.reply_to)? {
        Some(instruction) => drop_instruction(tx, &instruction),
        None => drop_reply(tx, &reply),
    }
}

/// Finishes a run: deletes its token, messages and objects, and keeps its log and dates.
pub fn finish(tx: &mut dyn Tx, id: RunId, outcome: Outcome, details: &str, now: Seconds) -> Result<(), Refusal> {
    let Some(mut run) = tx.run(id)? else {
        return Err(Refusal::new(Kind::RunOver, format!("Run ID not found: {id}")));
    };
    let was_finished = run.state().is_finished();
    if let Err(why) = run.apply(run::Event::Finish { outcome, details: details.to_owned() }, now) {
        if was_finished {
            running(tx, id)?;
        }
        return Err(Refusal::new(Kind::Precondition, why.to_string()));
    }
    if was_finished {
        return Ok(());
    }
    tx.put_run(&run)?;
    tx.delete_token(id)?;
    forget_messages(tx, id)?;
    for topic in [Topic::Finished(id), Topic::Log(id), Topic::Replies(id), Topic::Run(id)] {
        tx.wake(topic);
    }
    Ok(())
}

/// Deletes all instructions and replies of a run.
fn forget_messages(tx: &mut dyn Tx, id: RunId) -> Result<(), Refusal> {
    for message in tx.instructions_of_run(id)? {
        if let Some(instruction) = tx.instruction(message)? {
            drop_instruction(tx, &instruction)?;
        }
    }
    for message in tx.replies_of_run(id)? {
        if let Some(reply) = tx.reply(message)? {
            drop_reply(tx, &reply)?;
        }
    }
    Ok(())
}

/// Restarts a native ServerApp that died: the caller starts a new process with the secret behind `hash`, which sends
/// the instructions again. Returns `false` if the run is not running or the app died too often.
pub fn restart(tx: &mut dyn Tx, id: RunId, hash: [u8; 32], now: Seconds) -> Result<bool, Refusal> {
    let Some(mut run) = tx.run(id)?.filter(|run| run.server_app == ServerApp::Native) else { return Ok(false) };
    let was_through = matches!(tx.token(id)?.map(|token| token.state), Some(token::State::Spent { .. }));
    if was_through || run.launches > MAX_RESTARTS || run.apply(run::Event::Restart, now).is_err() {
        return Ok(false);
    }
    tx.put_run(&run)?;
    tx.put_token(&Token { run: id, hash, state: token::State::issue_watched() })?;
    tx.wake(Topic::Run(id));
    forget_messages(tx, id)?;
    Ok(true)
}

/// Handles the end of a ServerApp's process. `reason` is shown to users if the run fails.
pub fn process_exited(tx: &mut dyn Tx, id: RunId, reason: &str, now: Seconds) -> Result<(), Refusal> {
    let Some(mut run) = tx.run(id)? else { return Ok(()) };
    match run.state() {
        run::State::Finished { .. } | run::State::Pending => Ok(()),
        run::State::Starting if run.launches < MAX_LAUNCHES => {
            run.apply(run::Event::LoseLaunch, now).map_err(|why| Refusal::new(Kind::Precondition, why.to_string()))?;
            tx.put_run(&run)?;
            tx.wake(Topic::Launch);
            tx.wake(Topic::Run(id));
            Ok(())
        }
        run::State::Starting => finish(tx, id, Outcome::Failed, reason, now),
        run::State::Running => match tx.token(id)?.map(|token| token.state) {
            Some(token::State::Spent { .. }) => finish(tx, id, Outcome::Completed, "", now),
            _ => finish(tx, id, Outcome::Failed, reason, now),
        },
    }
}

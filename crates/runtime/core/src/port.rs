//! The store port: rows, and how a change of them is made atomic and durable; content too large for a row ([`objects`]);
//! and where a test may have the process killed ([`crash`]).
//!
//! A store may be shared by several SuperLinks. So nothing here may be cached by the caller across transactions, and a
//! job may be run more than once before it is committed.

pub mod crash;
pub mod objects;

use std::time::Duration;

use bytes::Bytes;

use crate::Seconds;
use crate::account::Account;
use crate::audit;
use crate::census::Census;
use crate::id::{MessageId, NodeId, ObjectId, RunId};
use crate::message::{Instruction, Reply};
use crate::node::Node;
use crate::object::{Content, Object, Scope};
use crate::port::objects::Objects;
use crate::refusal::Refusal;
use crate::report::TrainingReport;
use crate::run::{Run, ServerApp};
use crate::secret::{self, Secret, SecretId};
use crate::token::Token;

/// Something that a waiting caller may be waiting for. Announced after the commit that made it true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// There is an instruction for this node.
    Node(NodeId),
    /// Something changed for the replies that this run waits for.
    Replies(RunId),
    /// A run may be claimed.
    Launch,
    /// The run has new log lines, or finished.
    Log(RunId),
    /// The run finished.
    Finished(RunId),
    /// The run is in another state, or has a new report.
    Run(RunId),
    /// A node came, went or changed.
    Nodes,
    /// One of the last two, of any run.
    Changes,
}

/// A FAB as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Fab {
    pub hash: String,
    pub content: Bytes,
    /// The front end's encoding of the verifications; the core hands it back unread.
    pub verifications: Vec<u8>,
}

/// Log text and the time of its last line.
#[derive(Debug, Clone, PartialEq)]
pub struct LogText {
    pub text: String,
    pub latest: Seconds,
}

/// Bytes that nodes exchanged with the SuperLink for a run, as seen from the SuperLink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// What can be asked. A reader sees one consistent moment.
pub trait Read {
    fn node(&self, id: NodeId) -> Result<Option<Node>, Refusal>;
    fn node_by_key(&self, public_key: &[u8]) -> Result<Option<Node>, Refusal>;
    fn nodes(&self) -> Result<Vec<Node>, Refusal>;
    /// The ids of the nodes that are online at `now`.
    fn online_nodes(&self, now: Seconds) -> Result<Vec<NodeId>, Refusal>;

    fn run(&self, id: RunId) -> Result<Option<Run>, Refusal>;
    fn runs(&self) -> Result<Vec<Run>, Refusal>;
    /// Runs that wait to be claimed, oldest first, and what must be started for each.
    fn pending_runs(&self) -> Result<Vec<(RunId, ServerApp)>, Refusal>;
    /// Runs that are not finished.
    fn unfinished_runs(&self) -> Result<Vec<Run>, Refusal>;
    fn traffic(&self, run: RunId) -> Result<Traffic, Refusal>;
    fn fab(&self, hash: &str) -> Result<Option<Fab>, Refusal>;
    fn context(&self, run: RunId) -> Result<Option<Bytes>, Refusal>;
    /// Log text after `after`, oldest first, at most about `limit_bytes`.
    fn log_after(&self, run: RunId, after: Seconds, limit_bytes: usize) -> Result<Option<LogText>, Refusal>;
    fn report(&self, run: RunId, round: u64, kind: &str) -> Result<Option<TrainingReport>, Refusal>;
    /// Reports of the rounds after `after` (`None`: of all), by round and then by kind. All of one round or none: at
    /// least those of one, and no more rounds once they have `limit_bytes`.
    fn reports_after(&self, run: RunId, after: Option<u64>, limit_bytes: usize)
    -> Result<Vec<TrainingReport>, Refusal>;

    fn token(&self, run: RunId) -> Result<Option<Token>, Refusal>;
    fn token_by_hash(&self, hash: &[u8; 32]) -> Result<Option<Token>, Refusal>;
    fn tokens_until(&self, until: Seconds) -> Result<Vec<Token>, Refusal>;

    fn instruction(&self, id: MessageId) -> Result<Option<Instruction>, Refusal>;
    /// The oldest instruction that may be handed to the node: ready, or delivered and not confirmed; not hopeless.
    fn deliverable(&self, node: NodeId) -> Result<Option<Instruction>, Refusal>;
    /// Instructions that the node may be at work on: confirmed, or with an incomplete reply.
    fn in_progress(&self, node: NodeId) -> Result<Vec<Instruction>, Refusal>;
    /// Runs that wait for an answer of the node.
    fn runs_waiting_for(&self, node: NodeId) -> Result<Vec<RunId>, Refusal>;
    fn instructions_of_run(&self, run: RunId) -> Result<Vec<MessageId>, Refusal>;
    /// Unanswered instructions whose time is up, the longest first.
    fn expired_instructions(&self, now: Seconds, limit: usize) -> Result<Vec<MessageId>, Refusal>;
    fn reply(&self, id: MessageId) -> Result<Option<Reply>, Refusal>;
    fn reply_to(&self, instruction: MessageId) -> Result<Option<Reply>, Refusal>;
    fn replies_of_run(&self, run: RunId) -> Result<Vec<MessageId>, Refusal>;
    /// The instructions of the run whose replies are ready. Asked with every reply that arrives: by an index alone.
    fn answered_instructions(&self, run: RunId) -> Result<Vec<MessageId>, Refusal>;

    fn object(&self, scope: Scope, id: ObjectId) -> Result<Option<Object>, Refusal>;
    /// An object of the run with this id whose content is stored, from any sender.
    fn object_here(&self, run: RunId, id: ObjectId) -> Result<Option<Object>, Refusal>;
    fn children(&self, scope: Scope, id: ObjectId) -> Result<Vec<ObjectId>, Refusal>;
    fn parents(&self, scope: Scope, id: ObjectId) -> Result<Vec<ObjectId>, Refusal>;
    /// The content, shared by all scopes.
    fn content(&self, id: ObjectId) -> Result<Option<Content>, Refusal>;
    fn has_content(&self, id: ObjectId) -> Result<bool, Refusal>;
    /// Number of objects in all scopes.
    fn object_count(&self) -> Result<u64, Refusal>;

    fn account(&self, id: &str) -> Result<Option<Account>, Refusal>;
    fn account_by_name(&self, name: &str) -> Result<Option<Account>, Refusal>;
    /// By name.
    fn accounts(&self) -> Result<Vec<Account>, Refusal>;
    fn secret(&self, hash: &secret::Hash) -> Result<Option<Secret>, Refusal>;
    fn secret_by_id(&self, id: SecretId) -> Result<Option<Secret>, Refusal>;
    /// All of them, oldest first.
    fn secrets(&self) -> Result<Vec<Secret>, Refusal>;
    /// Those that speak for the account or were issued by it, oldest first.
    fn secrets_of(&self, account: &str) -> Result<Vec<Secret>, Refusal>;
    /// Secrets that were over at `until`.
    fn ended_secrets(&self, until: Seconds, limit: usize) -> Result<Vec<Secret>, Refusal>;

    /// Audit entries after number `after`, oldest first.
    fn audit_after(&self, after: u64, limit: usize) -> Result<Vec<audit::Entry>, Refusal>;
    /// The newest audit entries, oldest of them first.
    fn audit_newest(&self, limit: usize) -> Result<Vec<audit::Entry>, Refusal>;
    /// Upper bound of the number of entries: also counts entries deleted from the middle of the log.
    fn audit_count(&self) -> Result<u64, Refusal>;

    /// How much there is of everything. Asked every few seconds, so it must not read whole tables of wide rows.
    fn census(&self, now: Seconds) -> Result<Census, Refusal>;

    /// When a SuperLink was last known to be at work on this store.
    fn alive_at(&self) -> Result<Option<Seconds>, Refusal>;
}

/// What can be changed. All or nothing.
pub trait Tx: Read {
    /// Announces `topic` once the change is committed.
    fn wake(&mut self, topic: Topic);

    fn put_node(&mut self, node: &Node) -> Result<(), Refusal>;
    fn put_run(&mut self, run: &Run) -> Result<(), Refusal>;
    fn add_traffic(&mut self, run: RunId, more: Traffic) -> Result<(), Refusal>;
    /// Stores a FAB. Verifications replace those of an earlier FAB with the same hash, unless there are none.
    fn put_fab(&mut self, fab: &Fab) -> Result<(), Refusal>;
    fn put_context(&mut self, run: RunId, context: &[u8]) -> Result<(), Refusal>;
    /// Appends to the run's log, at a time later than all before it.
    fn append_log(&mut self, run: RunId, now: Seconds, text: &str) -> Result<(), Refusal>;
    /// Keeps a report, in place of one of the same round and kind.
    fn put_report(&mut self, report: &TrainingReport) -> Result<(), Refusal>;
    fn put_token(&mut self, token: &Token) -> Result<(), Refusal>;
    fn delete_token(&mut self, run: RunId) -> Result<(), Refusal>;

    fn put_instruction(&mut self, instruction: &Instruction) -> Result<(), Refusal>;
    fn delete_instruction(&mut self, id: MessageId) -> Result<(), Refusal>;
    fn put_reply(&mut self, reply: &Reply) -> Result<(), Refusal>;
    fn delete_reply(&mut self, id: MessageId) -> Result<(), Refusal>;

    fn insert_object(&mut self, object: &Object, children: &[ObjectId]) -> Result<(), Refusal>;
    /// Writes the counters of a kept object.
    fn update_object(&mut self, object: &Object) -> Result<(), Refusal>;
    /// Stores content that is not stored yet.
    fn put_content(&mut self, id: ObjectId, content: &Content) -> Result<(), Refusal>;
    /// Content that turned out not to be needed: large content is removed after the commit.
    fn discard(&mut self, content: &Content);
    /// Deletes the object. Deleting the last object with this id also deletes the content; large content is removed after
    /// the commit.
    fn delete_object(&mut self, scope: Scope, id: ObjectId) -> Result<(), Refusal>;

    fn put_account(&mut self, account: &Account) -> Result<(), Refusal>;
    fn put_secret(&mut self, secret: &Secret) -> Result<(), Refusal>;
    fn delete_secret(&mut self, hash: &secret::Hash) -> Result<(), Refusal>;

    /// Writes an audit entry, with a number larger than all before it.
    fn append_audit(
        &mut self,
        at: Seconds,
        event: audit::Event,
        actor: &str,
        subject: &str,
        detail: &str,
    ) -> Result<u64, Refusal>;
    /// Deletes all but the newest `keep` audit entries, either of refused calls or of all other events.
    fn trim_audit(&mut self, refused: bool, keep: u64) -> Result<(), Refusal>;

    fn set_alive_at(&mut self, now: Seconds) -> Result<(), Refusal>;
}

/// One change. `run` may be called several times (the last one counts) and must not have effects outside of `tx`.
pub trait Job: Send {
    /// Makes the change; `false` undoes everything this call did.
    fn run(&mut self, tx: &mut dyn Tx) -> bool;
    /// Called once, after the change is durable or is known to be impossible.
    fn done(self: Box<Self>, committed: Result<(), Refusal>);
}

/// A commit that was tried.
pub struct Commit<'a> {
    /// What became true with it; nothing, if it failed.
    pub topics: &'a [Topic],
    /// Changes in it. 0: the commit of another process that shares the state.
    pub jobs: usize,
    pub took: Duration,
    pub worked: bool,
}

/// Called after each commit.
pub type OnCommit = Box<dyn Fn(&Commit<'_>) + Send + Sync>;

/// A store: readers at any time, changes one after another. Dropping it waits until everything submitted is committed.
pub trait Store: Send + Sync {
    /// Queues a change. Many changes may share one commit.
    fn submit(&self, job: Box<dyn Job>);
    /// Queues a change that may wait a moment for company: it is as durable as any other, only not as soon. Between
    /// changes submitted in the two ways no order is kept.
    fn submit_soon(&self, job: Box<dyn Job>);
    /// Calls `question` with a view of one moment.
    fn read(&self, question: &mut dyn FnMut(&dyn Read) -> Result<(), Refusal>) -> Result<(), Refusal>;
    /// Where content is that is too large for a row.
    fn objects(&self) -> &dyn Objects;
    /// Whether the last commit worked.
    fn works(&self) -> bool;
    /// Changes that wait for a commit.
    fn queue_length(&self) -> u64;
}

//! The store port: rows with atomic and durable transactions, large content ([`objects`]), and crash points for tests
//! ([`crash`]).
//!
//! Several SuperLinks may share a store. So callers must not cache rows across transactions, and a job may run more
//! than once before it is committed.

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

/// A condition that callers wait for. Announced after the commit that changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// The node has a new instruction.
    Node(NodeId),
    /// The replies that this run waits for changed.
    Replies(RunId),
    /// A run may be claimed.
    Launch,
    /// The run has new log lines, or finished.
    Log(RunId),
    /// The run finished.
    Finished(RunId),
    /// The run changed its state or has a new report.
    Run(RunId),
    /// A node was added, removed or changed.
    Nodes,
    /// Any `Run` or `Nodes` topic.
    Changes,
}

/// A stored FAB.
#[derive(Debug, Clone, PartialEq)]
pub struct Fab {
    pub hash: String,
    pub content: Bytes,
    /// Verifications in the front end's encoding. The core does not interpret them.
    pub verifications: Vec<u8>,
}

/// Minimum distance between two log entries of a run: readers ask for entries after a time, so no two times may be equal.
/// In this century an `f64` still represents this step.
pub const LOG_STEP_S: f64 = 0.000_002;

/// Log text and the time of its last line.
#[derive(Debug, Clone, PartialEq)]
pub struct LogText {
    pub text: String,
    pub latest: Seconds,
}

/// Bytes that nodes exchanged with the SuperLink for a run, from the SuperLink's point of view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// The queries. A reader sees one consistent snapshot.
pub trait Read {
    fn node(&self, id: NodeId) -> Result<Option<Node>, Refusal>;
    fn node_by_key(&self, public_key: &[u8]) -> Result<Option<Node>, Refusal>;
    fn nodes(&self) -> Result<Vec<Node>, Refusal>;
    /// Returns the ids of the nodes that are online at `now`.
    fn online_nodes(&self, now: Seconds) -> Result<Vec<NodeId>, Refusal>;

    fn run(&self, id: RunId) -> Result<Option<Run>, Refusal>;
    fn runs(&self) -> Result<Vec<Run>, Refusal>;
    /// Returns claimable runs, oldest first, with the kind of their ServerApp.
    fn pending_runs(&self) -> Result<Vec<(RunId, ServerApp)>, Refusal>;
    fn unfinished_runs(&self) -> Result<Vec<Run>, Refusal>;
    fn traffic(&self, run: RunId) -> Result<Traffic, Refusal>;
    fn fab(&self, hash: &str) -> Result<Option<Fab>, Refusal>;
    fn context(&self, run: RunId) -> Result<Option<Bytes>, Refusal>;
    /// Returns log text after `after`, oldest first, about `limit_bytes` at most.
    fn log_after(&self, run: RunId, after: Seconds, limit_bytes: usize) -> Result<Option<LogText>, Refusal>;
    fn report(&self, run: RunId, round: u64, kind: &str) -> Result<Option<TrainingReport>, Refusal>;
    /// Returns reports of the rounds after `after` (`None`: of all rounds), by round and kind. Rounds are never split:
    /// the result has at least one round, and stops after the round that reaches `limit_bytes`.
    fn reports_after(&self, run: RunId, after: Option<u64>, limit_bytes: usize)
    -> Result<Vec<TrainingReport>, Refusal>;

    fn token(&self, run: RunId) -> Result<Option<Token>, Refusal>;
    fn token_by_hash(&self, hash: &[u8; 32]) -> Result<Option<Token>, Refusal>;
    fn tokens_until(&self, until: Seconds) -> Result<Vec<Token>, Refusal>;

    fn instruction(&self, id: MessageId) -> Result<Option<Instruction>, Refusal>;
    /// Returns the oldest instruction that may be delivered to the node: ready, or delivered and not confirmed, and
    /// below the delivery limit.
    fn deliverable(&self, node: NodeId) -> Result<Option<Instruction>, Refusal>;
    /// Returns instructions that the node may be working on: confirmed, or with an incomplete reply.
    fn in_progress(&self, node: NodeId) -> Result<Vec<Instruction>, Refusal>;
    /// Returns runs with unanswered instructions for the node.
    fn runs_waiting_for(&self, node: NodeId) -> Result<Vec<RunId>, Refusal>;
    fn instructions_of_run(&self, run: RunId) -> Result<Vec<MessageId>, Refusal>;
    /// Returns unanswered expired instructions, oldest expiry first.
    fn expired_instructions(&self, now: Seconds, limit: usize) -> Result<Vec<MessageId>, Refusal>;
    fn reply(&self, id: MessageId) -> Result<Option<Reply>, Refusal>;
    fn reply_to(&self, instruction: MessageId) -> Result<Option<Reply>, Refusal>;
    fn replies_of_run(&self, run: RunId) -> Result<Vec<MessageId>, Refusal>;
    /// Returns the instructions of the run with ready replies. Runs for every reply, so it must use an index only.
    fn answered_instructions(&self, run: RunId) -> Result<Vec<MessageId>, Refusal>;

    fn object(&self, scope: Scope, id: ObjectId) -> Result<Option<Object>, Refusal>;
    /// Returns an object of the run with this id and with content, from any sender.
    fn object_with_content(&self, run: RunId, id: ObjectId) -> Result<Option<Object>, Refusal>;
    fn children(&self, scope: Scope, id: ObjectId) -> Result<Vec<ObjectId>, Refusal>;
    fn parents(&self, scope: Scope, id: ObjectId) -> Result<Vec<ObjectId>, Refusal>;
    /// Returns the content, which all scopes share.
    fn content(&self, id: ObjectId) -> Result<Option<Content>, Refusal>;
    fn has_content(&self, id: ObjectId) -> Result<bool, Refusal>;
    /// Returns the number of objects in all scopes.
    fn object_count(&self) -> Result<u64, Refusal>;

    fn account(&self, id: &str) -> Result<Option<Account>, Refusal>;
    fn account_by_name(&self, name: &str) -> Result<Option<Account>, Refusal>;
    /// Returns all accounts by name.
    fn accounts(&self) -> Result<Vec<Account>, Refusal>;
    fn secret(&self, hash: &secret::Hash) -> Result<Option<Secret>, Refusal>;
    fn secret_by_id(&self, id: SecretId) -> Result<Option<Secret>, Refusal>;
    /// Returns all secrets, oldest first.
    fn secrets(&self) -> Result<Vec<Secret>, Refusal>;
    /// Returns the secrets of the account, including those that it issued, oldest first.
    fn secrets_of(&self, account: &str) -> Result<Vec<Secret>, Refusal>;
    /// Returns secrets that had ended at `until`.
    fn ended_secrets(&self, until: Seconds, limit: usize) -> Result<Vec<Secret>, Refusal>;

    /// Returns audit entries after number `after`, oldest first.
    fn audit_after(&self, after: u64, limit: usize) -> Result<Vec<audit::Entry>, Refusal>;
    /// Returns the newest audit entries, oldest first.
    fn audit_newest(&self, limit: usize) -> Result<Vec<audit::Entry>, Refusal>;
    /// Returns an upper bound of the number of entries: it includes entries deleted from the middle of the log.
    fn audit_count(&self) -> Result<u64, Refusal>;

    /// Counts all rows. Runs every few seconds, so it must not scan tables with wide rows.
    fn census(&self, now: Seconds) -> Result<Census, Refusal>;

    /// Returns the last heartbeat of a SuperLink on this store.
    fn alive_at(&self) -> Result<Option<Seconds>, Refusal>;
}

/// The changes of a transaction. Atomic.
pub trait Tx: Read {
    /// Announces `topic` after the commit.
    fn wake(&mut self, topic: Topic);

    fn put_node(&mut self, node: &Node) -> Result<(), Refusal>;
    fn put_run(&mut self, run: &Run) -> Result<(), Refusal>;
    fn add_traffic(&mut self, run: RunId, more: Traffic) -> Result<(), Refusal>;
    /// Stores a FAB. Verifications replace those of an earlier FAB with the same hash, unless there are none.
    fn put_fab(&mut self, fab: &Fab) -> Result<(), Refusal>;
    fn put_context(&mut self, run: RunId, context: &[u8]) -> Result<(), Refusal>;
    /// Appends to the run's log, at a time later than all earlier entries.
    fn append_log(&mut self, run: RunId, now: Seconds, text: &str) -> Result<(), Refusal>;
    /// Stores a report. Replaces one of the same round and kind.
    fn put_report(&mut self, report: &TrainingReport) -> Result<(), Refusal>;
    fn put_token(&mut self, token: &Token) -> Result<(), Refusal>;
    fn delete_token(&mut self, run: RunId) -> Result<(), Refusal>;

    fn put_instruction(&mut self, instruction: &Instruction) -> Result<(), Refusal>;
    fn delete_instruction(&mut self, id: MessageId) -> Result<(), Refusal>;
    fn put_reply(&mut self, reply: &Reply) -> Result<(), Refusal>;
    fn delete_reply(&mut self, id: MessageId) -> Result<(), Refusal>;

    fn insert_object(&mut self, object: &Object, children: &[ObjectId]) -> Result<(), Refusal>;
    /// Updates the counters of a stored object.
    fn update_object(&mut self, object: &Object) -> Result<(), Refusal>;
    /// Stores content that is not stored yet.
    fn put_content(&mut self, id: ObjectId, content: &Content) -> Result<(), Refusal>;
    /// Removes large content without references after the commit.
    fn discard(&mut self, content: &Content);
    /// Deletes the object. Deleting the last object with this id also deletes the content; large content is removed after
    /// the commit.
    fn delete_object(&mut self, scope: Scope, id: ObjectId) -> Result<(), Refusal>;

    fn put_account(&mut self, account: &Account) -> Result<(), Refusal>;
    fn put_secret(&mut self, secret: &Secret) -> Result<(), Refusal>;
    fn delete_secret(&mut self, hash: &secret::Hash) -> Result<(), Refusal>;

    /// Appends an audit entry with a new largest number.
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

/// A transaction. `run` may be called several times; the last call counts. It must not have effects outside of `tx`.
pub trait Job: Send {
    /// Makes the change. `false` rolls back everything that this call did.
    fn run(&mut self, tx: &mut dyn Tx) -> bool;
    /// Called once, after the commit is durable or has failed.
    fn done(self: Box<Self>, committed: Result<(), Refusal>);
}

/// An attempted commit.
pub struct Commit<'a> {
    /// The announced topics; none if the commit failed.
    pub topics: &'a [Topic],
    /// Number of jobs. 0: another process that shares the store committed.
    pub jobs: usize,
    pub took: Duration,
    pub succeeded: bool,
}

/// Called after each commit.
pub type OnCommit = Box<dyn Fn(&Commit<'_>) + Send + Sync>;

/// A store: concurrent readers, serialised changes. Drop waits until all submitted jobs are committed.
pub trait Store: Send + Sync {
    /// Queues a job. Many jobs may share one commit.
    fn submit(&self, job: Box<dyn Job>);
    /// Queues a job whose commit may be delayed to share it with others. Durability is the same. There is no order
    /// between deferred and other jobs.
    fn submit_deferred(&self, job: Box<dyn Job>);
    /// Runs a query on a snapshot.
    fn read(&self, question: &mut dyn FnMut(&dyn Read) -> Result<(), Refusal>) -> Result<(), Refusal>;
    /// Returns the port for large content.
    fn objects(&self) -> &dyn Objects;
    /// Whether the last commit succeeded.
    fn is_healthy(&self) -> bool;
    /// Returns the number of jobs that wait for a commit.
    fn queue_length(&self) -> u64;
}

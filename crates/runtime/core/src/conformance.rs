//! The conformance suite of the [`Store`] port.
//!
//! The tests of a store open an empty store, wrap it as a [`Subject`] and call each case of [`suite`] with a new
//! subject. A case panics if the store violates the contract of the port. The suite knows nothing of the store's
//! implementation. Cases wait for events, not for the clock; [`TIMEOUT`] ends a test that hangs.

mod account;
mod audit;
mod census;
mod job;
mod large;
mod message;
mod node;
mod object;
mod report;
mod run;
mod token;

use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use crate::Seconds;
use crate::id::{MessageId, NodeId, ObjectId, RunId};
use crate::message::{Envelope, MessageError};
use crate::object::Scope;
use crate::port::{Job, Read, Store, Topic, Tx};
use crate::refusal::{Kind, Refusal};

/// Time limit for an answer of the store.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Ids that break stores with signed or floating-point numbers.
const AWKWARD_IDS: [u64; 5] = [2, (1 << 53) + 1, i64::MAX as u64, 1 << 63, u64::MAX];
/// Default scope of the objects in a case.
const SCOPE: Scope = Scope { run: RunId(u64::MAX), sender: NodeId::SUPERLINK };
/// The present of all cases.
const NOW: Seconds = 1_800_000_000.25;
/// Text that breaks stores with zero-terminated strings or with one byte per character.
const AWKWARD_TEXT: &str = "zero \0 within, quotes ' \" ` ;--, ünïcödé 🌱\r\n";

/// An empty store, and the topics that it announces, in order.
pub struct Subject<'a> {
    pub store: &'a dyn Store,
    pub announced: &'a Receiver<Vec<Topic>>,
}

/// A rule of the port and its test.
pub type Case = (&'static str, fn(&Subject<'_>));

/// All cases. Each needs its own subject.
pub fn suite() -> Vec<Case> {
    let machines = [node::CASES, run::CASES, token::CASES, message::CASES, object::CASES].concat();
    [&machines[..], large::CASES, report::CASES, account::CASES, audit::CASES, census::CASES, job::CASES].concat()
}

/// A job that sends the result of `work`. An error rolls the job back.
struct Call<T, W> {
    work: W,
    result: Option<Result<T, Refusal>>,
    answer: Sender<Result<T, Refusal>>,
}

impl<T: Send, W: FnMut(&mut dyn Tx) -> Result<T, Refusal> + Send> Job for Call<T, W> {
    fn run(&mut self, tx: &mut dyn Tx) -> bool {
        let result = (self.work)(tx);
        let keep = result.is_ok();
        self.result = Some(result);
        keep
    }

    fn done(self: Box<Self>, committed: Result<(), Refusal>) {
        let never_run = || Err(Refusal::new(Kind::Precondition, "the job was never run"));
        let Call { result, answer, .. } = *self;
        // The receiver may be gone.
        let _ = answer.send(committed.and_then(|()| result.unwrap_or_else(never_run)));
    }
}

/// Submits `work` and returns the receiver of its result.
pub fn submit<T, W>(store: &dyn Store, work: W) -> Receiver<Result<T, Refusal>>
where
    T: Send + 'static,
    W: FnMut(&mut dyn Tx) -> Result<T, Refusal> + Send + 'static,
{
    let (answer, result) = channel();
    store.submit(Box::new(Call { work, result: None, answer }));
    result
}

/// Submits `work` and waits for its result.
pub fn change<T, W>(store: &dyn Store, work: W) -> Result<T, Refusal>
where
    T: Send + 'static,
    W: FnMut(&mut dyn Tx) -> Result<T, Refusal> + Send + 'static,
{
    await_one(&submit(store, work))
}

/// Runs a query.
pub fn ask<T>(store: &dyn Store, question: impl Fn(&dyn Read) -> Result<T, Refusal>) -> Result<T, Refusal> {
    let mut answer = None;
    store.read(&mut |read| {
        answer = Some(question(read)?);
        Ok(())
    })?;
    Ok(answer.expect("the store calls the query"))
}

/// Waits for the next value, and panics after the time limit.
pub fn await_one<T>(from: &Receiver<T>) -> T {
    match from.recv_timeout(TIMEOUT) {
        Ok(value) => value,
        Err(why) => panic!("no answer from the store: {why}"),
    }
}

/// Blocks on a future of the store. A store that needs an async runtime is tested inside one.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park_timeout(TIMEOUT),
        }
    }
}

/// Makes a readable id from the bytes of the label.
pub fn id(label: &str) -> ObjectId {
    let mut bytes = [0; 32];
    assert!(label.len() <= bytes.len(), "label {label:?} is longer than an id");
    bytes[..label.len()].copy_from_slice(label.as_bytes());
    ObjectId::new(bytes)
}

impl Subject<'_> {
    /// Waits until `topic` is announced. Returns all topics announced so far.
    fn announced_until(&self, topic: Topic) -> Vec<Topic> {
        let mut heard = Vec::new();
        while !heard.contains(&topic) {
            heard.extend(await_one(self.announced));
        }
        heard
    }
}

/// Commits a change.
fn commit<W>(subject: &Subject<'_>, work: W)
where
    W: FnMut(&mut dyn Tx) -> Result<(), Refusal> + Send + 'static,
{
    change(subject.store, work).expect("the change is committed");
}

/// Runs a query that must succeed.
fn query<T>(subject: &Subject<'_>, question: impl Fn(&dyn Read) -> Result<T, Refusal>) -> T {
    ask(subject.store, question).expect("the query succeeds")
}

/// A message of `run` from the SuperLink to `dst`.
fn envelope(label: &str, run: RunId, dst: NodeId) -> Envelope {
    Envelope {
        id: id(label),
        run,
        src: NodeId::SUPERLINK,
        dst,
        group_id: "1".into(),
        ttl_s: 3600.0,
        message_type: "train".into(),
        created_at: NOW,
        src_task: None,
        dst_task: None,
        error: None,
    }
}

/// The same message with unusual values in every field.
fn awkward_envelope(label: &str, run: RunId, dst: NodeId) -> Envelope {
    Envelope {
        src: NodeId(u64::MAX - 1),
        group_id: AWKWARD_TEXT.into(),
        ttl_s: 0.1 + 0.2,
        message_type: "x".repeat(10_000),
        created_at: NOW + 1e-6,
        src_task: Some(u64::MAX),
        dst_task: Some(0),
        error: Some(MessageError { code: i64::MIN, reason: AWKWARD_TEXT.repeat(100) }),
        ..envelope(label, run, dst)
    }
}

/// Sorts ids whose order does not matter.
fn sorted(mut ids: Vec<MessageId>) -> Vec<MessageId> {
    ids.sort_unstable();
    ids
}

//! The suite that every [`Store`] must pass, whatever it is made of.
//!
//! A store's own tests open an empty store, wrap it as a [`Subject`] and call each case of [`suite`] with a new one. A
//! case panics where the store breaks the port's word. Nothing here knows what a store is made of, and nothing waits
//! for the clock: cases wait for events, with [`PATIENCE`] as the end of a test that hangs.

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

/// A store that has not answered after this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Ids that a store which thinks in signed or rounded numbers gets wrong.
const AWKWARD_IDS: [u64; 5] = [2, (1 << 53) + 1, i64::MAX as u64, 1 << 63, u64::MAX];
/// Default scope of the objects in a case.
const SCOPE: Scope = Scope { run: RunId(u64::MAX), sender: NodeId::SUPERLINK };
/// A moment of our time; cases reckon from here.
const NOW: Seconds = 1_800_000_000.25;
/// Text that a store which ends strings at zero, or counts bytes as letters, gets wrong.
const AWKWARD_TEXT: &str = "zero \0 within, quotes ' \" ` ;--, ünïcödé 🌱\r\n";

/// An empty store, and the topics that it announces, in the order in which it does.
pub struct Subject<'a> {
    pub store: &'a dyn Store,
    pub announced: &'a Receiver<Vec<Topic>>,
}

/// One promise of the port: what it says, and how it is put to the test.
pub type Case = (&'static str, fn(&Subject<'_>));

/// All cases. Each needs a subject of its own.
pub fn suite() -> Vec<Case> {
    let machines = [node::CASES, run::CASES, token::CASES, message::CASES, object::CASES].concat();
    [&machines[..], large::CASES, report::CASES, account::CASES, audit::CASES, census::CASES, job::CASES].concat()
}

/// A job that hands the result of `work` to whoever waits for it. A refusal by `work` undoes it.
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
        // Whoever does not listen any more does not want to know.
        let _ = answer.send(committed.and_then(|()| result.unwrap_or_else(never_run)));
    }
}

/// Submits `work` and says where its result will arrive.
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

/// Reads one thing.
pub fn ask<T>(store: &dyn Store, question: impl Fn(&dyn Read) -> Result<T, Refusal>) -> Result<T, Refusal> {
    let mut answer = None;
    store.read(&mut |read| {
        answer = Some(question(read)?);
        Ok(())
    })?;
    Ok(answer.expect("a reader asks its question"))
}

/// The next value, or the end of the test.
pub fn await_one<T>(from: &Receiver<T>) -> T {
    match from.recv_timeout(PATIENCE) {
        Ok(value) => value,
        Err(why) => panic!("the store gave no answer: {why}"),
    }
}

/// Waits for what a store does in its own time. A store that needs an async runtime is tested inside one.
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
            Poll::Pending => std::thread::park_timeout(PATIENCE),
        }
    }
}

/// An id that a failing test shows readably: the label, as far as it fits, in bytes.
pub fn id(label: &str) -> ObjectId {
    let mut bytes = [0; 32];
    assert!(label.len() <= bytes.len(), "label {label:?} is longer than an id");
    bytes[..label.len()].copy_from_slice(label.as_bytes());
    ObjectId::new(bytes)
}

impl Subject<'_> {
    /// Waits until `topic` is announced; says what was announced up to then.
    fn announced_until(&self, topic: Topic) -> Vec<Topic> {
        let mut heard = Vec::new();
        while !heard.contains(&topic) {
            heard.extend(await_one(self.announced));
        }
        heard
    }
}

/// Keeps what is handed in, in one job.
fn keep<W>(subject: &Subject<'_>, work: W)
where
    W: FnMut(&mut dyn Tx) -> Result<(), Refusal> + Send + 'static,
{
    change(subject.store, work).expect("a sound change is kept");
}

/// Asks and expects an answer.
fn see<T>(subject: &Subject<'_>, question: impl Fn(&dyn Read) -> Result<T, Refusal>) -> T {
    ask(subject.store, question).expect("a sound question is answered")
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

/// The same message with every part as awkward as it can be.
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

/// Ids in an order that does not matter.
fn sorted(mut ids: Vec<MessageId>) -> Vec<MessageId> {
    ids.sort_unstable();
    ids
}

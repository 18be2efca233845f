//! The world of the model: a store, a clock, and all announced objects.
//!
//! An object id always has the same children. The world reads everything else from the store.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use trellis_core::conformance::{ask, change, id};
use trellis_core::fleet::NewReply;
use trellis_core::id::{MessageId, NodeId, ObjectId, RunId};
use trellis_core::message::{Envelope, State};
use trellis_core::object::{Content, Scope, Tree, arrive};
use trellis_core::port::{Fab, Read, Tx};
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::run::{NewRun, ServerApp};
use trellis_core::{app, control, fleet, upkeep};
use trellis_store_sqlite::{SqliteStore, StateDirectory};

use crate::step::{BODIES, NODES, RUNS, Step};

const T0: f64 = 1_800_000_000.0;
const INTERVAL_S: f64 = 30.0;
/// Short enough to expire during a sequence.
const TTL_S: f64 = 300.0;

pub(crate) const RUN_IDS: [RunId; RUNS] = [RunId(u64::MAX), RunId(3)];
pub(crate) const NODE_IDS: [NodeId; NODES] = [NodeId(1 << 63), NodeId(12), NodeId(13)];

/// A pushed instruction.
pub(crate) struct Sent {
    pub(crate) envelope: Envelope,
    tree: Tree,
}

pub(crate) struct World {
    store: SqliteStore,
    now: f64,
    pub(crate) sent: Vec<Sent>,
    /// All announced objects with their children.
    pub(crate) universe: BTreeMap<ObjectId, Vec<ObjectId>>,
    replies: HashSet<MessageId>,
    _directory: tempfile::TempDir,
}

/// Message bodies: the same leaves in other combinations and depths.
fn body(number: usize) -> Tree {
    let leaf = |n: usize| Tree { id: id(&format!("leaf{n}")), children: vec![] };
    let middle = |n: usize| Tree { id: id(&format!("middle{n}")), children: vec![leaf(n), leaf((n + 1) % 3)] };
    let children = match number % BODIES {
        0 => vec![middle(0), middle(1)],
        1 => vec![middle(1), leaf(0)],
        2 => vec![middle(2), middle(2), leaf(3)],
        3 => vec![leaf(3)],
        // A child that is also a grandchild.
        _ => vec![leaf(0), middle(0), leaf(1)],
    };
    Tree { id: id(&format!("body{}", number % BODIES)), children }
}

fn key(node: usize) -> [u8; 4] {
    [b'k', b'e', b'y', node as u8]
}

fn hash(run: usize) -> [u8; 32] {
    [run as u8; 32]
}

impl World {
    /// Creates a world with all nodes online and all runs running.
    pub(crate) fn new() -> World {
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let state = StateDirectory::open(directory.path(), None).unwrap();
        let store = SqliteStore::open(Arc::new(state), Box::new(|_| ())).unwrap();
        let mut world = World {
            store,
            now: T0,
            sent: Vec::new(),
            universe: BTreeMap::new(),
            replies: HashSet::new(),
            _directory: directory,
        };
        for node in 0..NODES {
            world.take(&Step::Register { node });
            world.take(&Step::Activate { node });
        }
        for (number, run) in RUN_IDS.into_iter().enumerate() {
            world.act(move |tx| {
                let fab = Fab { hash: String::new(), content: Bytes::new(), verifications: vec![] };
                control::start_run(tx, run, NewRun::default(), &fab, b"", T0)?;
                app::claim(tx, run, ServerApp::Flower, hash(number), T0)?;
                app::pull_inputs(tx, &hash(number), "grpc", T0).map(drop)
            });
        }
        world
    }

    pub(crate) fn ask<T>(&self, question: impl Fn(&dyn Read) -> Result<T, Refusal>) -> T {
        ask(&self.store, question).expect("a readable store")
    }

    /// Makes a change. The core may refuse it, but not with a transient error.
    fn act<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut dyn Tx) -> Result<T, Refusal> + Send + 'static,
    ) -> Option<T> {
        match change(&self.store, work) {
            Ok(done) => Some(done),
            Err(refusal) => {
                assert_ne!(refusal.kind, Kind::Transient, "{refusal}: {:?}", refusal.source);
                None
            }
        }
    }

    pub(crate) fn object_count(&self) -> u64 {
        self.ask(|read| read.object_count())
    }

    pub(crate) fn message_states(&self) -> Vec<State> {
        let state = |sent: &Sent| self.ask(|read| read.instruction(sent.envelope.id)).map(|found| found.state());
        self.sent.iter().filter_map(state).collect()
    }

    pub(crate) fn is_finished(&self, run: RunId) -> bool {
        self.ask(|read| read.run(run)).is_some_and(|run| run.state().is_finished())
    }

    pub(crate) fn take(&mut self, step: &Step) {
        let now = self.now;
        match *step {
            Step::Wait { seconds } => self.now += f64::from(seconds),
            Step::PushMessage { run, node, body } => self.push_message(run, node, body),
            Step::PushAgain { message } => self.push_again(message),
            Step::Arrive { pick, many } => self.arrive(pick, many),
            Step::ArriveWrong { pick } => self.arrive_wrong(pick),
            Step::PushReply { message, version, body } => self.push_reply(message, version, body, false),
            Step::PushForeignReply { message, body } => self.push_reply(message, 9, body, true),
            Step::Collect { run } => self.collect(run),
            Step::ConfirmReplies { run } => self.confirm_replies(run),
            Step::Confirm { node, message } => self.confirm(node, message),
            _ => {
                let step = step.clone();
                self.act(move |tx| simple(tx, &step, now));
            }
        }
        self.learn_errors();
    }

    /// Returns one of the sent messages for any `number`.
    fn pick(&self, number: usize) -> Option<&Sent> {
        (!self.sent.is_empty()).then(|| &self.sent[number % self.sent.len()])
    }

    fn learn(&mut self, tree: &Tree) {
        let mut children: Vec<ObjectId> = Vec::new();
        for child in &tree.children {
            self.learn(child);
            if !children.contains(&child.id) {
                children.push(child.id);
            }
        }
        let known = self.universe.insert(tree.id, children.clone());
        assert!(known.is_none_or(|known| known == children), "the model is wrong: one id with two contents");
    }

    fn push_message(&mut self, run: usize, node: usize, number: usize) {
        let tree = Tree { id: id(&format!("i{}", self.sent.len())), children: vec![body(number)] };
        let envelope = Envelope {
            id: tree.id,
            run: RUN_IDS[run],
            src: NodeId::SUPERLINK,
            dst: NODE_IDS[node],
            group_id: String::new(),
            ttl_s: TTL_S,
            message_type: "train".into(),
            created_at: self.now,
            src_task: Some(7),
            dst_task: None,
            error: None,
        };
        self.learn(&tree);
        self.sent.push(Sent { envelope, tree });
        self.push_again(self.sent.len() - 1);
    }

    fn push_again(&mut self, number: usize) {
        let Some(Sent { envelope, tree }) = self.pick(number) else { return };
        let (message, run, now) = (vec![(envelope.clone(), tree.clone())], envelope.run, self.now);
        self.act(move |tx| app::push_messages(tx, run, &message, now));
    }

    /// Returns the scopes of all senders in all runs.
    pub(crate) fn scopes() -> impl Iterator<Item = Scope> {
        let senders = [NodeId::SUPERLINK].into_iter().chain(NODE_IDS);
        senders.flat_map(|sender| RUN_IDS.map(|run| Scope { run, sender }))
    }

    /// Returns announced objects without content.
    fn missing(&self) -> Vec<(Scope, ObjectId)> {
        let objects = World::scopes().flat_map(|scope| self.universe.keys().map(move |id| (scope, *id)));
        let is_missing = |(scope, id): &(Scope, ObjectId)| {
            self.ask(|read| read.object(*scope, *id)).is_some_and(|found| !found.has_content)
        };
        objects.filter(is_missing).collect()
    }

    fn arrive(&self, pick: usize, many: usize) {
        let missing = self.missing();
        let picked = missing.iter().cycle().skip(pick % missing.len().max(1)).take(many.min(missing.len()));
        for (scope, object) in picked.copied() {
            let children = self.universe[&object].clone();
            self.act(move |tx| arrive(tx, scope, object, &Content::Inline(Bytes::from_static(b"bytes")), &children));
        }
    }

    fn arrive_wrong(&self, pick: usize) {
        let missing = self.missing();
        if missing.is_empty() {
            return;
        }
        let (scope, object) = missing[pick % missing.len()];
        let mut children = self.universe[&object].clone();
        if children.pop().is_none() {
            children.push(id("stranger"));
        }
        let taken = self.act(move |tx| arrive(tx, scope, object, &Content::Inline(Bytes::new()), &children));
        assert_eq!(taken, None, "accepted content with other children");
    }

    fn confirm(&self, node: usize, message: usize) {
        let Some(sent) = self.pick(message) else { return };
        let (run, id) = (sent.envelope.run, sent.envelope.id);
        self.act(move |tx| fleet::confirm(tx, NODE_IDS[node], run, id));
    }

    fn push_reply(&mut self, message: usize, version: usize, number: usize, foreign: bool) {
        let Some(position) = (!self.sent.is_empty()).then(|| message % self.sent.len()) else { return };
        let asked = self.sent[position].envelope.clone();
        // The id covers the body.
        let name = id(&format!("r{position} version {version} body {number}"));
        let tree = Tree { id: name, children: vec![body(number)] };
        self.learn(&tree);
        self.replies.insert(name);
        let src = if foreign { NODE_IDS.into_iter().find(|node| *node != asked.dst).unwrap() } else { asked.dst };
        let ttl_s = (asked.expires_at() - self.now).max(1.0);
        let envelope = Envelope { id: name, src, dst: NodeId::SUPERLINK, ttl_s, created_at: self.now, ..asked.clone() };
        let new = NewReply { envelope, reply_to: asked.id, tree, runtime_s: 1.0 };
        let now = self.now;
        self.act(move |tx| fleet::push_reply(tx, src, &new, now));
    }

    fn collect(&mut self, run: usize) {
        let of_run = |sent: &&Sent| sent.envelope.run == RUN_IDS[run];
        let asked: Vec<MessageId> = self.sent.iter().filter(of_run).map(|sent| sent.envelope.id).collect();
        let now = self.now;
        self.act(move |tx| {
            app::answer_missing(tx, RUN_IDS[run], &asked, now, &encode)?;
            let first = app::collect_replies(tx, RUN_IDS[run], &asked, now)?;
            assert_eq!(first.unavailable, [], "an answered instruction stays answered");
            Ok(())
        });
    }

    /// Learns the ids of error replies, which the SuperLink makes.
    fn learn_errors(&mut self) {
        for run in RUN_IDS {
            for reply in self.ask(|read| read.replies_of_run(run)) {
                self.universe.entry(reply).or_default();
                self.replies.insert(reply);
            }
        }
    }

    fn confirm_replies(&self, run: usize) {
        for reply in self.ask(|read| read.replies_of_run(RUN_IDS[run])) {
            // An app confirms the replies that it collected.
            if self.ask(|read| read.reply(reply)).is_some_and(|reply| reply.ready) {
                self.act(move |tx| app::confirm_reply(tx, RUN_IDS[run], reply));
            }
        }
    }

    /// Returns all possible replies.
    pub(crate) fn replies(&self) -> impl Iterator<Item = &MessageId> {
        self.replies.iter()
    }

    pub(crate) fn finish_all(&self) {
        let now = self.now;
        for run in RUN_IDS {
            if !self.is_finished(run) {
                self.act(move |tx| control::stop_run(tx, run, now)).expect("stop an unfinished run");
            }
        }
    }
}

/// Applies a step that needs only the store.
fn simple(tx: &mut dyn Tx, step: &Step, now: f64) -> Result<(), Refusal> {
    match *step {
        Step::Register { node } => fleet::register(tx, NODE_IDS[node], ("aid", "name"), &key(node), now).map(drop),
        Step::Activate { node } => fleet::activate(tx, &key(node), INTERVAL_S, "grpc", now).map(drop),
        Step::Heartbeat { node } => fleet::heartbeat(tx, NODE_IDS[node], INTERVAL_S, now).map(drop),
        Step::Deactivate { node } => fleet::deactivate(tx, NODE_IDS[node], now),
        Step::Unregister { node } => fleet::unregister(tx, NODE_IDS[node], now),
        Step::AppHeartbeat { run } => app::heartbeat(tx, &hash(run), now).map(drop),
        Step::Pull { node } => fleet::pull(tx, NODE_IDS[node], now).map(drop),
        Step::CollectUnknown { run } => {
            app::answer_missing(tx, RUN_IDS[run], &[id(&format!("unknown{run}"))], now, &encode)
        }
        Step::Hangup { run } => app::hangup(tx, RUN_IDS[run], now),
        Step::PushOutputs { run } => app::push_outputs(tx, &hash(run), RUN_IDS[run], b"the end", now),
        Step::ProcessGone { run } => app::process_exited(tx, RUN_IDS[run], "gone", now),
        Step::Stop { run } => control::stop_run(tx, RUN_IDS[run], now),
        Step::Tick => upkeep::tick(tx, now),
        Step::Recover => upkeep::recover(tx, now),
        ref other => unreachable!("{other:?} needs the world"),
    }
}

/// Encodes an error reply. As in production, the id depends on the whole content.
fn encode(envelope: &Envelope, reply_to: MessageId) -> (MessageId, Bytes) {
    let mut name = *reply_to.as_bytes();
    name[15] = 0x80 | envelope.error.as_ref().expect("an error").code as u8;
    name[16..24].copy_from_slice(&envelope.run.0.to_be_bytes());
    name[24..].copy_from_slice(&envelope.created_at.to_be_bytes());
    (ObjectId::new(name), Bytes::from_static(b"error"))
}

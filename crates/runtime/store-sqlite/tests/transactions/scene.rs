//! The fixture: a store, nodes, a run, trees written as text, and two checks: is the state the same, and is anything
//! left.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use bytes::Bytes;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};
use trellis_core::awaited::Awaited;
use trellis_core::conformance::{ask, change, id};
use trellis_core::fleet::NewReply;
use trellis_core::id::{MessageId, NodeId, ObjectId, RunId};
use trellis_core::message::{Envelope, Reply, State};
use trellis_core::object::{Arrival, Content, Scope, Tree, arrive};
use trellis_core::port::{Fab, Read, Topic, Tx};
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::run::{NewRun, ServerApp};
use trellis_core::{app, control, fleet};
use trellis_store_sqlite::{SqliteStore, StateDirectory};

/// The start of every scene.
pub(crate) const T0: f64 = 1_800_000_000.0;
/// Heartbeat interval of the nodes: online for twice as long.
pub(crate) const INTERVAL_S: f64 = 30.0;
/// TTL of instructions unless a scene sets another.
pub(crate) const TTL_S: f64 = 1000.0;
pub(crate) const RUN: RunId = RunId(u64::MAX - 7);
/// Scope of the ServerApp of [`RUN`].
pub(crate) const APP: Scope = Scope { run: RUN, sender: NodeId::SUPERLINK };
/// The hash of the secret that [`Scene::running`] uses.
pub(crate) const HASH: [u8; 32] = [7; 32];

/// A change without external inputs.
pub(crate) type Step = fn(&mut dyn Tx) -> Result<(), Refusal>;

pub(crate) struct Scene {
    pub(crate) store: SqliteStore,
    directory: tempfile::TempDir,
}

/// The topics that the store announced.
pub(crate) struct Heard(Receiver<Vec<Topic>>);

impl Heard {
    /// Returns the topics since the last call, sorted. Topics are announced after `done`, so this first waits for an
    /// empty change.
    pub(crate) fn since(&self, scene: &Scene) -> Vec<Topic> {
        scene.ok(|_| Ok(()));
        let mut topics: Vec<Topic> = self.0.try_iter().flatten().collect();
        topics.sort_unstable();
        topics
    }
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene::listening(|_| ())
    }

    /// Like [`Scene::running`], and records announced topics.
    pub(crate) fn heard(nodes: &[u64]) -> (Scene, Heard) {
        let (tell, reported) = channel();
        let scene = Scene::listening(move |topics: &[Topic]| drop(tell.send(topics.to_vec())));
        scene.begin(nodes);
        (scene, Heard(reported))
    }

    fn listening(on_commit: impl Fn(&[Topic]) + Send + Sync + 'static) -> Scene {
        // In memory if possible: the disk is not tested here.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let state = Arc::new(StateDirectory::open(directory.path(), None).unwrap());
        Scene { store: SqliteStore::open(state, Box::new(move |commit| on_commit(commit.topics))).unwrap(), directory }
    }

    /// Creates a store with one running run and these nodes online.
    pub(crate) fn running(nodes: &[u64]) -> Scene {
        let scene = Scene::new();
        scene.begin(nodes);
        scene
    }

    fn begin(&self, nodes: &[u64]) {
        for n in nodes {
            self.online(*n, T0);
        }
        self.start(RUN, T0);
        assert!(self.ok(|tx| app::claim(tx, RUN, ServerApp::Flower, HASH, T0)));
        self.ok(|tx| app::pull_inputs(tx, &HASH, "grpc", T0));
    }

    /// Registers and activates a node with its own key.
    pub(crate) fn online(&self, n: u64, now: f64) -> NodeId {
        let node = self.ok(move |tx| fleet::register(tx, NodeId(n), ("aid", "name"), &key(n), now));
        assert_eq!(self.ok(move |tx| fleet::activate(tx, &key(n), INTERVAL_S, "grpc", now)), node);
        node
    }

    pub(crate) fn start(&self, run: RunId, now: f64) {
        self.start_as(ServerApp::Flower, run, now);
    }

    pub(crate) fn start_native(&self, run: RunId, now: f64) {
        self.start_as(ServerApp::Native, run, now);
    }

    fn start_as(&self, server_app: ServerApp, run: RunId, now: f64) {
        let fab = Fab { hash: "hash".into(), content: Bytes::from_static(b"fab"), verifications: vec![] };
        let new = NewRun { fab_hash: "hash".into(), server_app, ..NewRun::default() };
        self.ok(move |tx| control::start_run(tx, run, new.clone(), &fab, b"context", now));
    }

    pub(crate) fn act<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut dyn Tx) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        change(&self.store, work)
    }

    pub(crate) fn ok<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut dyn Tx) -> Result<T, Refusal> + Send + 'static,
    ) -> T {
        self.act(work).expect("an accepted change")
    }

    /// Runs a change twice, as after a lost answer. The second must return the same and change nothing.
    pub(crate) fn twice<T: PartialEq + Debug + Send + 'static>(
        &self,
        work: impl FnMut(&mut dyn Tx) -> Result<T, Refusal> + Clone + Send + 'static,
    ) -> T {
        let first = self.ok(work.clone());
        let state = self.dump();
        assert_eq!(self.ok(work), first, "the retry returned something else");
        assert_eq!(self.dump(), state, "the retry changed the state");
        first
    }

    /// Expects an error, which changes nothing.
    pub(crate) fn refused<T: Debug + Send + 'static>(
        &self,
        work: impl FnMut(&mut dyn Tx) -> Result<T, Refusal> + Send + 'static,
    ) -> (Kind, String) {
        let before = self.dump();
        let refusal = self.act(work).expect_err("a refusal");
        assert_eq!(self.dump(), before, "a refused change changed the state");
        (refusal.kind, refusal.to_string())
    }

    pub(crate) fn see<T>(&self, question: impl Fn(&dyn Read) -> Result<T, Refusal>) -> T {
        ask(&self.store, question).expect("the query succeeds")
    }

    /// Dumps every row of every table as text.
    pub(crate) fn dump(&self) -> String {
        let path = self.directory.path().join("state.db");
        let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let sql = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
        let mut tables = database.prepare(sql).unwrap();
        let tables = tables.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
        let mut lines = Vec::new();
        for table in tables {
            let mut statement = database.prepare(&format!("SELECT * FROM {table}")).unwrap();
            let columns = statement.column_count();
            let rows = statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect()).unwrap();
            lines.extend(rows.map(|row: rusqlite::Result<Vec<Value>>| format!("{table} {:?}", row.unwrap())));
        }
        lines.sort_unstable();
        lines.join("\n")
    }

    /// Pushes instructions of [`RUN`]: (tree, destination).
    pub(crate) fn push(&self, messages: &[(&str, u64)], now: f64) -> app::Pushed {
        let messages = instructions(messages, now);
        self.ok(move |tx| app::push_messages(tx, RUN, &messages, now))
    }

    /// Pushes one instruction and all its objects.
    pub(crate) fn send(&self, written: &str, dst: u64, now: f64) -> MessageId {
        let pushed = self.push(&[(written, dst)], now);
        self.upload(written, &pushed.missing);
        pushed.ids[0].expect("an accepted instruction")
    }

    /// Uploads the missing objects of the tree, children first.
    pub(crate) fn upload(&self, written: &str, missing: &[ObjectId]) {
        self.upload_from(APP, written, missing);
    }

    pub(crate) fn upload_from(&self, scope: Scope, written: &str, missing: &[ObjectId]) {
        for (object, children) in objects(&tree(written)) {
            if missing.contains(&object) {
                assert_ne!(self.arrive_from(scope, object, children), Arrival::Unannounced);
            }
        }
    }

    /// Pushes an object as the ServerApp.
    pub(crate) fn arrive(&self, object: ObjectId, children: Vec<ObjectId>) -> Arrival {
        self.arrive_from(APP, object, children)
    }

    pub(crate) fn arrive_from(&self, scope: Scope, object: ObjectId, children: Vec<ObjectId>) -> Arrival {
        let content = Content::Inline(Bytes::copy_from_slice(object.as_bytes()));
        self.ok(move |tx| arrive(tx, scope, object, &content, &children))
    }

    pub(crate) fn pull(&self, node: u64, now: f64) -> Option<MessageId> {
        let pulled = self.ok(move |tx| fleet::pull(tx, NodeId(node), now));
        pulled.map(|(instruction, tree)| {
            assert_eq!(tree.id, instruction.envelope.id);
            instruction.envelope.id
        })
    }

    pub(crate) fn confirm(&self, node: u64, instruction: MessageId) {
        self.ok(move |tx| fleet::confirm(tx, NodeId(node), RUN, instruction));
    }

    pub(crate) fn push_reply(&self, node: u64, reply: NewReply, now: f64) -> fleet::PushOutcome {
        self.ok(move |tx| fleet::push_reply(tx, NodeId(node), &reply, now))
    }

    /// Pushes a reply and all its objects.
    pub(crate) fn answer(&self, node: u64, written: &str, to: MessageId, now: f64) -> MessageId {
        let reply = reply(node, written, to, now);
        let id = reply.envelope.id;
        match self.push_reply(node, reply, now) {
            fleet::PushOutcome::Announced { missing } => self.upload_from(node_scope(node), written, &missing),
            fleet::PushOutcome::Ignored(why) => panic!("ignored: {why}"),
        }
        id
    }

    /// The replies of [`Scene::collect_trees`] without their trees.
    pub(crate) fn collect(&self, ids: &[MessageId], now: f64) -> Vec<Reply> {
        self.collect_trees(ids, now).into_iter().map(|(reply, _)| reply).collect()
    }

    /// Collects as a front end does: ready replies, then errors for replies that never arrive, then all.
    pub(crate) fn collect_trees(&self, ids: &[MessageId], now: f64) -> Vec<(Reply, Tree)> {
        let mut collected = self.see(|read| app::collect_replies(read, RUN, ids, now));
        if !collected.unavailable.is_empty() {
            let never = collected.unavailable;
            self.ok(move |tx| app::answer_missing(tx, RUN, &never, now, &encode));
            collected = self.see(|read| app::collect_replies(read, RUN, ids, now));
        }
        assert_eq!(collected.unavailable, [], "an answered instruction stays answered");
        collected.replies
    }

    /// Counts the replies that are not settled.
    pub(crate) fn waiting(&self, ids: &[MessageId], now: f64) -> usize {
        let waits = |id: &&MessageId| self.see(|read| Awaited::new(RUN, vec![**id], 0, now).check(read, now)).is_none();
        ids.iter().filter(waits).count()
    }

    pub(crate) fn state_of(&self, instruction: MessageId) -> Option<State> {
        self.see(|read| read.instruction(instruction)).map(|instruction| instruction.state())
    }

    pub(crate) fn objects(&self) -> u64 {
        self.see(|read| read.object_count())
    }

    /// Checks that no object, message, token or file is left.
    pub(crate) fn nothing_left(&self, run: RunId) {
        assert_eq!(self.objects(), 0, "{}", self.dump());
        assert_eq!(self.see(|read| read.instructions_of_run(run)), []);
        assert_eq!(self.see(|read| read.replies_of_run(run)), []);
        assert_eq!(self.see(|read| read.token(run)), None);
        let rows = self.dump();
        let left = rows.lines().find(|row| row.starts_with("object"));
        assert_eq!(left, None, "a row of a missing object");
        assert_eq!(self.count_files(), 0);
    }

    pub(crate) fn count_files(&self) -> usize {
        self.ok(|_| Ok(())); // Files are removed after `done`: the next answer comes after their removal.
        let mut files = 0;
        let mut directories = vec![self.directory.path().join("objects")];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { directories.push(path) } else { files += 1 }
            }
        }
        files
    }
}

/// Scope of a node in [`RUN`].
pub(crate) fn node_scope(node: u64) -> Scope {
    Scope { run: RUN, sender: NodeId(node) }
}

pub(crate) fn key(n: u64) -> Vec<u8> {
    format!("key of {n}").into_bytes()
}

/// Parses a tree: `a(b c(d))` is a with the children b and c, and d below c.
pub(crate) fn tree(written: &str) -> Tree {
    fn grow(rest: &mut &str) -> Tree {
        let end = rest.find(['(', ')', ' ']).unwrap_or(rest.len());
        let (label, tail) = rest.split_at(end);
        assert!(!label.is_empty(), "an object without a label: {rest:?}");
        *rest = tail;
        let mut children = Vec::new();
        if let Some(tail) = rest.strip_prefix('(') {
            *rest = tail;
            while !rest.starts_with(')') {
                *rest = rest.trim_start();
                children.push(grow(rest));
            }
            *rest = &rest[1..];
        }
        Tree { id: id(label), children }
    }
    let mut rest = written;
    let tree = grow(&mut rest);
    assert_eq!(rest, "", "text after the root");
    tree
}

/// Returns every object of a tree once with its children, children before parents.
pub(crate) fn objects(tree: &Tree) -> Vec<(ObjectId, Vec<ObjectId>)> {
    let mut all: Vec<(ObjectId, Vec<ObjectId>)> = tree.children.iter().flat_map(objects).collect();
    all.push((tree.id, tree.children.iter().map(|child| child.id).collect()));
    let mut seen = std::collections::HashSet::new();
    all.retain(|(object, _)| seen.insert(*object));
    all
}

/// Returns instructions of [`RUN`] as a ServerApp sends them.
pub(crate) fn instructions(messages: &[(&str, u64)], now: f64) -> Vec<(Envelope, Tree)> {
    let one = |(written, dst): &(&str, u64)| {
        let tree = tree(written);
        let envelope = Envelope {
            id: tree.id,
            run: RUN,
            src: NodeId::SUPERLINK,
            dst: NodeId(*dst),
            group_id: "1".into(),
            ttl_s: TTL_S,
            message_type: "train".into(),
            created_at: now,
            src_task: Some(7),
            dst_task: None,
            error: None,
        };
        (envelope, tree)
    };
    messages.iter().map(one).collect()
}

/// Returns a reply as a node sends it. It expires with an instruction of [`T0`].
pub(crate) fn reply(node: u64, written: &str, to: MessageId, now: f64) -> NewReply {
    let (envelope, tree) = instructions(&[(written, 1)], now).remove(0);
    let envelope = Envelope { src: NodeId(node), dst: NodeId::SUPERLINK, ttl_s: T0 + TTL_S - now, ..envelope };
    NewReply { envelope, reply_to: to, tree, runtime_s: 0.5 }
}

/// Encodes an error reply. As in production, the id depends on the whole content.
pub(crate) fn encode(envelope: &Envelope, reply_to: MessageId) -> (MessageId, Bytes) {
    let code = envelope.error.as_ref().expect("an error").code;
    let mut name = *reply_to.as_bytes();
    name[23] ^= 0x80 | code as u8;
    name[24..].copy_from_slice(&envelope.created_at.to_be_bytes());
    (ObjectId::new(name), Bytes::from(format!("error {code}")))
}

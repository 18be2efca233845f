use trellis_wire::object::object_id;

use super::*;

const CHUNK: &[u8] = b"ArrayChunk  2\0ab";
const OTHER: &[u8] = b"ArrayChunk  2\0cd";

fn tree(id: MessageId, children: &[&[u8]]) -> proto::ObjectTree {
    let leaf = |bytes: &&[u8]| proto::ObjectTree { object_id: object_id(bytes).to_string(), children: Vec::new() };
    proto::ObjectTree { object_id: id.to_string(), children: children.iter().map(leaf).collect() }
}

fn instruction(run: u64) -> proto::Message {
    let metadata = proto::Metadata { run_id: run, created_at: 100.0, ttl: 50.0, ..Default::default() };
    proto::Message { metadata: Some(metadata), ..Default::default() }
}

fn id(name: &str) -> MessageId {
    object_id(name.as_bytes())
}

fn answer(name: &str, children: &[&[u8]], context: Option<proto::Context>) -> Answer {
    Answer { message: instruction(7), tree: tree(id(name), children), context, runtime_s: 0.5 }
}

struct Scene {
    directory: tempfile::TempDir,
    store: Arc<Store>,
}

impl Scene {
    fn new() -> Scene {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        Scene { directory, store }
    }

    fn receive(&self, name: &str, children: &[&[u8]]) -> Receipt {
        for bytes in children {
            self.store.objects().put(object_id(bytes), bytes).unwrap();
        }
        self.store.receive(id(name), &instruction(7), &tree(id(name), children), 101.0).unwrap()
    }

    fn restart(self) -> Scene {
        let Scene { directory, store } = self;
        drop(store);
        let store = Store::open(directory.path()).unwrap();
        Scene { directory, store }
    }

    fn steps(&self, name: &str, events: &[Event]) {
        for event in events {
            assert!(self.store.step(id(name), *event).unwrap(), "{event:?}");
        }
    }
}

#[test]
fn an_instruction_and_its_reply_survive_restarts() {
    let scene = Scene::new();
    assert_eq!(scene.receive("a", &[CHUNK]), Receipt::New);
    assert_eq!(scene.receive("a", &[CHUNK]), Receipt::Again(State::Fetching));
    scene.steps("a", &[Event::Fetched, Event::Started]);
    let scene = scene.restart();
    let work = scene.store.all_work().unwrap().pop().unwrap();
    assert_eq!((work.state, work.attempts, work.expires_at, work.run), (State::Running, 1, 150.0, RunId(7)));

    let context = proto::Context { run_id: 7, node_id: 3, ..Default::default() };
    scene.store.put_run(&proto::Run { run_id: 7, ..Default::default() }, 102.0).unwrap();
    scene.store.objects().put(object_id(OTHER), OTHER).unwrap();
    assert!(scene.store.answer(id("a"), &answer("reply", &[OTHER], Some(context.clone())), 103.0).unwrap());
    assert!(!scene.store.objects().has(object_id(CHUNK)), "an answered instruction needs no objects");

    let scene = scene.restart();
    let pending = scene.store.oldest_pending().unwrap().unwrap();
    assert_eq!((pending.id, pending.tree.object_id, pending.runtime_s), (id("a"), id("reply").to_string(), 0.5));
    assert_eq!(scene.store.waiting().unwrap(), Waiting { replies: 1, bytes: 16, oldest_at: Some(103.0) });
    assert_eq!(scene.store.run(RunId(7)).unwrap().unwrap().context, Some(context));
    assert!(scene.store.objects().has(object_id(OTHER)));
    scene.store.forget(id("a")).unwrap();
    assert!(scene.store.oldest_pending().unwrap().is_none());
    assert!(scene.store.objects().all().unwrap().is_empty());
}

#[test]
fn an_object_is_removed_when_it_becomes_unreferenced() {
    let scene = Scene::new();
    scene.receive("a", &[CHUNK]);
    scene.receive("b", &[CHUNK]);
    scene.store.forget(id("a")).unwrap();
    assert!(scene.store.objects().has(object_id(CHUNK)));
    // The answer may contain an object of its instruction.
    scene.steps("b", &[Event::Fetched, Event::Started]);
    scene.store.answer(id("b"), &answer("reply", &[CHUNK], None), 103.0).unwrap();
    assert!(scene.store.objects().has(object_id(CHUNK)));
    scene.store.forget(id("b")).unwrap();
    assert!(!scene.store.objects().has(object_id(CHUNK)));
}

#[test]
fn a_damaged_reply_is_executed_again() {
    let scene = Scene::new();
    scene.receive("a", &[CHUNK]);
    scene.steps("a", &[Event::Fetched, Event::Started]);
    scene.store.answer(id("a"), &answer("reply", &[OTHER], None), 103.0).unwrap();
    scene.steps("a", &[Event::ObjectsLost]);
    assert!(scene.store.oldest_pending().unwrap().is_none());
    let work = scene.store.work(id("a")).unwrap().unwrap();
    assert_eq!((work.state, work.attempts), (State::Fetching, 1));
    scene.store.objects().put(object_id(CHUNK), CHUNK).unwrap();
    let scene = scene.restart();
    assert!(scene.store.objects().has(object_id(CHUNK)), "it is referenced again");
}

#[test]
fn the_oldest_reply_is_first_and_runs_are_removed_completely() {
    let scene = Scene::new();
    scene.store.put_run(&proto::Run { run_id: 7, ..Default::default() }, 102.0).unwrap();
    for (name, at) in [("a", 105.0), ("b", 104.0)] {
        scene.receive(name, &[CHUNK]);
        scene.steps(name, &[Event::Fetched, Event::Started]);
        scene.store.answer(id(name), &answer(name, &[OTHER], None), at).unwrap();
    }
    assert_eq!(scene.store.oldest_pending().unwrap().unwrap().id, id("b"));
    assert_eq!(scene.store.forget_run(RunId(7)).unwrap(), 2);
    assert!(scene.store.run(RunId(7)).unwrap().is_none());
    assert!(!scene.store.step(id("a"), Event::Postponed).unwrap(), "a removed instruction stays removed");
    assert!(!scene.store.answer(id("a"), &answer("a", &[], None), 106.0).unwrap());
}

#[test]
fn the_identity_is_stored_per_superlink() {
    let scene = Scene::new();
    scene.store.set_node_id("one:9092", NodeId(u64::MAX)).unwrap();
    scene.store.set_node_id("two:9092", NodeId(5)).unwrap();
    let scene = scene.restart();
    assert_eq!(scene.store.node_id("one:9092").unwrap(), Some(NodeId(u64::MAX)));
    assert_eq!(scene.store.node_id("two:9092").unwrap(), Some(NodeId(5)));
    assert_eq!(scene.store.node_id("three:9092").unwrap(), None);
}

#[test]
fn a_directory_excludes_other_nodes_and_older_programs() {
    let scene = Scene::new();
    let second = Store::open(scene.directory.path()).map(drop).unwrap_err();
    assert!(matches!(second, StoreError::InUse { .. }), "{second}");
    scene.store.connection().pragma_update(None, "user_version", 99).unwrap();
    let Scene { directory, store } = scene;
    drop(store);
    let older = Store::open(directory.path()).map(drop).unwrap_err();
    assert!(matches!(older, StoreError::TooNew { found: 99, .. }), "{older}");
}

#[test]
fn a_temporary_state_has_no_database_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let scene = Scene { store: Store::temporary(directory.path()).unwrap(), directory };
    assert_eq!(scene.receive("a", &[CHUNK]), Receipt::New);
    assert!(scene.store.objects().has(object_id(CHUNK)) && scene.store.work(id("a")).unwrap().is_some());
    let files = |path: &str| std::fs::read_dir(scene.directory.path().join(path)).unwrap().count();
    assert_eq!((files("."), files("objects")), (2, 0), "only the lock and the directory of objects");
    let second = Store::temporary(scene.directory.path()).map(drop).unwrap_err();
    assert!(matches!(second, StoreError::InUse { .. }), "{second}");
}

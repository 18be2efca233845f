//! Migration of states of older versions.

use std::path::Path;

use rusqlite::Connection;
use trellis_core::conformance::id;
use trellis_core::id::{NodeId, RunId};
use trellis_core::message::State;
use trellis_core::run::ServerApp;
use trellis_store_sqlite::{DatabaseState, inspect};

use super::{SCOPE, open, see};

/// Written by a program of version 1.
const V1: &str = include_str!("state-v1.sql");
const NOW: f64 = 1_800_000_000.5;

/// A state directory with a database of version 1.
fn version_1() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    Connection::open(directory.path().join("state.db")).unwrap().execute_batch(V1).unwrap();
    directory
}

/// The definitions of all tables and indexes.
fn shape(database: &Path) -> Vec<String> {
    let database = Connection::open(database).unwrap();
    let sql = "SELECT name || ': ' || sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name";
    let mut statement = database.prepare(sql).unwrap();
    let lines = statement.query_map([], |row| row.get(0)).unwrap();
    lines.collect::<rusqlite::Result<_>>().unwrap()
}

#[test]
fn version_1_gets_the_schema_of_a_new_state() {
    let (old, fresh) = (version_1(), tempfile::tempdir().unwrap());
    assert_eq!(inspect(&old.path().join("state.db")), DatabaseState::NeedsUpgrade { from: 1, to: 4 });
    drop(open(old.path()));
    drop(open(fresh.path()));
    assert_eq!(inspect(&old.path().join("state.db")), DatabaseState::Current);
    assert_eq!(shape(&old.path().join("state.db")), shape(&fresh.path().join("state.db")));
    let left: Vec<_> = std::fs::read_dir(old.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("backup")), "{left:?}");
}

#[test]
fn version_1_keeps_its_nodes_and_runs() {
    let directory = version_1();
    let (store, _announced) = open(directory.path());
    let nodes = see(&store, |read| read.nodes());
    let states: Vec<_> = nodes.iter().map(|node| (node.id.0, node.state().name())).collect();
    assert_eq!(states, [(11, "registered"), (12, "online"), (13, "offline"), (14, "unregistered")]);
    for node in &nodes {
        assert_eq!((&node.name[..], &node.location[..], &node.client[..]), ("", "", ""));
        assert_eq!(node.public_key, format!("key of {}", node.id).into_bytes());
    }
    let runs = see(&store, |read| read.runs());
    let states: Vec<_> = runs.iter().map(|run| (run.id.0, run.state().name())).collect();
    let (started, over) =
        ([(101, "pending"), (102, "starting"), (103, "running")], [(104, "finished"), (105, "finished")]);
    assert_eq!(states, [&started[..], &over[..], &[(u64::MAX, "running")][..]].concat());
    assert!(runs.iter().all(|run| run.client.is_empty() && run.fab_id == "publisher/app"));
    assert!(runs.iter().all(|run| run.server_app == ServerApp::Flower), "version 1 had no native runs");
}

#[test]
fn version_1_keeps_its_messages() {
    let directory = version_1();
    let (store, _announced) = open(directory.path());
    for state in State::ALL {
        let instruction = see(&store, |read| read.instruction(id(state.name()))).unwrap();
        assert_eq!((instruction.state(), instruction.deliveries), (state, 1));
        assert_eq!((instruction.envelope.src_task, instruction.envelope.dst_task), (None, None));
        assert_eq!((instruction.envelope.run, instruction.envelope.dst), (RunId(103), NodeId(12)));
    }
    let reply = see(&store, |read| read.reply_to(id("answered"))).unwrap();
    assert_eq!((reply.envelope.id, reply.ready, reply.envelope.dst_task), (id("reply"), true, None));
    assert_eq!(reply.envelope.error.unwrap().reason, "it's why");
    assert_eq!(see(&store, |read| read.children(SCOPE, id("answered"))), [id("child")]);
    assert!(see(&store, |read| read.content(id("child"))).is_some());
    assert!(see(&store, |read| read.token_by_hash(&[7; 32])).is_some());
    assert_eq!(see(&store, |read| read.log_after(RunId(u64::MAX), 0.0, 100)).unwrap().text, "a line\n");
    assert_eq!(see(&store, |read| read.alive_at()), Some(NOW));
}

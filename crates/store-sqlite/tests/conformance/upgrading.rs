//! A state that an older Trellis wrote opens, whole, and as what the newer one would have written.

use std::path::Path;

use rusqlite::Connection;
use trellis_core::conformance::id;
use trellis_core::id::{NodeId, RunId};
use trellis_core::message::State;
use trellis_store_sqlite::{Verdict, inspect};

use super::{open, see};

/// As the program of version 1 wrote it.
const V1: &str = include_str!("state-v1.sql");
const NOW: f64 = 1_800_000_000.5;

/// A state directory with a database of version 1.
fn version_1() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    Connection::open(directory.path().join("state.db")).unwrap().execute_batch(V1).unwrap();
    directory
}

/// Tables and indexes with their columns, whatever the text that made them.
fn shape(database: &Path) -> Vec<String> {
    let database = Connection::open(database).unwrap();
    let sql = "SELECT m.type || ' ' || m.name || ' ' || coalesce(c.name, '') || ' ' || c.type || c.\"notnull\" || c.pk
               FROM sqlite_master m, pragma_table_info(m.name) c ORDER BY 1";
    let mut statement = database.prepare(sql).unwrap();
    let lines = statement.query_map([], |row| row.get(0)).unwrap();
    lines.collect::<rusqlite::Result<_>>().unwrap()
}

#[test]
fn version_1_becomes_what_a_fresh_state_is() {
    let (old, fresh) = (version_1(), tempfile::tempdir().unwrap());
    assert_eq!(inspect(&old.path().join("state.db")), Verdict::NeedsUpgrade { from: 1, to: 2 });
    drop(open(old.path()));
    drop(open(fresh.path()));
    assert_eq!(inspect(&old.path().join("state.db")), Verdict::Current);
    assert_eq!(shape(&old.path().join("state.db")), shape(&fresh.path().join("state.db")));
    let left: Vec<_> = std::fs::read_dir(old.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("backup")), "{left:?}");
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
    assert_eq!(see(&store, |read| read.children(id("answered"))), [id("child")]);
    assert!(see(&store, |read| read.content(id("child"))).is_some());
    assert!(see(&store, |read| read.token_by_hash(&[7; 32])).is_some());
    assert_eq!(see(&store, |read| read.log_after(RunId(u64::MAX), 0.0, 100)).unwrap().text, "a line\n");
    assert_eq!(see(&store, |read| read.alive_at()), Some(NOW));
}

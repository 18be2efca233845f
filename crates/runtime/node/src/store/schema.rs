//! The schema and its migrations.

use std::path::Path;

use rusqlite::Connection;

use super::StoreError;

pub const DATABASE: &str = "node.db";
const VERSION: i64 = 1;

/// `idle` contains objects that became unreferenced in the current transaction.
const TABLES: &str = "
CREATE TABLE identity (superlink TEXT PRIMARY KEY, node_id INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE run (
    run_id INTEGER PRIMARY KEY,
    run BLOB NOT NULL,
    context BLOB,
    used_at REAL NOT NULL
) STRICT;
CREATE TABLE work (
    id BLOB PRIMARY KEY,
    run_id INTEGER NOT NULL,
    state INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    received_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    instruction BLOB NOT NULL,
    tree BLOB NOT NULL,
    reply BLOB,
    reply_tree BLOB,
    reply_bytes INTEGER,
    runtime_s REAL,
    replied_at REAL
) STRICT;
CREATE TABLE need (
    object_id BLOB NOT NULL,
    work_id BLOB NOT NULL,
    PRIMARY KEY (object_id, work_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX need_by_work ON need (work_id);
CREATE TABLE idle (object_id BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TRIGGER need_gone AFTER DELETE ON need
WHEN NOT EXISTS (SELECT 1 FROM need WHERE object_id = old.object_id)
BEGIN INSERT OR IGNORE INTO idle VALUES (old.object_id); END;
";

/// More than the number of different statements.
const CACHED_STATEMENTS: usize = 32;

pub fn in_memory() -> Result<Connection, StoreError> {
    let connection = Connection::open_in_memory()?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    connection.execute_batch(TABLES)?;
    Ok(connection)
}

pub fn open(directory: &Path) -> Result<Connection, StoreError> {
    let mut connection = Connection::open(directory.join(DATABASE))?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    // The state of a node is small, and so is its cache.
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -256; PRAGMA mmap_size = 0;",
    )?;
    let transaction = connection.transaction()?;
    let found: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    match found {
        0 => {
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        VERSION => {}
        found => return Err(StoreError::TooNew { path: directory.to_owned(), found, known: VERSION }),
    }
    transaction.commit()?;
    Ok(connection)
}

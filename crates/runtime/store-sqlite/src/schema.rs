//! The database schema, its version, and migrations.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use crate::directory::make_private;

/// `TRLS`: marks a database of Trellis.
const APPLICATION_ID: i32 = 0x5452_4c53;

/// The step at index `n` migrates from version `n` to `n + 1`.
pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("schema/v1.sql"),
    include_str!("schema/v2.sql"),
    include_str!("schema/v3.sql"),
    include_str!("schema/v4.sql"),
];

/// What a database file contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseState {
    Current,
    NotInitialised,
    NeedsUpgrade {
        from: u32,
        to: u32,
    },
    TooNew {
        found: u32,
        known: u32,
    },
    /// A database of the original SuperLink.
    Flower,
    /// Any other content, with the reason.
    Foreign(String),
}

/// Inspects a database file without changing it.
pub fn inspect(path: &Path) -> DatabaseState {
    if std::fs::metadata(path).map(|file| file.len() == 0).unwrap_or(true) {
        return match std::fs::metadata(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => DatabaseState::Foreign(error.to_string()),
            _ => DatabaseState::NotInitialised,
        };
    }
    let read = || -> rusqlite::Result<DatabaseState> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        state_of(&connection, MIGRATIONS.len() as u32)
    };
    read().unwrap_or_else(|error| DatabaseState::Foreign(error.to_string()))
}

fn state_of(connection: &Connection, known: u32) -> rusqlite::Result<DatabaseState> {
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let has = |table: &str| {
        connection
            .prepare("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1")
            .and_then(|mut statement| statement.exists([table]))
    };
    let version = number("user_version")? as u32;
    Ok(if number("application_id")? == APPLICATION_ID {
        match version {
            0 => DatabaseState::NotInitialised,
            v if v == known => DatabaseState::Current,
            v if v < known => DatabaseState::NeedsUpgrade { from: v, to: known },
            v => DatabaseState::TooNew { found: v, known },
        }
    } else if has("message_ins")? || has("alembic_version")? || has("token_store")? {
        DatabaseState::Flower
    } else if connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get::<_, i64>(0))? == 0 {
        DatabaseState::NotInitialised
    } else {
        DatabaseState::Foreign("it has tables of another program".to_owned())
    })
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A migration that failed; the database is unchanged.
#[derive(Debug, thiserror::Error)]
#[error("state {path} could not be upgraded from version {from} to {to}; it was not changed{backup}")]
pub struct MigrationFailed {
    path: PathBuf,
    from: u32,
    to: u32,
    backup: String,
    #[source]
    source: Cause,
}

/// Migrates the database to the version of `migrations`. Backs up an existing database first, restores the backup on
/// failure, and removes it afterwards.
pub(crate) fn migrate(connection: &mut Connection, path: &Path, migrations: &[&str]) -> Result<(), MigrationFailed> {
    let to = migrations.len() as u32;
    let mut from = 0;
    let mut backup = None;
    let mut steps = || -> Result<(), Cause> {
        from = connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0))?;
        if from == to {
            return Ok(());
        }
        if from > 0 {
            let copy = path.with_extension(format!("db.v{from}.backup"));
            let _ = std::fs::remove_file(&copy);
            make_private(&copy)?;
            connection.backup("main", &copy, None::<fn(rusqlite::backup::Progress)>)?;
            backup = Some(copy);
        }
        let tx = connection.transaction()?;
        for (step, sql) in migrations.iter().enumerate().skip(from as usize) {
            tx.execute_batch(sql)?;
            tx.pragma_update(None, "user_version", step as u32 + 1)?;
        }
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        Ok(tx.commit()?)
    };
    let result = steps();
    let restored = match (&result, &backup) {
        (Err(_), Some(copy)) => connection
            .restore("main", copy, None::<fn(rusqlite::backup::Progress)>)
            .err()
            .map(|why| format!("; restoring failed ({why}), a copy is at {}", copy.display())),
        _ => None,
    };
    if let (Some(copy), None) = (&backup, &restored) {
        let _ = std::fs::remove_file(copy);
    }
    result.map_err(|source| MigrationFailed {
        path: path.to_owned(),
        from,
        to,
        backup: restored.unwrap_or_default(),
        source,
    })
}

/// Returns SQLite's query plan as text.
#[cfg(test)]
pub(crate) fn plan(sql: &str) -> String {
    let mut connection = Connection::open_in_memory().unwrap();
    migrate(&mut connection, Path::new(""), MIGRATIONS).unwrap();
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = statement.raw_query().mapped(|row| row.get::<_, String>(3));
    steps.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Connection {
        Connection::open(path).unwrap()
    }

    #[test]
    fn a_new_file_is_migrated_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        assert_eq!(inspect(&path), DatabaseState::NotInitialised);
        migrate(&mut open(&path), &path, MIGRATIONS).unwrap();
        assert_eq!(inspect(&path), DatabaseState::Current);
        migrate(&mut open(&path), &path, MIGRATIONS).unwrap();
        assert_eq!(inspect(&path), DatabaseState::Current);
    }

    #[test]
    fn a_failed_migration_leaves_the_old_state() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        migrate(&mut open(&path), &path, &["CREATE TABLE a (x); INSERT INTO a VALUES (7)"]).unwrap();
        let broken = ["CREATE TABLE a (x)", "CREATE TABLE b (y)", "DELETE FROM a; CREATE TABLE nonsense"];
        let error = migrate(&mut open(&path), &path, &broken).unwrap_err();
        assert!(error.to_string().contains("from version 1 to 3; it was not changed"), "{error}");
        let connection = open(&path);
        assert_eq!(connection.query_row("SELECT x FROM a", [], |row| row.get::<_, i64>(0)), Ok(7));
        assert_eq!(state_of(&connection, 3), Ok(DatabaseState::NeedsUpgrade { from: 1, to: 3 }));
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().contains("backup")), "{left:?}");

        migrate(&mut open(&path), &path, &["", "CREATE TABLE b (y)", "DELETE FROM a"]).unwrap();
        assert_eq!(state_of(&open(&path), 3), Ok(DatabaseState::Current));
    }

    /// Two instructions share a model, a reply of node 12 shares a part of it, and one object belongs to no message.
    #[test]
    fn objects_of_version_3_get_the_scopes_of_their_messages() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        let mut connection = open(&path);
        migrate(&mut connection, &path, &MIGRATIONS[..3]).unwrap();
        connection
            .execute_batch(
                "INSERT INTO instruction (message_id, run_id, src, dst, group_id, ttl, message_type, created_at, deliveries,
                     state) VALUES (x'01', 5, 1, 12, '', 1, 'train', 1, 0, 4), (x'02', 5, 1, 13, '', 1, 'train', 1, 0, 1);
                 INSERT INTO reply (message_id, reply_to, run_id, src, dst, group_id, ttl, message_type, created_at, ready)
                     VALUES (x'03', x'01', 5, 12, 1, '', 1, 'train', 1, 0);
                 INSERT INTO object VALUES (x'01', 1, 0, 1, 3, 4), (x'02', 1, 0, 1, 3, 4), (x'0a', 2, 0, 1, 2, 3),
                     (x'0b', 1, 0, 1, 1, 1), (x'0c', 2, 0, 1, 1, 1), (x'03', 1, 1, 0, 2, 2), (x'0f', 1, 0, 1, 1, 1);
                 INSERT INTO object_child VALUES (x'01', 0, x'0a'), (x'02', 0, x'0a'), (x'0a', 0, x'0b'), (x'0a', 1, x'0c'),
                     (x'03', 0, x'0c');
                 INSERT INTO object_content VALUES (x'01', x'', NULL, 0), (x'0c', x'', NULL, 0), (x'0f', x'', NULL, 0);",
            )
            .unwrap();
        migrate(&mut connection, &path, MIGRATIONS).unwrap();
        let all = |sql: &str| -> Vec<String> {
            let mut statement = connection.prepare(sql).unwrap();
            statement.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap()
        };
        let objects = "SELECT hex(object_id) || ' of ' || sender || ': ' || refs || ' ' || waiting || here || height || \
                       tree_objects FROM object WHERE run_id = 5 ORDER BY sender, object_id";
        let (of_app, of_node) = (
            ["01 of 1: 1 0134", "02 of 1: 1 0134", "0A of 1: 2 0123", "0B of 1: 1 0111", "0C of 1: 1 0111"],
            ["03 of 12: 1 1022", "0C of 12: 1 0111"],
        );
        assert_eq!(all(objects), [&of_app[..], &of_node[..]].concat());
        let edges = "SELECT hex(parent) || hex(child) || ' ' || sender || ' ' || position FROM object_child ORDER BY 1";
        assert_eq!(all(edges), ["010A 1 0", "020A 1 0", "030C 12 0", "0A0B 1 0", "0A0C 1 1"]);
        assert_eq!(all("SELECT hex(object_id) FROM object_content ORDER BY 1"), ["01", "0C"], "the orphan is removed");
    }

    #[test]
    fn foreign_databases_are_recognised() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        open(&path).execute_batch("CREATE TABLE message_ins (x); CREATE TABLE run (y)").unwrap();
        assert_eq!(inspect(&path), DatabaseState::Flower);
        let other = dir.path().join("y.db");
        open(&other).execute_batch("CREATE TABLE books (x)").unwrap();
        assert!(matches!(inspect(&other), DatabaseState::Foreign(_)));
        let garbage = dir.path().join("z.db");
        std::fs::write(&garbage, "not a database at all, but long enough to be looked at").unwrap();
        assert!(matches!(inspect(&garbage), DatabaseState::Foreign(_)));
        let newer = dir.path().join("n.db");
        migrate(&mut open(&newer), &newer, MIGRATIONS).unwrap();
        open(&newer).pragma_update(None, "user_version", 99).unwrap();
        assert_eq!(inspect(&newer), DatabaseState::TooNew { found: 99, known: MIGRATIONS.len() as u32 });
    }
}

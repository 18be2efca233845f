//! The database file, its schema version, and its connection: one per process, used by one call at a time. Calls are short.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

use crate::error::RegistryError;

/// `TRLR`: the application id of our databases.
const APPLICATION_ID: i32 = 0x5452_4c52;
/// Migrations; the one at index `n` leads from version `n` to `n + 1`.
const MIGRATIONS: &[&str] = &[
    include_str!("schema-v1.sql"),
    include_str!("schema-v2.sql"),
    include_str!("schema-v3.sql"),
    include_str!("schema-v4.sql"),
    include_str!("schema-v5.sql"),
    include_str!("schema-v6.sql"),
];
/// How long to wait for another process that has the file locked.
const BUSY: Duration = Duration::from_secs(5);
/// Cache size in pages of 4 KiB. A registry is small.
const CACHE_PAGES: i64 = 128;
/// Between attempts to copy a file that another process changes.
const COPY_BACKOFF: Duration = Duration::from_millis(50);

pub struct Database(Mutex<Connection>);

impl Database {
    pub fn open(path: &Path) -> Result<Database, RegistryError> {
        make_private(path).map_err(|error| RegistryError::Damaged {
            what: path.display().to_string(),
            why: format!("{error}; give another directory, or the right to write to this one"),
        })?;
        let mut connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "cache_size", CACHE_PAGES)?;
        durable(&connection, true)?;
        migrate(&mut connection, path)?;
        Ok(Database(Mutex::new(connection)))
    }

    /// Copies the database into memory. Empty without a path or a file. Leaves no file behind.
    pub fn copy(path: Option<&Path>) -> Result<Database, RegistryError> {
        let mut copy = Connection::open_in_memory()?;
        if let Some(path) = path.filter(|path| path.exists()) {
            // Opened for writing, because only then SQLite removes its write-ahead log on close.
            let original = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            original.busy_timeout(BUSY)?;
            Backup::new(&original, &mut copy)?.run_to_completion(i32::MAX, COPY_BACKOFF, None)?;
        }
        migrate(&mut copy, path.unwrap_or(Path::new("")))?;
        Ok(Database(Mutex::new(copy)))
    }

    /// Runs a call on the connection, on a blocking thread.
    pub async fn with<T: Send + 'static>(
        self: &Arc<Database>,
        act: impl FnOnce(&mut Connection) -> Result<T, RegistryError> + Send + 'static,
    ) -> Result<T, RegistryError> {
        let database = self.clone();
        let done = tokio::task::spawn_blocking(move || act(&mut database.connection())).await;
        done.unwrap_or_else(|error| {
            Err(RegistryError::Damaged { what: "the registry".to_owned(), why: format!("a call ended early: {error}") })
        })
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        // A call that panicked has rolled its transaction back.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets whether further commits must survive a power failure. They survive a crash of the process in any case.
pub fn durable(connection: &Connection, yes: bool) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", if yes { "full" } else { "normal" })
}

/// The database has hashes of tokens.
fn make_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true).mode(0o600).open(path).map(drop)
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), RegistryError> {
    let known = MIGRATIONS.len() as u32;
    let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let number = |pragma: &str| tx.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let (id, found) = (number("application_id")?, number("user_version")? as u32);
    let tables = tx.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get::<_, i64>(0))?;
    if id != APPLICATION_ID && tables > 0 {
        let why = "it holds tables that are not ours; move it away, or give another directory".to_owned();
        return Err(RegistryError::Damaged { what: path.display().to_string(), why });
    }
    if found > known {
        return Err(RegistryError::Newer { path: path.display().to_string(), found, known });
    }
    for (step, sql) in MIGRATIONS.iter().enumerate().skip(found as usize) {
        tx.execute_batch(sql)?;
        tx.pragma_update(None, "user_version", step as u32 + 1)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    Ok(tx.commit()?)
}

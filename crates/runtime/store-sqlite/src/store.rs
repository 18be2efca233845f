//! The store: opens the directory, starts the writer, lends connections to readers.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use trellis_core::port::objects::Objects;
use trellis_core::port::{Job, OnCommit, Read, Store};
use trellis_core::refusal::{Kind, Refusal};

use crate::directory::{OpenError, StateDirectory, make_private};
use crate::error::{CANNOT, OrTransient};
use crate::file_store::FileStore;
use crate::objects::ObjectFiles;
use crate::read::View;
use crate::schema::{self, MIGRATIONS};
use crate::writer::{Deferred, MAX_DEFERRED, Writer, WriterMessage};

/// Maximum number of prepared statements per connection; about ninety are in use.
const STATEMENTS: usize = 128;
/// Page cache of the writer.
const CACHE_KIB: i64 = 16 << 10;
/// The WAL is checkpointed after this many pages of 4 KiB.
const CHECKPOINT_PAGES: i64 = 4000;
/// A larger WAL file is truncated to this size.
const JOURNAL_LIMIT_BYTES: i64 = 64 << 20;
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

pub struct SqliteStore {
    calls: Option<Sender<WriterMessage>>,
    deferred: Deferred,
    writer: Option<JoinHandle<()>>,
    readers: Mutex<Vec<Connection>>,
    objects: ObjectFiles,
    healthy: Arc<AtomicBool>,
    waiting: Arc<AtomicU64>,
    directory: Arc<StateDirectory>,
}

impl SqliteStore {
    /// Opens the state in `directory` and migrates an older schema. `on_commit` is called after each commit.
    pub fn open(directory: Arc<StateDirectory>, on_commit: OnCommit) -> Result<SqliteStore, OpenError> {
        let database = directory.database().to_owned();
        let failed = |source| OpenError::Database { database: database.clone(), source };
        make_private(&database).map_err(|source| OpenError::Io { path: database.clone(), source })?;
        let mut connection = Connection::open(&database).map_err(failed)?;
        set_up(&connection, directory.is_ephemeral()).map_err(failed)?;
        schema::migrate(&mut connection, &database, MIGRATIONS)?;

        let objects = directory.path.join("objects");
        let files = FileStore::open(&objects, !directory.is_ephemeral())
            .and_then(|files| {
                let referenced = object_files(&connection).map_err(std::io::Error::other)?;
                let removed = files.remove_orphans(&referenced)?;
                if removed > 0 {
                    tracing::info!(removed, "removed orphaned object files");
                }
                Ok(Arc::new(files))
            })
            .map_err(|source| OpenError::Io { path: objects, source })?;

        let (healthy, waiting) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
        let (calls, queue) = channel();
        let deferred = Deferred::default();
        let writer = Writer {
            connection,
            calls: queue,
            deferred: Arc::clone(&deferred),
            files: Arc::clone(&files),
            on_commit,
            healthy: Arc::clone(&healthy),
            waiting: Arc::clone(&waiting),
        };
        let thread = std::thread::Builder::new().name("store-writer".into()).spawn(move || writer.run());
        let writer = Some(thread.map_err(|source| OpenError::Io { path: database.clone(), source })?);
        Ok(SqliteStore {
            calls: Some(calls),
            deferred,
            writer,
            readers: Mutex::new(Vec::new()),
            objects: ObjectFiles(files),
            healthy,
            waiting,
            directory,
        })
    }

    fn reader(&self) -> rusqlite::Result<Connection> {
        if let Some(idle) = self.readers.lock().expect("no holder panics").pop() {
            return Ok(idle);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(self.directory.database(), flags)?;
        prepare_connection(&connection)?;
        Ok(connection)
    }
}

impl Store for SqliteStore {
    fn submit(&self, job: Box<dyn Job>) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let calls = self.calls.as_ref().expect("taken only on drop");
        if let Err(unsent) = calls.send(WriterMessage::Job(job)) {
            self.healthy.store(false, Ordering::Relaxed);
            if let WriterMessage::Job(job) = unsent.0 {
                job.done(Err(Refusal::new(Kind::Transient, CANNOT)));
            }
        }
    }

    fn submit_deferred(&self, job: Box<dyn Job>) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = {
            let mut deferred = self.deferred.lock().expect("no holder panics");
            deferred.push(job);
            deferred.len()
        };
        let call = match waiting {
            1 => WriterMessage::Deferred,
            MAX_DEFERRED => WriterMessage::DeferredFull,
            _ => return,
        };
        let calls = self.calls.as_ref().expect("taken only on drop");
        if calls.send(call).is_err() {
            self.healthy.store(false, Ordering::Relaxed);
            for job in std::mem::take(&mut *self.deferred.lock().expect("no holder panics")) {
                job.done(Err(Refusal::new(Kind::Transient, CANNOT)));
            }
        }
    }

    fn read(&self, question: &mut dyn FnMut(&dyn Read) -> Result<(), Refusal>) -> Result<(), Refusal> {
        let connection = self.reader().or_transient()?;
        let run = |sql| connection.prepare_cached(sql).and_then(|mut s| s.execute([])).map(drop).or_transient();
        run("BEGIN")?;
        let result = question(&View::new(&connection));
        run("COMMIT")?;
        self.readers.lock().expect("no holder panics").push(connection);
        result
    }

    fn objects(&self) -> &dyn Objects {
        &self.objects
    }

    fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }

    fn queue_length(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        drop(self.calls.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn prepare_connection(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Without QPSG, SQLite plans a statement again for each set of bound values, which costs more than the query.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

fn set_up(connection: &Connection, ephemeral: bool) -> rusqlite::Result<()> {
    prepare_connection(connection)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", if ephemeral { "OFF" } else { "FULL" })?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", JOURNAL_LIMIT_BYTES)
}

fn object_files(connection: &Connection) -> rusqlite::Result<HashSet<String>> {
    let mut statement = connection.prepare("SELECT file FROM object_content WHERE file IS NOT NULL")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

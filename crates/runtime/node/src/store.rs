//! What the node must not forget: who it is, the instructions it took, the replies it owes, the contexts of runs. One SQLite
//! file beside the object files; each change is one transaction, on the disk when it returns.
//!
//! Decides nothing about steps (`work` does), and knows no link and no app. All calls may wait for the disk.

mod rows;
mod schema;
#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message as _;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use trellis_core::id::{MessageId, NodeId, ObjectId, RunId};
use trellis_wire::proto;

use crate::objects::Objects;
use crate::work::{self, Event, State};

/// Instructions and replies are data of the site: only the user of the node may read them.
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{path} cannot be used as the state directory of a SuperNode")]
    Directory { path: PathBuf, source: io::Error },
    #[error("{path} is in use by another SuperNode: give each node on a machine its own --state-dir")]
    InUse { path: PathBuf },
    #[error(
        "the state in {path} was written by a newer trellis (version {found}, this one knows {known}): use that one"
    )]
    TooNew { path: PathBuf, found: i64, known: i64 },
    #[error("the node's state cannot be read or written")]
    Database(#[from] rusqlite::Error),
    #[error("the node's object files cannot be read or written")]
    Files(#[from] io::Error),
    #[error("the node's state is damaged: {0}")]
    Damaged(&'static str),
}

/// An instruction and how far it is.
#[derive(Debug, Clone)]
pub struct Work {
    pub id: MessageId,
    pub run: RunId,
    pub state: State,
    /// Times that an app began to work on it.
    pub attempts: u32,
    /// Seconds since 1970; afterwards nobody waits for a reply.
    pub expires_at: f64,
    pub instruction: proto::Message,
    pub tree: proto::ObjectTree,
}

/// What an app, or the node for it, answered.
#[derive(Debug, Clone)]
pub struct Answer {
    pub message: proto::Message,
    pub tree: proto::ObjectTree,
    /// To be kept for the next instruction of the run; `None`: it stays as it is.
    pub context: Option<proto::Context>,
    pub runtime_s: f64,
}

/// A reply that is not delivered yet.
#[derive(Debug, Clone)]
pub struct Owed {
    /// The instruction that it answers.
    pub id: MessageId,
    pub run: RunId,
    pub expires_at: f64,
    pub replied_at: f64,
    pub message: proto::Message,
    pub tree: proto::ObjectTree,
    pub runtime_s: f64,
}

/// Replies that are not delivered yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waiting {
    pub replies: u64,
    pub bytes: u64,
    pub oldest_at: Option<f64>,
}

/// A run that this node takes part in.
#[derive(Debug, Clone)]
pub struct KnownRun {
    pub run: proto::Run,
    /// `None` before its first reply.
    pub context: Option<proto::Context>,
    pub used_at: f64,
}

/// Whether an instruction came for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    New,
    Again(State),
}

pub struct Store {
    connection: Mutex<Connection>,
    objects: Objects,
    _lock: File,
}

impl Store {
    /// Opens, or makes, the state in a directory, for this process alone.
    pub fn open(directory: &Path) -> Result<Arc<Store>, StoreError> {
        Store::open_with(directory, false)
    }

    /// A state that does not outlive the process: in memory, but for large objects.
    pub fn temporary(directory: &Path) -> Result<Arc<Store>, StoreError> {
        Store::open_with(directory, true)
    }

    fn open_with(directory: &Path, temporary: bool) -> Result<Arc<Store>, StoreError> {
        let unusable = |source| StoreError::Directory { path: directory.to_owned(), source };
        let objects = directory.join("objects");
        DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(&objects).map_err(unusable)?;
        let open = |name| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(PRIVATE_FILE).open(directory.join(name))
        };
        let lock = open("lock").map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(StoreError::InUse { path: directory.to_owned() }),
            Err(fs::TryLockError::Error(source)) => return Err(unusable(source)),
        }
        let (connection, objects) = if temporary {
            (schema::in_memory()?, Objects::temporary(&objects))
        } else {
            // SQLite creates its other files with the mode of the database.
            open(schema::DATABASE).map_err(unusable)?;
            (schema::open(directory)?, Objects::open(&objects))
        };
        let objects = objects.map_err(unusable)?;
        let store = Store { connection: Mutex::new(connection), objects, _lock: lock };
        store.sweep()?;
        Ok(Arc::new(store))
    }

    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        // A panic elsewhere left no half transaction: those are undone when dropped.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One change, whole or not at all; then the files that nobody needs any more go.
    fn change<T>(&self, change: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        // The lock is held until the files are gone: who registers a need for one of them waits.
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        let result = change(&transaction)?;
        let idle = rows::take_idle_objects(&transaction)?;
        transaction.commit()?;
        for id in idle {
            if let Err(error) = self.objects.remove(id) {
                tracing::warn!(object = %id, %error, "an object file that nobody needs stays until the next start");
            }
        }
        Ok(result)
    }

    /// Removes object files that nobody needs: those that a crash, or a reply that came to nothing, left behind. Nobody may
    /// be about to keep a reply.
    pub fn sweep(&self) -> Result<(), StoreError> {
        let connection = self.connection();
        for id in self.objects.all()? {
            if !rows::is_needed(&connection, id)? {
                self.objects.remove(id)?;
            }
        }
        Ok(())
    }

    /// The id that this node has at a SuperLink.
    pub fn node_id(&self, superlink: &str) -> Result<Option<NodeId>, StoreError> {
        let find = "SELECT node_id FROM identity WHERE superlink = ?1";
        let id: Option<i64> = self.connection().query_row(find, [superlink], |row| row.get(0)).optional()?;
        Ok(id.map(|id| NodeId(id.cast_unsigned())))
    }

    pub fn set_node_id(&self, superlink: &str, node: NodeId) -> Result<(), StoreError> {
        let insert = "INSERT OR REPLACE INTO identity (superlink, node_id) VALUES (?1, ?2)";
        self.change(|tx| Ok(tx.execute(insert, params![superlink, node.0.cast_signed()]).map(drop)?))
    }

    /// Keeps an instruction that came.
    pub fn receive(
        &self,
        id: MessageId,
        instruction: &proto::Message,
        tree: &proto::ObjectTree,
        now: f64,
    ) -> Result<Receipt, StoreError> {
        let metadata = instruction.metadata.as_ref().ok_or(StoreError::Damaged("an instruction without metadata"))?;
        self.change(|tx| {
            if let Some(work) = rows::work(tx, id)? {
                return Ok(Receipt::Again(work.state));
            }
            tx.execute(
                "INSERT INTO work (id, run_id, state, attempts, received_at, expires_at, instruction, tree) \
                 VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6, ?7)",
                params![
                    id.as_bytes(),
                    metadata.run_id.cast_signed(),
                    State::Fetching.number(),
                    now,
                    metadata.created_at + metadata.ttl,
                    instruction.encode_to_vec(),
                    tree.encode_to_vec(),
                ],
            )?;
            rows::need(tx, id, tree)?;
            Ok(Receipt::New)
        })
    }

    /// Moves an instruction on. `false`: it is not here any more.
    pub fn step(&self, id: MessageId, event: Event) -> Result<bool, StoreError> {
        self.change(|tx| {
            let Some(work) = rows::work(tx, id)? else { return Ok(false) };
            let state = work::next(work.state, event).ok_or(StoreError::Damaged("an impossible step"))?;
            let attempts = work.attempts + u32::from(event == Event::Started) - u32::from(event == Event::Postponed);
            let update = "UPDATE work SET state = ?2, attempts = ?3 WHERE id = ?1";
            tx.execute(update, params![id.as_bytes(), state.number(), attempts])?;
            if event == Event::ObjectsLost {
                rows::drop_answer(tx, id)?;
                rows::need(tx, id, &work.tree)?;
            }
            Ok(true)
        })
    }

    /// Keeps the answer to an instruction, and with it the run's new context. `false`: the instruction is not here any more.
    pub fn answer(&self, id: MessageId, answer: &Answer, now: f64) -> Result<bool, StoreError> {
        let objects = objects_of(&answer.tree).map_err(|_| StoreError::Damaged("a tree of objects without names"))?;
        let bytes: u64 = objects.iter().map(|object| self.objects.len_bytes(*object)).sum();
        self.change(|tx| {
            let Some(work) = rows::work(tx, id)? else { return Ok(false) };
            let state = work::next(work.state, Event::Replied).ok_or(StoreError::Damaged("answered twice"))?;
            tx.execute(
                "UPDATE work SET state = ?2, reply = ?3, reply_tree = ?4, runtime_s = ?5, replied_at = ?6, \
                 reply_bytes = ?7 WHERE id = ?1",
                params![
                    id.as_bytes(),
                    state.number(),
                    answer.message.encode_to_vec(),
                    answer.tree.encode_to_vec(),
                    answer.runtime_s,
                    now,
                    bytes.cast_signed(),
                ],
            )?;
            if let Some(context) = &answer.context {
                let update = "UPDATE run SET context = ?2, used_at = ?3 WHERE run_id = ?1";
                tx.execute(update, params![work.run.0.cast_signed(), context.encode_to_vec(), now])?;
            }
            rows::drop_needs(tx, id)?;
            rows::need(tx, id, &answer.tree)?;
            Ok(true)
        })
    }

    /// The instruction is done with: delivered, too late, or of no use to anybody.
    pub fn forget(&self, id: MessageId) -> Result<(), StoreError> {
        self.change(|tx| rows::forget(tx, id))
    }

    /// A run is over: nothing of it is needed any more. How many instructions that ended.
    pub fn forget_run(&self, run: RunId) -> Result<usize, StoreError> {
        self.change(|tx| {
            let ids = rows::work_of_run(tx, run)?;
            for id in &ids {
                rows::forget(tx, *id)?;
            }
            tx.execute("DELETE FROM run WHERE run_id = ?1", [run.0.cast_signed()])?;
            Ok(ids.len())
        })
    }

    /// Everything under way, oldest first.
    pub fn all_work(&self) -> Result<Vec<Work>, StoreError> {
        rows::all_work(&self.connection())
    }

    pub fn work(&self, id: MessageId) -> Result<Option<Work>, StoreError> {
        rows::work(&self.connection(), id)
    }

    /// The reply that waits longest.
    pub fn oldest_owed(&self) -> Result<Option<Owed>, StoreError> {
        rows::oldest_owed(&self.connection())
    }

    /// The replies that are not delivered yet, all together.
    pub fn waiting(&self) -> Result<Waiting, StoreError> {
        let count = "SELECT count(*), coalesce(sum(reply_bytes), 0), min(replied_at) FROM work WHERE state = ?1";
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Waiting {
                replies: row.get::<_, i64>(0)?.cast_unsigned(),
                bytes: row.get::<_, i64>(1)?.cast_unsigned(),
                oldest_at: row.get(2)?,
            })
        };
        Ok(self.connection().query_row(count, [State::Replied.number()], read)?)
    }

    pub fn run(&self, run: RunId) -> Result<Option<KnownRun>, StoreError> {
        rows::run(&self.connection(), run)
    }

    pub fn runs(&self) -> Result<Vec<KnownRun>, StoreError> {
        rows::runs(&self.connection())
    }

    /// Keeps what is known of a run; its context stays.
    pub fn put_run(&self, run: &proto::Run, now: f64) -> Result<(), StoreError> {
        let insert = "INSERT INTO run (run_id, run, used_at) VALUES (?1, ?2, ?3) \
                      ON CONFLICT (run_id) DO UPDATE SET run = ?2, used_at = ?3";
        self.change(|tx| {
            Ok(tx.execute(insert, params![run.run_id.cast_signed(), run.encode_to_vec(), now]).map(drop)?)
        })
    }
}

/// The objects of a tree, each once.
pub fn objects_of(tree: &proto::ObjectTree) -> Result<Vec<ObjectId>, trellis_core::id::InvalidObjectId> {
    let mut ids = Vec::new();
    let mut trees = vec![tree];
    while let Some(tree) = trees.pop() {
        ids.push(tree.object_id.parse()?);
        trees.extend(&tree.children);
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

//! The persistent state of the node: its identity, instructions, undelivered replies, contexts of runs. It is a SQLite file and
//! the object files; each change is one durable transaction.
//!
//! The store does not decide about steps (`work` does), and knows nothing of links and apps. All calls may block on the disk.

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

/// Instructions and replies are private data: only the user of the node may read them.
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{path} cannot be used as the state directory of a SuperNode")]
    Directory { path: PathBuf, source: io::Error },
    #[error("{path} is in use by another SuperNode: give each node of a machine its own --state-dir")]
    InUse { path: PathBuf },
    #[error(
        "the state in {path} was written by a newer trellis (version {found}; this one reads up to {known}): use the newer one"
    )]
    TooNew { path: PathBuf, found: i64, known: i64 },
    #[error("the node's state cannot be read or written")]
    Database(#[from] rusqlite::Error),
    #[error("the node's object files cannot be read or written")]
    Files(#[from] io::Error),
    #[error("the node's state is damaged: {0}")]
    Damaged(&'static str),
}

/// An instruction and its state.
#[derive(Debug, Clone)]
pub struct Work {
    pub id: MessageId,
    pub run: RunId,
    pub state: State,
    /// The number of started executions.
    pub attempts: u32,
    /// Unix time in seconds; after that no reply is expected.
    pub expires_at: f64,
    pub instruction: proto::Message,
    pub tree: proto::ObjectTree,
}

/// The answer of an app, or of the node instead.
#[derive(Debug, Clone)]
pub struct Answer {
    pub message: proto::Message,
    pub tree: proto::ObjectTree,
    /// The context for the next instruction of the run; `None`: unchanged.
    pub context: Option<proto::Context>,
    pub runtime_s: f64,
}

/// An undelivered reply.
#[derive(Debug, Clone)]
pub struct PendingReply {
    /// The answered instruction.
    pub id: MessageId,
    pub run: RunId,
    pub expires_at: f64,
    pub replied_at: f64,
    pub message: proto::Message,
    pub tree: proto::ObjectTree,
    pub runtime_s: f64,
}

/// Totals of undelivered replies.
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

/// Whether an instruction is new.
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
    /// Opens or creates the state in a directory, exclusively for this process.
    pub fn open(directory: &Path) -> Result<Arc<Store>, StoreError> {
        Store::open_with(directory, false)
    }

    /// A state that ends with the process; only large objects are files.
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
        // After a panic of a holder there is no open transaction: it was rolled back when dropped.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one transaction, then removes unreferenced object files.
    fn change<T>(&self, change: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        // The lock is held until the files are removed: other transactions cannot refer to them meanwhile.
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        let result = change(&transaction)?;
        let idle = rows::take_idle_objects(&transaction)?;
        transaction.commit()?;
        for id in idle {
            if let Err(error) = self.objects.remove(id) {
                tracing::warn!(object = %id, %error, "an unreferenced object file remains until the next start");
            }
        }
        Ok(result)
    }

    /// Removes unreferenced object files, left by a crash or a failed reply. No reply may be in progress.
    pub fn sweep(&self) -> Result<(), StoreError> {
        let connection = self.connection();
        for id in self.objects.all()? {
            if !rows::is_needed(&connection, id)? {
                self.objects.remove(id)?;
            }
        }
        Ok(())
    }

    /// The id of this node at a SuperLink.
    pub fn node_id(&self, superlink: &str) -> Result<Option<NodeId>, StoreError> {
        let find = "SELECT node_id FROM identity WHERE superlink = ?1";
        let id: Option<i64> = self.connection().query_row(find, [superlink], |row| row.get(0)).optional()?;
        Ok(id.map(|id| NodeId(id.cast_unsigned())))
    }

    pub fn set_node_id(&self, superlink: &str, node: NodeId) -> Result<(), StoreError> {
        let insert = "INSERT OR REPLACE INTO identity (superlink, node_id) VALUES (?1, ?2)";
        self.change(|tx| rows::execute(tx, insert, params![superlink, node.0.cast_signed()]))
    }

    /// Stores a received instruction.
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
            rows::execute(
                tx,
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

    /// Changes the state of an instruction. Returns false if it does not exist.
    pub fn step(&self, id: MessageId, event: Event) -> Result<bool, StoreError> {
        self.change(|tx| {
            let Some(work) = rows::work(tx, id)? else { return Ok(false) };
            let state = work::next(work.state, event).ok_or(StoreError::Damaged("an impossible step"))?;
            let attempts = work.attempts + u32::from(event == Event::Started) - u32::from(event == Event::Postponed);
            let update = "UPDATE work SET state = ?2, attempts = ?3 WHERE id = ?1";
            rows::execute(tx, update, params![id.as_bytes(), state.number(), attempts])?;
            if event == Event::ObjectsLost {
                rows::drop_answer(tx, id)?;
                rows::need(tx, id, &work.tree)?;
            }
            Ok(true)
        })
    }

    /// Stores the answer to an instruction and the new context of its run. Returns false if the instruction does not exist.
    pub fn answer(&self, id: MessageId, answer: &Answer, now: f64) -> Result<bool, StoreError> {
        let objects = objects_of(&answer.tree).map_err(|_| StoreError::Damaged("an object tree with invalid ids"))?;
        let bytes: u64 = objects.iter().map(|object| self.objects.len_bytes(*object)).sum();
        self.change(|tx| {
            let Some(work) = rows::work(tx, id)? else { return Ok(false) };
            let state = work::next(work.state, Event::Replied).ok_or(StoreError::Damaged("answered twice"))?;
            rows::execute(
                tx,
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
                rows::execute(tx, update, params![work.run.0.cast_signed(), context.encode_to_vec(), now])?;
            }
            rows::drop_needs(tx, id)?;
            rows::need(tx, id, &answer.tree)?;
            Ok(true)
        })
    }

    /// Removes an instruction that is delivered, expired or obsolete.
    pub fn forget(&self, id: MessageId) -> Result<(), StoreError> {
        self.change(|tx| rows::forget(tx, id))
    }

    /// Removes a finished run; returns the number of dropped instructions.
    pub fn forget_run(&self, run: RunId) -> Result<usize, StoreError> {
        self.change(|tx| {
            let ids = rows::work_of_run(tx, run)?;
            for id in &ids {
                rows::forget(tx, *id)?;
            }
            rows::execute(tx, "DELETE FROM run WHERE run_id = ?1", [run.0.cast_signed()])?;
            Ok(ids.len())
        })
    }

    /// All instructions, oldest first.
    pub fn all_work(&self) -> Result<Vec<Work>, StoreError> {
        rows::all_work(&self.connection())
    }

    pub fn work(&self, id: MessageId) -> Result<Option<Work>, StoreError> {
        rows::work(&self.connection(), id)
    }

    /// The oldest undelivered reply.
    pub fn oldest_pending(&self) -> Result<Option<PendingReply>, StoreError> {
        rows::oldest_pending(&self.connection())
    }

    /// Totals of undelivered replies.
    pub fn waiting(&self) -> Result<Waiting, StoreError> {
        let count = "SELECT count(*), coalesce(sum(reply_bytes), 0), min(replied_at) FROM work WHERE state = ?1";
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Waiting {
                replies: row.get::<_, i64>(0)?.cast_unsigned(),
                bytes: row.get::<_, i64>(1)?.cast_unsigned(),
                oldest_at: row.get(2)?,
            })
        };
        Ok(self.connection().prepare_cached(count)?.query_row([State::Replied.number()], read)?)
    }

    pub fn run(&self, run: RunId) -> Result<Option<KnownRun>, StoreError> {
        rows::run(&self.connection(), run)
    }

    pub fn runs(&self) -> Result<Vec<KnownRun>, StoreError> {
        rows::runs(&self.connection())
    }

    /// Stores the metadata of a run; its context is unchanged.
    pub fn put_run(&self, run: &proto::Run, now: f64) -> Result<(), StoreError> {
        let insert = "INSERT INTO run (run_id, run, used_at) VALUES (?1, ?2, ?3) \
                      ON CONFLICT (run_id) DO UPDATE SET run = ?2, used_at = ?3";
        self.change(|tx| rows::execute(tx, insert, params![run.run_id.cast_signed(), run.encode_to_vec(), now]))
    }
}

/// The distinct objects of a tree.
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

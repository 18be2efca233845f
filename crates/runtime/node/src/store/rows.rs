//! Reads and writes rows. No decisions.

use prost::Message;
use rusqlite::{Connection, Params, Row, params};
use trellis_core::id::{MessageId, ObjectId, RunId};
use trellis_wire::proto;

use super::{KnownRun, PendingReply, StoreError, Work, objects_of};
use crate::work::State;

const WORK: &str = "SELECT id, run_id, state, attempts, expires_at, instruction, tree FROM work";
const PENDING: &str = "SELECT id, run_id, expires_at, replied_at, reply, reply_tree, runtime_s FROM work";
const RUN: &str = "SELECT run, context, used_at FROM run";

fn id(bytes: Vec<u8>) -> Result<ObjectId, StoreError> {
    ObjectId::try_from(bytes.as_slice()).map_err(|_| StoreError::Damaged("an id of the wrong length"))
}

fn decode<M: Message + Default>(bytes: Vec<u8>) -> Result<M, StoreError> {
    M::decode(bytes.as_slice()).map_err(|_| StoreError::Damaged("a message that cannot be read"))
}

/// The rows of a query, converted by `read`.
fn collect<T>(
    connection: &Connection,
    query: &str,
    parameters: impl Params,
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(query)?;
    let mut rows = statement.query(parameters)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// Executes a statement that changes rows. Statements are cached: parsing them costs more than executing them.
pub fn execute(connection: &Connection, statement: &str, parameters: impl Params) -> Result<(), StoreError> {
    connection.prepare_cached(statement)?.execute(parameters)?;
    Ok(())
}

fn read_work(row: &Row<'_>) -> Result<Work, StoreError> {
    Ok(Work {
        id: id(row.get(0)?)?,
        run: RunId(row.get::<_, i64>(1)?.cast_unsigned()),
        state: State::from_number(row.get(2)?).ok_or(StoreError::Damaged("an invalid state"))?,
        attempts: row.get(3)?,
        expires_at: row.get(4)?,
        instruction: decode(row.get(5)?)?,
        tree: decode(row.get(6)?)?,
    })
}

pub fn work(connection: &Connection, id: MessageId) -> Result<Option<Work>, StoreError> {
    Ok(collect(connection, &format!("{WORK} WHERE id = ?1"), [id.as_bytes()], read_work)?.pop())
}

pub fn all_work(connection: &Connection) -> Result<Vec<Work>, StoreError> {
    collect(connection, &format!("{WORK} ORDER BY received_at"), [], read_work)
}

pub fn work_of_run(connection: &Connection, run: RunId) -> Result<Vec<MessageId>, StoreError> {
    let find = "SELECT id FROM work WHERE run_id = ?1";
    collect(connection, find, [run.0.cast_signed()], |row| id(row.get(0)?))
}

pub fn oldest_pending(connection: &Connection) -> Result<Option<PendingReply>, StoreError> {
    let find = format!("{PENDING} WHERE state = ?1 ORDER BY replied_at LIMIT 1");
    let read = |row: &Row<'_>| {
        Ok(PendingReply {
            id: id(row.get(0)?)?,
            run: RunId(row.get::<_, i64>(1)?.cast_unsigned()),
            expires_at: row.get(2)?,
            replied_at: row.get(3)?,
            message: decode(row.get(4)?)?,
            tree: decode(row.get(5)?)?,
            runtime_s: row.get(6)?,
        })
    };
    Ok(collect(connection, &find, [State::Replied.number()], read)?.pop())
}

fn read_run(row: &Row<'_>) -> Result<KnownRun, StoreError> {
    let context: Option<Vec<u8>> = row.get(1)?;
    Ok(KnownRun { run: decode(row.get(0)?)?, context: context.map(decode).transpose()?, used_at: row.get(2)? })
}

pub fn run(connection: &Connection, run: RunId) -> Result<Option<KnownRun>, StoreError> {
    Ok(collect(connection, &format!("{RUN} WHERE run_id = ?1"), [run.0.cast_signed()], read_run)?.pop())
}

pub fn runs(connection: &Connection) -> Result<Vec<KnownRun>, StoreError> {
    collect(connection, &format!("{RUN} ORDER BY used_at"), [], read_run)
}

/// Records that an instruction needs all objects of a tree.
pub fn need(connection: &Connection, work: MessageId, tree: &proto::ObjectTree) -> Result<(), StoreError> {
    let mut insert = connection.prepare_cached("INSERT OR IGNORE INTO need (object_id, work_id) VALUES (?1, ?2)")?;
    for object in objects_of(tree).map_err(|_| StoreError::Damaged("an object tree with invalid ids"))? {
        insert.execute(params![object.as_bytes(), work.as_bytes()])?;
    }
    Ok(())
}

pub fn drop_needs(connection: &Connection, work: MessageId) -> Result<(), StoreError> {
    execute(connection, "DELETE FROM need WHERE work_id = ?1", [work.as_bytes()])
}

pub fn drop_answer(connection: &Connection, work: MessageId) -> Result<(), StoreError> {
    let update = "UPDATE work SET reply = NULL, reply_tree = NULL, reply_bytes = NULL, runtime_s = NULL, replied_at = NULL WHERE id = ?1";
    execute(connection, update, [work.as_bytes()])?;
    drop_needs(connection, work)
}

pub fn forget(connection: &Connection, work: MessageId) -> Result<(), StoreError> {
    drop_needs(connection, work)?;
    execute(connection, "DELETE FROM work WHERE id = ?1", [work.as_bytes()])
}

pub fn is_needed(connection: &Connection, object: ObjectId) -> Result<bool, StoreError> {
    let find = "SELECT 1 FROM need WHERE object_id = ?1 LIMIT 1";
    Ok(connection.prepare_cached(find)?.exists([object.as_bytes()])?)
}

/// The objects that became unreferenced in this transaction.
pub fn take_idle_objects(connection: &Connection) -> Result<Vec<ObjectId>, StoreError> {
    let find = "SELECT object_id FROM idle WHERE NOT EXISTS (SELECT 1 FROM need WHERE need.object_id = idle.object_id)";
    let objects = collect(connection, find, [], |row| id(row.get(0)?))?;
    execute(connection, "DELETE FROM idle", [])?;
    Ok(objects)
}

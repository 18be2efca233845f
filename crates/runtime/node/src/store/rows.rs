//! Rows in and out. No decisions.

use prost::Message;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use trellis_core::id::{MessageId, ObjectId, RunId};
use trellis_wire::proto;

use super::{KnownRun, Owed, StoreError, Work, objects_of};
use crate::work::State;

const WORK: &str = "SELECT id, run_id, state, attempts, expires_at, instruction, tree FROM work";
const OWED: &str = "SELECT id, run_id, expires_at, replied_at, reply, reply_tree, runtime_s FROM work";
const RUN: &str = "SELECT run, context, used_at FROM run";

fn id(bytes: Vec<u8>) -> Result<ObjectId, StoreError> {
    ObjectId::try_from(bytes.as_slice()).map_err(|_| StoreError::Damaged("an id of the wrong length"))
}

fn decode<M: Message + Default>(bytes: Vec<u8>) -> Result<M, StoreError> {
    M::decode(bytes.as_slice()).map_err(|_| StoreError::Damaged("a message that cannot be read"))
}

/// The rows of a query, each taken apart by `read`.
fn collect<T>(
    connection: &Connection,
    query: &str,
    parameters: impl rusqlite::Params,
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

fn read_work(row: &Row<'_>) -> Result<Work, StoreError> {
    Ok(Work {
        id: id(row.get(0)?)?,
        run: RunId(row.get::<_, i64>(1)?.cast_unsigned()),
        state: State::from_number(row.get(2)?).ok_or(StoreError::Damaged("a state that is none"))?,
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

pub fn oldest_owed(connection: &Connection) -> Result<Option<Owed>, StoreError> {
    let find = format!("{OWED} WHERE state = ?1 ORDER BY replied_at LIMIT 1");
    let read = |row: &Row<'_>| {
        Ok(Owed {
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

/// Notes that an instruction needs all objects of a tree.
pub fn need(connection: &Connection, work: MessageId, tree: &proto::ObjectTree) -> Result<(), StoreError> {
    let mut insert = connection.prepare_cached("INSERT OR IGNORE INTO need (object_id, work_id) VALUES (?1, ?2)")?;
    for object in objects_of(tree).map_err(|_| StoreError::Damaged("a tree of objects without names"))? {
        insert.execute(params![object.as_bytes(), work.as_bytes()])?;
    }
    Ok(())
}

pub fn drop_needs(connection: &Connection, work: MessageId) -> Result<(), StoreError> {
    connection.execute("DELETE FROM need WHERE work_id = ?1", [work.as_bytes()])?;
    Ok(())
}

pub fn drop_answer(connection: &Connection, work: MessageId) -> Result<(), StoreError> {
    let update = "UPDATE work SET reply = NULL, reply_tree = NULL, reply_bytes = NULL, runtime_s = NULL, replied_at = NULL WHERE id = ?1";
    connection.execute(update, [work.as_bytes()])?;
    drop_needs(connection, work)
}

pub fn forget(connection: &Connection, work: MessageId) -> Result<(), StoreError> {
    drop_needs(connection, work)?;
    connection.execute("DELETE FROM work WHERE id = ?1", [work.as_bytes()])?;
    Ok(())
}

pub fn is_needed(connection: &Connection, object: ObjectId) -> Result<bool, StoreError> {
    let find = "SELECT 1 FROM need WHERE object_id = ?1 LIMIT 1";
    Ok(connection.query_row(find, [object.as_bytes()], |_| Ok(())).optional()?.is_some())
}

/// The objects that nobody needs any more since the transaction began.
pub fn take_idle_objects(connection: &Connection) -> Result<Vec<ObjectId>, StoreError> {
    let find = "SELECT object_id FROM idle WHERE NOT EXISTS (SELECT 1 FROM need WHERE need.object_id = idle.object_id)";
    let objects = collect(connection, find, [], |row| id(row.get(0)?))?;
    connection.execute("DELETE FROM idle", [])?;
    Ok(objects)
}

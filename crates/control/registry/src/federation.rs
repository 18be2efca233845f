//! Stored federations: the document with its revision, and the last status.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use trellis_plan::{DesiredState, Status};
use trellis_spec::{Federation, Name, to_yaml};

use crate::error::RegistryError;
use crate::site;

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub name: Name,
    pub desired: DesiredState,
    /// The last document as canonical YAML, also while the federation is being deleted.
    pub document: String,
    pub revision: u64,
    pub changed_ms: u64,
    /// The last status.
    pub status: Option<Status>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    Created { revision: u64 },
    Changed { revision: u64 },
    Unchanged { revision: u64 },
}

/// A row of the table.
struct StoredRow {
    name: String,
    document: String,
    revision: u64,
    leaving: bool,
    changed_ms: u64,
    status: Option<String>,
}

const COLUMNS: &str = "name, document, revision, leaving, changed_ms, status";

impl StoredRow {
    fn of(row: &Row<'_>) -> rusqlite::Result<StoredRow> {
        Ok(StoredRow {
            name: row.get(0)?,
            document: row.get(1)?,
            revision: row.get::<_, i64>(2)? as u64,
            leaving: row.get(3)?,
            changed_ms: row.get::<_, i64>(4)? as u64,
            status: row.get(5)?,
        })
    }

    fn read(self) -> Result<Entry, RegistryError> {
        let name = name_of(&self.name)?;
        let desired = desired(&name, &self.document, self.leaving)?;
        // A status of another version is dropped: the next reconcile writes a new one.
        let status = self.status.and_then(|text| serde_json::from_str(&text).ok());
        let StoredRow { document, revision, changed_ms, .. } = self;
        Ok(Entry { name, desired, document, revision, changed_ms, status })
    }
}

fn name_of(text: &str) -> Result<Name, RegistryError> {
    let damaged = || RegistryError::Damaged { what: format!("federation {text:?}"), why: "it is no name".to_owned() };
    Name::new(text).ok_or_else(damaged)
}

/// The desired state of a row.
pub fn desired(name: &Name, document: &str, leaving: bool) -> Result<DesiredState, RegistryError> {
    if leaving {
        return Ok(DesiredState::Deleted(name.clone()));
    }
    let damaged = |why: String| RegistryError::Damaged { what: format!("federation {name}"), why };
    let mut federations =
        trellis_spec::read(document, name.as_str()).map_err(|problems| damaged(problems.to_string()))?;
    match (federations.pop(), federations.is_empty()) {
        (Some(federation), true) => Ok(DesiredState::Federation(Arc::new(federation))),
        _ => Err(damaged("it is not one document".to_owned())),
    }
}

pub fn all(connection: &mut Connection) -> Result<Vec<Entry>, RegistryError> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM federation ORDER BY name"))?;
    let rows: Vec<StoredRow> = statement.query_map([], StoredRow::of)?.collect::<Result<_, _>>()?;
    let read = |row: StoredRow| match row.read() {
        Ok(entry) => Some(entry),
        // The other federations are still usable, and this one can be applied again.
        Err(error) => {
            tracing::error!("{error}");
            None
        }
    };
    Ok(rows.into_iter().filter_map(read).collect())
}

pub fn find(connection: &mut Connection, name: &Name) -> Result<Option<Entry>, RegistryError> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM federation WHERE name = ?1"))?;
    let row = statement.query_row([name.as_str()], StoredRow::of).optional()?;
    row.map(StoredRow::read).transpose()
}

pub fn put(
    connection: &mut Connection,
    federation: &Federation,
    expected: Option<u64>,
    now_ms: u64,
) -> Result<Put, RegistryError> {
    let (name, document) = (federation.name.as_str(), to_yaml(federation));
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let kept =
        tx.query_row(&format!("SELECT {COLUMNS} FROM federation WHERE name = ?1"), [name], StoredRow::of).optional()?;
    let found = kept.as_ref().map_or(0, |kept| kept.revision);
    if kept.as_ref().is_some_and(|kept| kept.leaving) {
        return Err(RegistryError::Leaving);
    }
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        return Err(RegistryError::Conflict { expected, found });
    }
    let revision = found + 1;
    let before = kept.as_ref().map(|kept| site::read(&federation.name, &kept.document)).unwrap_or_default();
    let put = match kept {
        Some(kept) if kept.document == document => return Ok(Put::Unchanged { revision: found }),
        Some(_) => Put::Changed { revision },
        None => Put::Created { revision },
    };
    tx.execute(
        "INSERT INTO federation (name, document, revision, changed_ms) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT (name) DO UPDATE SET document = ?2, revision = ?3, changed_ms = ?4",
        params![name, document, revision as i64, now_ms as i64],
    )?;
    site::keep(&tx, &federation.name, &before)?;
    site::keep(&tx, &federation.name, &federation.sites)?;
    tx.commit()?;
    Ok(put)
}

pub fn leave(connection: &mut Connection, name: &Name, purge: bool, now_ms: u64) -> Result<bool, RegistryError> {
    let there = connection.execute(
        "UPDATE federation SET changed_ms = CASE leaving WHEN 0 THEN ?2 ELSE changed_ms END, leaving = 1, \
         purge = max(purge, ?3) WHERE name = ?1",
        params![name.as_str(), now_ms as i64, purge],
    )?;
    Ok(there > 0)
}

pub fn forget(connection: &mut Connection, name: &Name) -> Result<(), RegistryError> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute(
        "DELETE FROM run WHERE federation IN (SELECT name FROM federation WHERE name = ?1 AND leaving = 1 AND purge = 1)",
        [name.as_str()],
    )?;
    let forgotten = tx.execute("DELETE FROM federation WHERE name = ?1 AND leaving = 1", [name.as_str()])?;
    if forgotten > 0 {
        tx.execute("DELETE FROM site WHERE federation = ?1", [name.as_str()])?;
        tx.execute("DELETE FROM run_starter WHERE federation = ?1", [name.as_str()])?;
        tx.execute("DELETE FROM drained_node WHERE federation = ?1", [name.as_str()])?;
        // The next federation of this name starts with serial number 0: with the same fence drivers would refuse its actions.
        tx.execute("UPDATE lease SET holder = NULL WHERE name = ?1", [name.as_str()])?;
    }
    tx.commit()?;
    Ok(())
}

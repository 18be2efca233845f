//! The last known state of runs, as opaque text. Runs outlive their federation.

use rusqlite::{Connection, params};
use trellis_spec::Name;

use crate::error::RegistryError;

/// Maximum number of runs of one federation; the oldest are dropped.
pub const MAX_RUNS: usize = 1_000;

/// The stored runs of one federation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastRuns {
    pub federation: String,
    pub runs: u32,
    pub last_submitted_ms: u64,
}

pub fn keep(
    connection: &mut Connection,
    federation: &Name,
    id: &str,
    submitted_ms: u64,
    run: &str,
) -> Result<(), RegistryError> {
    let tx = connection.transaction()?;
    tx.execute(
        "INSERT OR REPLACE INTO run (federation, id, submitted_ms, run) VALUES (?1, ?2, ?3, ?4)",
        params![federation.as_str(), id, submitted_ms as i64, run],
    )?;
    tx.execute(
        "DELETE FROM run WHERE federation = ?1 AND id IN \
         (SELECT id FROM run WHERE federation = ?1 ORDER BY submitted_ms DESC LIMIT -1 OFFSET ?2)",
        params![federation.as_str(), MAX_RUNS as i64],
    )?;
    Ok(tx.commit()?)
}

/// Newest first.
pub fn all(connection: &mut Connection, federation: &Name) -> Result<Vec<String>, RegistryError> {
    let mut statement =
        connection.prepare_cached("SELECT run FROM run WHERE federation = ?1 ORDER BY submitted_ms DESC")?;
    let rows = statement.query_map([federation.as_str()], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Federations without a document that have runs, by name.
pub fn past(connection: &mut Connection) -> Result<Vec<PastRuns>, RegistryError> {
    let mut statement = connection.prepare_cached(
        "SELECT federation, count(*), max(submitted_ms) FROM run \
         WHERE federation NOT IN (SELECT name FROM federation) GROUP BY federation ORDER BY federation",
    )?;
    let rows = statement.query_map([], |row| {
        let last_submitted_ms = row.get::<_, i64>(2)? as u64;
        Ok(PastRuns { federation: row.get(0)?, runs: row.get(1)?, last_submitted_ms })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Deletes the runs of a federation that has no document. `false`: there are none.
pub fn purge(connection: &mut Connection, federation: &Name) -> Result<bool, RegistryError> {
    let purged = connection.execute(
        "DELETE FROM run WHERE federation = ?1 AND federation NOT IN (SELECT name FROM federation)",
        [federation.as_str()],
    )?;
    Ok(purged > 0)
}

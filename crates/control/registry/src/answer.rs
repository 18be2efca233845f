//! Answers to writes with an idempotency key, so that a repeated write returns the stored answer.

use rusqlite::{Connection, OptionalExtension, params};

use crate::error::RegistryError;

/// After this time no caller repeats a write because its answer was lost.
const KEPT_MS: u64 = 24 * 3600 * 1000;

fn oldest(now_ms: u64) -> i64 {
    now_ms.saturating_sub(KEPT_MS) as i64
}

pub fn find(
    connection: &mut Connection,
    caller: &str,
    key: &str,
    now_ms: u64,
) -> Result<Option<String>, RegistryError> {
    let mut statement =
        connection.prepare_cached("SELECT answer FROM answer WHERE caller = ?1 AND key = ?2 AND at_ms > ?3")?;
    Ok(statement.query_row(params![caller, key, oldest(now_ms)], |row| row.get(0)).optional()?)
}

pub fn keep(
    connection: &mut Connection,
    caller: &str,
    key: &str,
    answer: &str,
    now_ms: u64,
) -> Result<(), RegistryError> {
    let tx = connection.transaction()?;
    tx.execute("DELETE FROM answer WHERE at_ms <= ?1", [oldest(now_ms)])?;
    tx.execute(
        "INSERT OR REPLACE INTO answer (caller, key, answer, at_ms) VALUES (?1, ?2, ?3, ?4)",
        params![caller, key, answer, now_ms as i64],
    )?;
    Ok(tx.commit()?)
}

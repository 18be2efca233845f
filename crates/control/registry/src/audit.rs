//! The audit log of the control plane. Entries are never changed; the oldest are deleted.

use rusqlite::{Connection, params};

use crate::error::RegistryError;

/// Maximum number of entries of each sort. Refusals never displace other entries.
const MAX_ENTRIES: u64 = 20_000;
/// Number of new entries between two trims.
const TRIM_INTERVAL: i64 = 256;
/// Longer texts are truncated: callers choose some of the text.
const MAX_TEXT_CHARS: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditRecord {
    pub seq: u64,
    pub at_ms: u64,
    /// Somebody was refused something.
    pub refused: bool,
    pub event: String,
    /// The name of a token or of an identity, or what is known of a caller.
    pub actor: String,
    pub subject: String,
    pub detail: String,
}

pub fn append(connection: &mut Connection, record: &AuditRecord) -> Result<(), RegistryError> {
    let AuditRecord { at_ms, refused, event, actor, subject, detail, .. } = record;
    let tx = connection.transaction()?;
    tx.execute(
        "INSERT INTO audit (at_ms, refused, event, actor, subject, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![*at_ms as i64, refused, event, plain(actor), plain(subject), plain(detail)],
    )?;
    if tx.last_insert_rowid() % TRIM_INTERVAL == 0 {
        for refused in [false, true] {
            tx.execute(
                "DELETE FROM audit WHERE refused = ?1 AND seq <= \
                 (SELECT seq FROM audit WHERE refused = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)",
                params![refused, MAX_ENTRIES as i64],
            )?;
        }
    }
    Ok(tx.commit()?)
}

/// The entries after a number, or the newest; oldest first.
pub fn list(connection: &mut Connection, after: Option<u64>, limit: u64) -> Result<Vec<AuditRecord>, RegistryError> {
    let order = if after.is_some() { "ASC" } else { "DESC" };
    let sql = format!(
        "SELECT seq, at_ms, refused, event, actor, subject, detail FROM audit WHERE seq > ?1 ORDER BY seq {order} LIMIT ?2"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let entry = |row: &rusqlite::Row<'_>| {
        Ok(AuditRecord {
            seq: row.get::<_, i64>(0)? as u64,
            at_ms: row.get::<_, i64>(1)? as u64,
            refused: row.get(2)?,
            event: row.get(3)?,
            actor: row.get(4)?,
            subject: row.get(5)?,
            detail: row.get(6)?,
        })
    };
    let rows = statement.query_map(params![after.unwrap_or(0) as i64, limit as i64], entry)?;
    let mut entries = rows.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(|entry| entry.seq);
    Ok(entries)
}

/// Control characters could move the cursor of a terminal.
fn plain(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

//! Tokens of the control plane, stored as SHA-256. Does not know the permissions of roles.

use rusqlite::{Connection, OptionalExtension, Row, params};
use trellis_digest::hex;

use crate::error::RegistryError;

/// Bytes of the hash that form the id of a token.
pub const ID_BYTES: usize = 6;
/// Retention of expired tokens in the list.
const RETENTION_MS: u64 = 7 * 86_400_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    pub name: String,
    pub role: String,
    pub sha256: [u8; 32],
    pub expires_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenEntry {
    /// The first hexadecimal digits of the hash.
    pub id: String,
    pub name: String,
    pub role: String,
    pub created_ms: u64,
    pub expires_ms: Option<u64>,
}

impl TokenEntry {
    fn of(row: &Row<'_>) -> rusqlite::Result<TokenEntry> {
        Ok(TokenEntry {
            id: row.get(0)?,
            name: row.get(1)?,
            role: row.get(2)?,
            created_ms: row.get::<_, i64>(3)? as u64,
            expires_ms: row.get::<_, Option<i64>>(4)?.map(|ms| ms as u64),
        })
    }
}

pub fn issue(connection: &mut Connection, new: &NewToken, now_ms: u64) -> Result<TokenEntry, RegistryError> {
    let forgotten_ms = now_ms.saturating_sub(RETENTION_MS);
    connection.execute("DELETE FROM token WHERE expires_ms < ?1", [forgotten_ms as i64])?;
    let id = hex(&new.sha256[..ID_BYTES]);
    connection.execute(
        "INSERT INTO token (id, sha256, name, role, created_ms, expires_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
         ON CONFLICT (sha256) DO UPDATE SET name = ?3, role = ?4, expires_ms = ?6",
        params![id, new.sha256, new.name, new.role, now_ms as i64, new.expires_ms.map(|ms| ms as i64)],
    )?;
    let (name, role) = (new.name.clone(), new.role.clone());
    Ok(TokenEntry { id, name, role, created_ms: now_ms, expires_ms: new.expires_ms })
}

pub fn find(connection: &mut Connection, sha256: &[u8; 32], now_ms: u64) -> Result<Option<TokenEntry>, RegistryError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, name, role, created_ms, expires_ms FROM token \
         WHERE sha256 = ?1 AND (expires_ms IS NULL OR ?2 < expires_ms)",
    )?;
    Ok(statement.query_row(params![sha256, now_ms as i64], TokenEntry::of).optional()?)
}

pub fn renew(
    connection: &mut Connection,
    sha256: &[u8; 32],
    role: &str,
    expires_ms: u64,
) -> Result<bool, RegistryError> {
    let sql = "UPDATE token SET role = ?2, expires_ms = ?3 WHERE sha256 = ?1";
    Ok(connection.execute(sql, params![sha256, role, expires_ms as i64])? > 0)
}

pub fn all(connection: &mut Connection) -> Result<Vec<TokenEntry>, RegistryError> {
    let mut statement = connection
        .prepare_cached("SELECT id, name, role, created_ms, expires_ms FROM token ORDER BY created_ms, id")?;
    Ok(statement.query_map([], TokenEntry::of)?.collect::<Result<_, _>>()?)
}

pub fn revoke(connection: &mut Connection, id: &str) -> Result<bool, RegistryError> {
    Ok(connection.execute("DELETE FROM token WHERE id = ?1", [id])? > 0)
}

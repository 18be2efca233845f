//! Drained joined nodes, by SuperLink id.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};
use trellis_spec::Name;

use crate::error::RegistryError;

pub fn set(connection: &mut Connection, federation: &Name, node: &str, drained: bool) -> Result<(), RegistryError> {
    let sql = match drained {
        true => "INSERT OR REPLACE INTO drained_node (federation, node) VALUES (?1, ?2)",
        false => "DELETE FROM drained_node WHERE federation = ?1 AND node = ?2",
    };
    connection.execute(sql, params![federation.as_str(), node])?;
    Ok(())
}

pub fn all(connection: &mut Connection, federation: &Name) -> Result<BTreeSet<String>, RegistryError> {
    let mut statement = connection.prepare_cached("SELECT node FROM drained_node WHERE federation = ?1")?;
    let rows = statement.query_map([federation.as_str()], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

//! The names of the tokens that started runs.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use trellis_spec::Name;

use crate::error::RegistryError;

pub fn keep(connection: &mut Connection, federation: &Name, run: &str, name: &str) -> Result<(), RegistryError> {
    connection.execute(
        "INSERT OR REPLACE INTO run_starter (federation, run, name) VALUES (?1, ?2, ?3)",
        params![federation.as_str(), run, name],
    )?;
    Ok(())
}

/// Token names by run.
pub fn all(connection: &mut Connection, federation: &Name) -> Result<BTreeMap<String, String>, RegistryError> {
    let mut statement = connection.prepare_cached("SELECT run, name FROM run_starter WHERE federation = ?1")?;
    let rows = statement.query_map([federation.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

//! Sites of a federation, also those that left its document: where something is left, its driver is needed.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use trellis_plan::Wanted;
use trellis_spec::{Name, Site};

use crate::error::RegistryError;
use crate::federation::wanted;

/// Keeps sites as a document has them; those of earlier ones stay.
pub fn keep(connection: &Connection, federation: &Name, sites: &[Site]) -> Result<(), RegistryError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO site (federation, name, site) VALUES (?1, ?2, ?3) \
         ON CONFLICT (federation, name) DO UPDATE SET site = ?3",
    )?;
    for site in sites {
        let text = serde_json::to_string(site).expect("a site is plain data");
        statement.execute(params![federation.as_str(), site.name.as_str(), text])?;
    }
    Ok(())
}

/// Every site that a document of the federation ever named, as the last of them had it.
pub fn all(connection: &mut Connection, federation: &Name) -> Result<BTreeMap<Name, Site>, RegistryError> {
    let mut statement = connection.prepare_cached("SELECT site FROM site WHERE federation = ?1")?;
    let texts: Vec<String> = statement.query_map([federation.as_str()], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut sites = BTreeMap::new();
    for text in texts {
        match serde_json::from_str::<Site>(&text) {
            Ok(site) => drop(sites.insert(site.name.clone(), site)),
            // What another version wrote. The document still has those that are wanted.
            Err(error) => tracing::warn!(%federation, "a site that is kept cannot be read: {error}"),
        }
    }
    sites.extend(of_document(connection, federation)?.into_iter().map(|site| (site.name.clone(), site)));
    Ok(sites)
}

/// Those of a document that was put before sites were kept.
fn of_document(connection: &Connection, federation: &Name) -> Result<Vec<Site>, RegistryError> {
    let mut statement = connection.prepare_cached("SELECT document FROM federation WHERE name = ?1")?;
    let document: Option<String> = statement.query_row([federation.as_str()], |row| row.get(0)).optional()?;
    Ok(document.map(|document| read(federation, &document)).unwrap_or_default())
}

/// None of a document that cannot be read, which is told elsewhere.
pub fn read(federation: &Name, document: &str) -> Vec<Site> {
    match wanted(federation, document, false) {
        Ok(Wanted::Federation(federation)) => federation.sites.clone(),
        Ok(Wanted::Gone(_)) | Err(_) => Vec::new(),
    }
}

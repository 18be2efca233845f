//! Sites of a federation, including those removed from its document: parts may be left there, which need their driver.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use trellis_plan::DesiredState;
use trellis_spec::{Name, Site};

use crate::error::RegistryError;
use crate::federation::desired;

/// Stores the sites of a document. Sites of earlier documents stay.
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

/// All sites of the current and earlier documents; of each site, the latest version.
pub fn all(connection: &mut Connection, federation: &Name) -> Result<BTreeMap<Name, Site>, RegistryError> {
    let mut statement = connection.prepare_cached("SELECT site FROM site WHERE federation = ?1")?;
    let texts: Vec<String> = statement.query_map([federation.as_str()], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut sites = BTreeMap::new();
    for text in texts {
        match serde_json::from_str::<Site>(&text) {
            Ok(site) => drop(sites.insert(site.name.clone(), site)),
            // Written by another version. Sites that are still desired are in the document too.
            Err(error) => tracing::warn!(%federation, "a stored site cannot be read: {error}"),
        }
    }
    sites.extend(of_document(connection, federation)?.into_iter().map(|site| (site.name.clone(), site)));
    Ok(sites)
}

/// Sites of a document from before the registry stored sites.
fn of_document(connection: &Connection, federation: &Name) -> Result<Vec<Site>, RegistryError> {
    let mut statement = connection.prepare_cached("SELECT document FROM federation WHERE name = ?1")?;
    let document: Option<String> = statement.query_row([federation.as_str()], |row| row.get(0)).optional()?;
    Ok(document.map(|document| read(federation, &document)).unwrap_or_default())
}

/// Empty if the document cannot be read, which is reported elsewhere.
pub fn read(federation: &Name, document: &str) -> Vec<Site> {
    match desired(federation, document, false) {
        Ok(DesiredState::Federation(federation)) => federation.sites.clone(),
        Ok(DesiredState::Deleted(_)) | Err(_) => Vec::new(),
    }
}

//! The plan's store port: ledger, status and lease of one federation.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use trellis_clock::now_ms;
use trellis_plan::{Call, DesiredState, Lease, Ledger, Millis, Status, Store, StoreError, Stored};
use trellis_spec::Name;

use crate::database::{Database, durable};
use crate::error::RegistryError;
use crate::federation::desired;

pub struct FederationStore {
    database: Arc<Database>,
    name: Name,
    /// Cache of the parsed document: it rarely changes, and parsing takes most of the time of a read.
    read: Arc<Mutex<Option<(Version, DesiredState)>>>,
}

/// Identifies the version of a document.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    revision: i64,
    changed_ms: i64,
    leaving: bool,
}

struct LeaseRow {
    fence: u64,
    holder: Option<String>,
    until_ms: Millis,
}

impl FederationStore {
    pub fn new(database: Arc<Database>, name: Name) -> FederationStore {
        FederationStore { database, name, read: Arc::default() }
    }
}

impl Store for FederationStore {
    fn lease<'a>(&'a self, holder: &'a str, now_ms: Millis, lasts_ms: Millis) -> Call<'a, Result<Lease, StoreError>> {
        let (name, holder) = (self.name.clone(), holder.to_owned());
        Box::pin(async move {
            let lease = self.database.with(move |connection| take(connection, &name, &holder, now_ms, lasts_ms)).await;
            lease.map_err(broken)?
        })
    }

    fn read(&self) -> Call<'_, Result<Stored, StoreError>> {
        let (name, known) = (self.name.clone(), self.read.clone());
        Box::pin(async move {
            let kept = self.database.with(move |connection| read(connection, &name, &known)).await;
            kept.map_err(broken)
        })
    }

    fn save<'a>(
        &'a self,
        lease: &'a Lease,
        ledger: &'a Ledger,
        status: &'a Status,
    ) -> Call<'a, Result<(), StoreError>> {
        let (name, fence, ledger, status) = (self.name.clone(), lease.fence, ledger.to_json(), status.clone());
        Box::pin(async move {
            let saved = self.database.with(move |connection| save(connection, &name, fence, &ledger, &status)).await;
            saved.map_err(broken)?
        })
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> Call<'a, Result<(), StoreError>> {
        let (name, fence) = (self.name.clone(), lease.fence);
        Box::pin(async move {
            let released = self.database.with(move |connection| release(connection, &name, fence)).await;
            released.map_err(broken)?
        })
    }
}

fn broken(error: RegistryError) -> StoreError {
    let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
    StoreError::Broken(format!("{error}{}", source.unwrap_or_default()))
}

fn begin(connection: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

fn lease_row(connection: &Connection, name: &Name) -> rusqlite::Result<Option<LeaseRow>> {
    let mut statement = connection.prepare_cached("SELECT fence, holder, until_ms FROM lease WHERE name = ?1")?;
    let row = statement.query_row([name.as_str()], |row| {
        let (fence, until_ms) = (row.get::<_, i64>(0)? as u64, row.get::<_, i64>(2)? as u64);
        Ok(LeaseRow { fence, holder: row.get(1)?, until_ms })
    });
    row.optional()
}

fn take(
    connection: &mut Connection,
    name: &Name,
    holder: &str,
    now_ms: Millis,
    lasts_ms: Millis,
) -> Result<Result<Lease, StoreError>, RegistryError> {
    let until_ms = now_ms + lasts_ms;
    if let Some(fence) = extend(connection, name, holder, now_ms, until_ms)? {
        return Ok(Ok(Lease { fence, until_ms }));
    }
    let tx = begin(connection)?;
    let last = lease_row(&tx, name)?;
    if let Some(row) = last.as_ref().filter(|row| row.holder.is_some() && now_ms < row.until_ms) {
        return Ok(Err(StoreError::Held { until_ms: row.until_ms }));
    }
    // Starts at the current time: after a loss of the registry, fences must be later than those that drivers know.
    let fence = last.map_or(1, |row| row.fence + 1).max(now_ms);
    tx.execute(
        "INSERT INTO lease (name, fence, holder, until_ms) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT (name) DO UPDATE SET fence = ?2, holder = ?3, until_ms = ?4",
        params![name.as_str(), fence as i64, holder, until_ms as i64],
    )?;
    tx.commit()?;
    Ok(Ok(Lease { fence, until_ms }))
}

/// Extends the lease of its holder. A power failure may lose the extension, so that the lease ends earlier.
fn extend(
    connection: &mut Connection,
    name: &Name,
    holder: &str,
    now_ms: Millis,
    until_ms: Millis,
) -> Result<Option<u64>, RegistryError> {
    durable(connection, false)?;
    let fence = connection
        .prepare_cached(
            "UPDATE lease SET until_ms = ?4 WHERE name = ?1 AND holder = ?2 AND ?3 < until_ms RETURNING fence",
        )?
        .query_row(params![name.as_str(), holder, now_ms as i64, until_ms as i64], |row| row.get::<_, i64>(0))
        .optional();
    durable(connection, true)?;
    Ok(fence?.map(|fence| fence as u64))
}

fn read(
    connection: &mut Connection,
    name: &Name,
    known: &Mutex<Option<(Version, DesiredState)>>,
) -> Result<Stored, RegistryError> {
    let mut statement = connection
        .prepare_cached("SELECT revision, changed_ms, leaving, document, ledger FROM federation WHERE name = ?1")?;
    let mut rows = statement.query([name.as_str()])?;
    let Some(row) = rows.next()? else {
        // The federation was removed.
        return Ok(Stored { desired: DesiredState::Deleted(name.clone()), ledger: Ledger::default() });
    };
    let version = Version { revision: row.get(0)?, changed_ms: row.get(1)?, leaving: row.get(2)? };
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let desired = match &*known {
        Some((of, desired)) if *of == version => desired.clone(),
        _ => {
            let desired = desired(name, &row.get::<_, String>(3)?, version.leaving)?;
            *known = Some((version, desired.clone()));
            desired
        }
    };
    let damaged = |why| RegistryError::Damaged { what: format!("the ledger of {name}"), why };
    let ledger = row.get::<_, Option<String>>(4)?.map(|text| Ledger::from_json(&text).map_err(damaged)).transpose()?;
    Ok(Stored { desired, ledger: ledger.unwrap_or_default() })
}

fn save(
    connection: &mut Connection,
    name: &Name,
    fence: u64,
    ledger: &str,
    status: &Status,
) -> Result<Result<(), StoreError>, RegistryError> {
    let tx = begin(connection)?;
    if !holds(&tx, name, fence)? {
        return Ok(Err(StoreError::Lost { fence }));
    }
    let before = tx
        .prepare_cached("SELECT ledger, status FROM federation WHERE name = ?1")?
        .query_row([name.as_str()], |row| Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<String>>(1)?)))
        .optional()?;
    // Most reconciles change nothing and need no write.
    if before.is_some_and(|(old, told)| old.as_deref() == Some(ledger) && told.is_some_and(|told| same(&told, status)))
    {
        return Ok(Ok(()));
    }
    let status = serde_json::to_string(status).expect("a status is plain data");
    tx.prepare_cached("UPDATE federation SET ledger = ?2, status = ?3 WHERE name = ?1")?.execute(params![
        name.as_str(),
        ledger,
        status
    ])?;
    tx.commit()?;
    Ok(Ok(()))
}

/// Whether two statuses differ only in their time.
fn same(before: &str, status: &Status) -> bool {
    serde_json::from_str::<Status>(before).is_ok_and(|before| Status { at_ms: status.at_ms, ..before } == *status)
}

fn holds(connection: &Connection, name: &Name, fence: u64) -> rusqlite::Result<bool> {
    let row = lease_row(connection, name)?;
    Ok(row.is_some_and(|row| row.holder.is_some() && row.fence == fence && now_ms() < row.until_ms))
}

fn release(connection: &mut Connection, name: &Name, fence: u64) -> Result<Result<(), StoreError>, RegistryError> {
    let tx = begin(connection)?;
    if !holds(&tx, name, fence)? {
        return Ok(Err(StoreError::Lost { fence }));
    }
    tx.execute("UPDATE lease SET holder = NULL WHERE name = ?1", [name.as_str()])?;
    tx.commit()?;
    Ok(Ok(()))
}

//! What the control plane keeps: federations, their ledgers, statuses and runs, leases, tokens. The plan's store port on
//! SQLite.
//!
//! One file, `registry.db`; several processes may have it open. Knows nothing of drivers, of HTTP, or of what roles may do.

mod answer;
mod database;
mod drained;
mod error;
mod federation;
mod run;
mod site;
mod starter;
mod store;
#[cfg(test)]
mod tests;
mod token;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use trellis_plan::Store;
use trellis_spec::{Federation, Name, Site};

use database::Database;
pub use error::RegistryError;
pub use federation::{Entry, Put};
pub use run::{MAX_RUNS, PastRuns};
pub use token::{NewToken, TokenEntry};

const FILE: &str = "registry.db";

/// Cheap to clone: all are the same.
#[derive(Clone)]
pub struct Registry {
    database: Arc<Database>,
}

impl Registry {
    /// Opens the registry in a directory, and makes it where there is none.
    pub fn open(directory: &Path) -> Result<Registry, RegistryError> {
        Ok(Registry { database: Arc::new(Database::open(&directory.join(FILE))?) })
    }

    /// A copy in memory of the registry in a directory, empty if there is none. Changes do not reach the directory.
    pub fn copy(directory: Option<&Path>) -> Result<Registry, RegistryError> {
        let path = directory.map(|directory| directory.join(FILE));
        Ok(Registry { database: Arc::new(Database::copy(path.as_deref())?) })
    }

    /// All federations, by name, also those that are leaving. One that cannot be read is told in the log and left out.
    pub async fn federations(&self) -> Result<Vec<Entry>, RegistryError> {
        self.database.with(federation::all).await
    }

    pub async fn federation(&self, name: &Name) -> Result<Option<Entry>, RegistryError> {
        let name = name.clone();
        self.database.with(move |connection| federation::find(connection, &name)).await
    }

    /// Keeps a document. `expected`: only where this is its revision (0: only where there is none). One that is leaving
    /// is refused.
    pub async fn put(&self, federation: &Federation, expected: Option<u64>, now_ms: u64) -> Result<Put, RegistryError> {
        let federation = federation.clone();
        self.database.with(move |connection| federation::put(connection, &federation, expected, now_ms)).await
    }

    /// From now on nothing of it is wanted. `false`: there is none. `purge`: its runs go with it.
    pub async fn leave(&self, name: &Name, purge: bool, now_ms: u64) -> Result<bool, RegistryError> {
        let name = name.clone();
        self.database.with(move |connection| federation::leave(connection, &name, purge, now_ms)).await
    }

    /// Forgets one of which nothing is left, if it was to go; its fence is remembered. Its runs stay, unless purged.
    pub async fn forget(&self, name: &Name) -> Result<(), RegistryError> {
        let name = name.clone();
        self.database.with(move |connection| federation::forget(connection, &name)).await
    }

    /// Every site that a document of the federation ever named, as the last of them had it.
    pub async fn sites(&self, name: &Name) -> Result<BTreeMap<Name, Site>, RegistryError> {
        let name = name.clone();
        self.database.with(move |connection| site::all(connection, &name)).await
    }

    /// Notes who started a run: the name of a token.
    pub async fn note_starter(&self, federation: &Name, run: &str, name: &str) -> Result<(), RegistryError> {
        let (federation, run, name) = (federation.clone(), run.to_owned(), name.to_owned());
        self.database.with(move |connection| starter::keep(connection, &federation, &run, &name)).await
    }

    /// Who started which run of a federation.
    pub async fn starters(&self, federation: &Name) -> Result<BTreeMap<String, String>, RegistryError> {
        let federation = federation.clone();
        self.database.with(move |connection| starter::all(connection, &federation)).await
    }

    /// Stores a run as it was last seen, in the place of what was stored of it before.
    pub async fn keep_run(
        &self,
        federation: &Name,
        id: &str,
        submitted_ms: u64,
        run: String,
    ) -> Result<(), RegistryError> {
        let (federation, id) = (federation.clone(), id.to_owned());
        self.database.with(move |connection| run::keep(connection, &federation, &id, submitted_ms, &run)).await
    }

    /// The stored runs of a federation, newest first; it may be gone.
    pub async fn runs(&self, federation: &Name) -> Result<Vec<String>, RegistryError> {
        let federation = federation.clone();
        self.database.with(move |connection| run::all(connection, &federation)).await
    }

    /// Federations that are gone and have runs, by name.
    pub async fn past(&self) -> Result<Vec<PastRuns>, RegistryError> {
        self.database.with(run::past).await
    }

    /// Removes the runs of a federation that is gone. `false`: there are none.
    pub async fn purge(&self, federation: &Name) -> Result<bool, RegistryError> {
        let federation = federation.clone();
        self.database.with(move |connection| run::purge(connection, &federation)).await
    }

    /// Keeps a node that joined from elsewhere from new work, or lets it take work again.
    pub async fn drain(&self, federation: &Name, node: &str, drained: bool) -> Result<(), RegistryError> {
        let (federation, node) = (federation.clone(), node.to_owned());
        self.database.with(move |connection| drained::set(connection, &federation, &node, drained)).await
    }

    /// Nodes that joined from elsewhere and are kept from new work.
    pub async fn drained(&self, federation: &Name) -> Result<BTreeSet<String>, RegistryError> {
        let federation = federation.clone();
        self.database.with(move |connection| drained::all(connection, &federation)).await
    }

    /// The store port for one federation.
    pub fn store(&self, name: &Name) -> Arc<dyn Store> {
        Arc::new(store::FederationStore::new(self.database.clone(), name.clone()))
    }

    /// Keeps the SHA-256 of a token.
    pub async fn issue_token(&self, new: &NewToken, now_ms: u64) -> Result<TokenEntry, RegistryError> {
        let new = new.clone();
        self.database.with(move |connection| token::issue(connection, &new, now_ms)).await
    }

    /// The token with this SHA-256, if it counts at this moment.
    pub async fn token(&self, sha256: &[u8; 32], now_ms: u64) -> Result<Option<TokenEntry>, RegistryError> {
        let sha256 = *sha256;
        self.database.with(move |connection| token::find(connection, &sha256, now_ms)).await
    }

    /// All, the oldest first; those that have expired are listed too.
    pub async fn tokens(&self) -> Result<Vec<TokenEntry>, RegistryError> {
        self.database.with(token::all).await
    }

    /// `false`: there is none with this id.
    pub async fn revoke_token(&self, id: &str) -> Result<bool, RegistryError> {
        let id = id.to_owned();
        self.database.with(move |connection| token::revoke(connection, &id)).await
    }

    /// What was answered to a write with this key before, by the same caller; for a day.
    pub async fn answered(&self, caller: &str, key: &str, now_ms: u64) -> Result<Option<String>, RegistryError> {
        let (caller, key) = (caller.to_owned(), key.to_owned());
        self.database.with(move |connection| answer::find(connection, &caller, &key, now_ms)).await
    }

    pub async fn remember_answer(
        &self,
        caller: &str,
        key: &str,
        answer: &str,
        now_ms: u64,
    ) -> Result<(), RegistryError> {
        let (caller, key, answer) = (caller.to_owned(), key.to_owned(), answer.to_owned());
        self.database.with(move |connection| answer::keep(connection, &caller, &key, &answer, now_ms)).await
    }
}

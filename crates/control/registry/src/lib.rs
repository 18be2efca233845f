//! The registry of the control plane: federations, their ledgers, statuses and runs, leases, tokens. Implements the plan's store port
//! on SQLite.
//!
//! One file, `registry.db`, which several processes may open. Knows no drivers, no HTTP, and no permissions of roles.

mod answer;
mod audit;
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

pub use audit::AuditRecord;
use database::Database;
pub use error::RegistryError;
pub use federation::{Entry, Put};
pub use run::{MAX_RUNS, PastRuns};
pub use token::{ID_BYTES, NewToken, TokenEntry};

const FILE: &str = "registry.db";

/// Cheap to clone: clones share the database.
#[derive(Clone)]
pub struct Registry {
    database: Arc<Database>,
}

impl Registry {
    /// Opens the registry in a directory. Creates it if it does not exist.
    pub fn open(directory: &Path) -> Result<Registry, RegistryError> {
        Ok(Registry { database: Arc::new(Database::open(&directory.join(FILE))?) })
    }

    /// A copy in memory of the registry in a directory, empty if there is none. Changes do not reach the directory.
    pub fn copy(directory: Option<&Path>) -> Result<Registry, RegistryError> {
        let path = directory.map(|directory| directory.join(FILE));
        Ok(Registry { database: Arc::new(Database::copy(path.as_deref())?) })
    }

    /// All federations by name, including those that are being deleted. Unreadable entries are logged and left out.
    pub async fn federations(&self) -> Result<Vec<Entry>, RegistryError> {
        self.database.with(federation::all).await
    }

    pub async fn federation(&self, name: &Name) -> Result<Option<Entry>, RegistryError> {
        let name = name.clone();
        self.database.with(move |connection| federation::find(connection, &name)).await
    }

    /// Stores a document. `expected`: the required current revision (0: must not exist). Fails while the federation is being
    /// deleted.
    pub async fn put(&self, federation: &Federation, expected: Option<u64>, now_ms: u64) -> Result<Put, RegistryError> {
        let federation = federation.clone();
        self.database.with(move |connection| federation::put(connection, &federation, expected, now_ms)).await
    }

    /// Marks a federation for deletion. `false`: it does not exist. `purge`: its runs are deleted with it.
    pub async fn leave(&self, name: &Name, purge: bool, now_ms: u64) -> Result<bool, RegistryError> {
        let name = name.clone();
        self.database.with(move |connection| federation::leave(connection, &name, purge, now_ms)).await
    }

    /// Removes a federation that is marked for deletion and has no parts left. Keeps its fence, and its runs unless purged.
    pub async fn forget(&self, name: &Name) -> Result<(), RegistryError> {
        let name = name.clone();
        self.database.with(move |connection| federation::forget(connection, &name)).await
    }

    /// All sites of the current and earlier documents; of each site, the latest version.
    pub async fn sites(&self, name: &Name) -> Result<BTreeMap<Name, Site>, RegistryError> {
        let name = name.clone();
        self.database.with(move |connection| site::all(connection, &name)).await
    }

    /// Stores who started a run: the name of a token.
    pub async fn note_starter(&self, federation: &Name, run: &str, name: &str) -> Result<(), RegistryError> {
        let (federation, run, name) = (federation.clone(), run.to_owned(), name.to_owned());
        self.database.with(move |connection| starter::keep(connection, &federation, &run, &name)).await
    }

    /// Names of the tokens that started runs, by run.
    pub async fn starters(&self, federation: &Name) -> Result<BTreeMap<String, String>, RegistryError> {
        let federation = federation.clone();
        self.database.with(move |connection| starter::all(connection, &federation)).await
    }

    /// Stores the current state of a run.
    pub async fn store_run(
        &self,
        federation: &Name,
        id: &str,
        submitted_ms: u64,
        run: String,
    ) -> Result<(), RegistryError> {
        let (federation, id) = (federation.clone(), id.to_owned());
        self.database.with(move |connection| run::keep(connection, &federation, &id, submitted_ms, &run)).await
    }

    /// The stored runs of a federation, which may be deleted; newest first.
    pub async fn runs(&self, federation: &Name) -> Result<Vec<String>, RegistryError> {
        let federation = federation.clone();
        self.database.with(move |connection| run::all(connection, &federation)).await
    }

    /// Deleted federations with runs, by name.
    pub async fn past(&self) -> Result<Vec<PastRuns>, RegistryError> {
        self.database.with(run::past).await
    }

    /// Deletes the runs of a deleted federation. `false`: there are none.
    pub async fn purge(&self, federation: &Name) -> Result<bool, RegistryError> {
        let federation = federation.clone();
        self.database.with(move |connection| run::purge(connection, &federation)).await
    }

    /// Drains a joined node, or ends its drain.
    pub async fn drain(&self, federation: &Name, node: &str, drained: bool) -> Result<(), RegistryError> {
        let (federation, node) = (federation.clone(), node.to_owned());
        self.database.with(move |connection| drained::set(connection, &federation, &node, drained)).await
    }

    /// Drained joined nodes.
    pub async fn drained(&self, federation: &Name) -> Result<BTreeSet<String>, RegistryError> {
        let federation = federation.clone();
        self.database.with(move |connection| drained::all(connection, &federation)).await
    }

    /// The store port for one federation.
    pub fn store(&self, name: &Name) -> Arc<dyn Store> {
        Arc::new(store::FederationStore::new(self.database.clone(), name.clone()))
    }

    /// Stores the SHA-256 of a token.
    pub async fn issue_token(&self, new: &NewToken, now_ms: u64) -> Result<TokenEntry, RegistryError> {
        let new = new.clone();
        self.database.with(move |connection| token::issue(connection, &new, now_ms)).await
    }

    /// The token with this SHA-256, if it is valid now.
    pub async fn token(&self, sha256: &[u8; 32], now_ms: u64) -> Result<Option<TokenEntry>, RegistryError> {
        let sha256 = *sha256;
        self.database.with(move |connection| token::find(connection, &sha256, now_ms)).await
    }

    /// Gives a token another role and end. `false`: there is no such token any more.
    pub async fn renew_token(&self, sha256: &[u8; 32], role: &str, expires_ms: u64) -> Result<bool, RegistryError> {
        let (sha256, role) = (*sha256, role.to_owned());
        self.database.with(move |connection| token::renew(connection, &sha256, &role, expires_ms)).await
    }

    /// Adds an entry to the audit log; its number is ignored.
    pub async fn audit(&self, record: AuditRecord) -> Result<(), RegistryError> {
        self.database.with(move |connection| audit::append(connection, &record)).await
    }

    /// Entries of the audit log after a number, or the newest ones; oldest first.
    pub async fn audited(&self, after: Option<u64>, limit: u64) -> Result<Vec<AuditRecord>, RegistryError> {
        self.database.with(move |connection| audit::list(connection, after, limit)).await
    }

    /// All tokens, oldest first, including expired ones.
    pub async fn tokens(&self) -> Result<Vec<TokenEntry>, RegistryError> {
        self.database.with(token::all).await
    }

    /// `false`: no token has this id.
    pub async fn revoke_token(&self, id: &str) -> Result<bool, RegistryError> {
        let id = id.to_owned();
        self.database.with(move |connection| token::revoke(connection, &id)).await
    }

    /// The stored answer to an earlier write of this caller with this key. Kept for a day.
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

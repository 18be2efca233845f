//! What the control plane keeps: federations, their ledgers and statuses, leases, tokens. The plan's store port on SQLite.

mod error;
mod federation;
mod token;

use std::path::Path;
use std::sync::Arc;

use trellis_plan::Store;
use trellis_spec::{Federation, Name};

pub use error::RegistryError;
pub use federation::{Entry, Put};
pub use token::{NewToken, TokenEntry};

/// Cheap to clone: all are the same.
#[derive(Clone)]
pub struct Registry;

impl Registry {
    /// Opens the registry in a directory, and makes it where there is none.
    pub fn open(_directory: &Path) -> Result<Registry, RegistryError> {
        unimplemented!()
    }

    /// All federations, by name, also those that are leaving.
    pub async fn federations(&self) -> Result<Vec<Entry>, RegistryError> {
        unimplemented!()
    }

    pub async fn federation(&self, _name: &Name) -> Result<Option<Entry>, RegistryError> {
        unimplemented!()
    }

    /// Keeps a document. `expected`: only where this is its revision (0: only where there is none). One that is leaving
    /// is refused.
    pub async fn put(
        &self,
        _federation: &Federation,
        _expected: Option<u64>,
        _now_ms: u64,
    ) -> Result<Put, RegistryError> {
        unimplemented!()
    }

    /// From now on nothing of it is wanted. `false`: there is none.
    pub async fn leave(&self, _name: &Name, _now_ms: u64) -> Result<bool, RegistryError> {
        unimplemented!()
    }

    /// Forgets one of which nothing is left; its fence is remembered.
    pub async fn forget(&self, _name: &Name) -> Result<(), RegistryError> {
        unimplemented!()
    }

    /// The store port for one federation.
    pub fn store(&self, _name: &Name) -> Arc<dyn Store> {
        unimplemented!()
    }

    /// Keeps the SHA-256 of a token. The id is for people.
    pub async fn issue_token(&self, _new: &NewToken, _now_ms: u64) -> Result<TokenEntry, RegistryError> {
        unimplemented!()
    }

    /// The token with this SHA-256, if it counts at this moment.
    pub async fn token(&self, _sha256: &[u8; 32], _now_ms: u64) -> Result<Option<TokenEntry>, RegistryError> {
        unimplemented!()
    }

    pub async fn tokens(&self) -> Result<Vec<TokenEntry>, RegistryError> {
        unimplemented!()
    }

    /// `false`: there is none with this id.
    pub async fn revoke_token(&self, _id: &str) -> Result<bool, RegistryError> {
        unimplemented!()
    }

    /// What was answered to a write with this key before, by the same caller; for a day.
    pub async fn answered(&self, _caller: &str, _key: &str, _now_ms: u64) -> Result<Option<String>, RegistryError> {
        unimplemented!()
    }

    pub async fn remember_answer(
        &self,
        _caller: &str,
        _key: &str,
        _answer: &str,
        _now_ms: u64,
    ) -> Result<(), RegistryError> {
        unimplemented!()
    }
}

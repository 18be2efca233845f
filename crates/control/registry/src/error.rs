//! Errors of the registry.

#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("the document has revision {found}, but the change is for revision {expected}")]
    Conflict { expected: u64, found: u64 },
    #[error("the federation is being deleted")]
    Leaving,
    #[error("{path} was written by a newer Trellis: its version is {found}, and this program knows {known}")]
    Newer { path: String, found: u32, known: u32 },
    #[error("the registry failed")]
    Broken(#[from] rusqlite::Error),
    #[error("the registry cannot read {what}: {why}")]
    Damaged { what: String, why: String },
}

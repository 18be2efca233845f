//! Why the registry did not do it.

#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("the document is of revision {found}, and a change of revision {expected} was asked for")]
    Conflict { expected: u64, found: u64 },
    #[error("the federation is being deleted")]
    Leaving,
    #[error("{path} was written by a newer Trellis: its version is {found}, and this program knows {known}")]
    Newer { path: String, found: u32, known: u32 },
    #[error("the registry does not work")]
    Broken(#[from] rusqlite::Error),
    #[error("what the registry holds of {what} cannot be read: {why}")]
    Damaged { what: String, why: String },
}

//! Why the registry did not do it.

#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("the document is of revision {found}, and a change of revision {expected} was asked for")]
    Conflict { expected: u64, found: u64 },
    #[error("the federation is being deleted")]
    Leaving,
    #[error("the registry {0} is of a newer Trellis: version {1}")]
    Newer(String, u32),
    #[error("the registry does not work")]
    Broken(#[source] rusqlite::Error),
    #[error("what the registry holds of {what} cannot be read: {why}")]
    Damaged { what: String, why: String },
}

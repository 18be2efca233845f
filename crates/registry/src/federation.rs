//! Federations as they are kept.

use trellis_plan::{Status, Wanted};
use trellis_spec::Name;

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub name: Name,
    pub wanted: Wanted,
    /// The last document, as canonical YAML; also of one that is leaving.
    pub document: String,
    pub revision: u64,
    pub changed_ms: u64,
    /// What was told last.
    pub status: Option<Status>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    Created { revision: u64 },
    Changed { revision: u64 },
    Unchanged { revision: u64 },
}

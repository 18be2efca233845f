//! Lists come in pages: ask again with `cursor` set to `next` until there is none.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Entries of a page where nobody says otherwise, and at most.
pub const USUAL_PAGE: usize = 100;
pub const MAX_PAGE: usize = 1000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Where the next page begins; none: this was all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

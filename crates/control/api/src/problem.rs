//! What is wrong, in the form of RFC 9457, with every detail at once.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of a [`Problem`].
pub const PROBLEM_JSON: &str = "application/problem+json";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// For programs: `about:blank`, or `urn:trellis:` and a word that never changes.
    #[serde(rename = "type")]
    pub kind: String,
    /// The same for all problems of this type.
    pub title: String,
    pub status: u16,
    /// What happened this time, and what to do.
    pub detail: String,
    /// Each thing that is wrong, where there are several or where they have a place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Detail>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Detail {
    /// Which field, like `spec.pools[1].count`, or which setting.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    pub what: String,
    pub advice: String,
}

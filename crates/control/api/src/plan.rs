//! What would be done for a document, and why not more.

use serde::{Deserialize, Serialize};
use trellis_plan::{Status, Why};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanReport {
    pub federation: String,
    /// There is a federation of this name already.
    pub exists: bool,
    /// What changes in the document, as a unified diff of the canonical YAML; empty: nothing.
    pub diff: String,
    /// What would be done next. What must wait for these is in a later plan.
    pub actions: Vec<PlannedAction>,
    /// What would not be done, and why; the gravest first.
    pub report: Vec<Why>,
    /// Promises that the chosen runtime cannot keep.
    pub promises_lost: Vec<String>,
    /// What was left out of the document, or may not mean what was meant.
    pub warnings: Vec<String>,
    /// What drivers would send to their sites, as the sites take it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<SiteTemplate>,
    pub status: Status,
    /// All of it as people read it, without the templates.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedAction {
    /// `create`, `replace`, `restart`, `drain` or `delete`.
    pub verb: String,
    /// `coordinator`, or the name of a node.
    pub what: String,
    pub site: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SiteTemplate {
    pub site: String,
    /// What it describes.
    pub title: String,
    pub text: String,
}

//! The report of a plan: why something was not done.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Why {
    pub weight: Weight,
    /// The object, as users name it: `federation`, `coordinator`, `clinic-3`, `pool clinic`, `site lab`.
    pub about: String,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// Needs a user.
    Stuck,
    /// Waits for another action or for time to pass.
    Waits,
    /// Information.
    Note,
}

impl Weight {
    pub fn word(self) -> &'static str {
        match self {
            Weight::Stuck => "stuck",
            Weight::Waits => "waits",
            Weight::Note => "note",
        }
    }
}

//! Why things are not done: the answer to "why is nothing happening?".

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Why {
    pub weight: Weight,
    /// Whom it concerns, as users know it: `federation`, `coordinator`, `clinic-3`, `pool clinic`, `site lab`.
    pub about: String,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// Somebody must do something, or it stays so.
    Stuck,
    /// Something else comes first, or time must pass.
    Waits,
    /// Good to know.
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

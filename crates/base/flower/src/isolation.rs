//! Which process starts apps.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    /// The SuperLink or SuperNode starts one process for each app.
    #[default]
    Subprocess,
    /// A separate `flower-superexec` takes apps and starts them.
    Process,
}

impl Isolation {
    pub const ALL: [Isolation; 2] = [Isolation::Subprocess, Isolation::Process];

    /// The value of `--isolation`.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::Subprocess => "subprocess",
            Isolation::Process => "process",
        }
    }

    pub fn parse(name: &str) -> Option<Isolation> {
        Isolation::ALL.into_iter().find(|isolation| isolation.name() == name)
    }
}

/// For `#[serde(with)]`, in documents that say `subprocess`. Stored plans say `Subprocess`.
pub mod lowercase {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Isolation;

    pub fn serialize<S: Serializer>(isolation: &Isolation, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(isolation.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Isolation, D::Error> {
        let name = String::deserialize(deserializer)?;
        Isolation::parse(&name).ok_or_else(|| Error::unknown_variant(&name, &["process", "subprocess"]))
    }
}

//! What a driver is asked to do, and what comes of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::resource::{Desired, Generation, ResourceId};

/// The place of an action among all that were ever decided for a federation. A driver that has carried out a later one
/// for a resource refuses the earlier, whoever sends it and however long it was under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Order {
    /// Of the controller's lease: who holds a later one owns the federation.
    pub fence: u64,
    pub serial: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    pub order: Order,
    pub verb: Verb,
}

/// Each may be repeated: who finds it done answers so.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)]
pub enum Verb {
    /// Make it. There is none.
    Create(Desired),
    /// Make it another generation. Keeps what must outlive a change, like the coordinator's state and a node's key.
    Replace(Desired),
    /// Start it again as it is. `instance` is the one that was seen: where another runs already, it is done.
    Restart { id: ResourceId, generation: Generation, instance: u64 },
    /// Let it finish what it works on, and take nothing new.
    Drain { id: ResourceId },
    /// Take it away, and what belongs to it alone.
    Delete { id: ResourceId },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is so.
    Done,
    /// It will be so; observation tells when.
    Started,
    /// It was not begun. `retry`: it may be asked again as it is (no room just now); without, only a change helps.
    Refused { why: String, retry: bool },
    /// It went wrong, and perhaps half of it is done.
    Failed { why: String },
}

impl Action {
    pub fn id(&self) -> &ResourceId {
        self.verb.id()
    }
}

impl Verb {
    pub fn id(&self) -> &ResourceId {
        match self {
            Verb::Create(desired) | Verb::Replace(desired) => &desired.id,
            Verb::Restart { id, .. } | Verb::Drain { id } | Verb::Delete { id } => id,
        }
    }

    pub fn word(&self) -> &'static str {
        match self {
            Verb::Create(_) => "create",
            Verb::Replace(_) => "replace",
            Verb::Restart { .. } => "restart",
            Verb::Drain { .. } => "drain",
            Verb::Delete { .. } => "delete",
        }
    }

    /// `None`: whichever generation is there.
    pub fn generation(&self) -> Option<Generation> {
        match self {
            Verb::Create(desired) | Verb::Replace(desired) => Some(desired.generation),
            Verb::Restart { generation, .. } => Some(*generation),
            Verb::Drain { .. } | Verb::Delete { .. } => None,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at {}", self.word(), self.id().part.name(), self.id().site)
    }
}

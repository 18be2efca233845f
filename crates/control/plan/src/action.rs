//! Actions that drivers apply, and their outcomes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::resource::{Desired, Generation, ResourceId};

/// The position of an action in the sequence of all actions of a federation. A driver that applied a later action to a resource
/// refuses earlier ones, whichever controller sends them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Order {
    /// The fence of the controller's lease. The controller with the highest fence owns the federation.
    pub fence: u64,
    pub serial: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    pub order: Order,
    pub verb: Verb,
}

/// All actions are idempotent: repeating a completed action returns [`Outcome::Done`].
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)]
pub enum Verb {
    /// Creates a resource that does not exist.
    Create(Desired),
    /// Replaces a resource by another generation. Keeps its persistent data, such as the coordinator's state and a node's key.
    Replace(Desired),
    /// Restarts the observed `instance`. Done if another instance runs already.
    Restart { id: ResourceId, generation: Generation, instance: u64 },
    /// Lets a node finish its work and take no new work.
    Drain { id: ResourceId },
    /// Deletes a resource and everything that only it uses.
    Delete { id: ResourceId },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The action is complete.
    Done,
    /// The action is in progress; an observation shows when it is complete.
    Started,
    /// The action was not started. `retry`: the same action may succeed later, for example when there is capacity; otherwise the
    /// document or the site must change.
    Refused { why: String, retry: bool },
    /// The action failed, and may be partly applied.
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

    /// `None`: the action applies to any generation.
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

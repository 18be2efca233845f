//! What changes, as it happens: the data of server-sent events. Their `event` field is the word in `kind`.

use serde::{Deserialize, Serialize};
use trellis_wire::report::TrainingReport;
use utoipa::ToSchema;

use crate::federation::FederationSummary;
use crate::run::Run;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant)]
pub enum Event {
    /// The first of every stream, and whenever some were left out: look at everything anew.
    Resync,
    /// Its document, status or nodes changed.
    Federation { federation: FederationSummary },
    /// Nothing of it is left.
    Gone { federation: String },
    /// A run is new, or changed its state.
    Run { run: Run },
    /// A round is over.
    Round { federation: String, run: String, report: TrainingReport },
}

impl Event {
    pub fn kind(&self) -> &'static str {
        match self {
            Event::Resync => "resync",
            Event::Federation { .. } => "federation",
            Event::Gone { .. } => "gone",
            Event::Run { .. } => "run",
            Event::Round { .. } => "round",
        }
    }

    /// The federation that it is about; `None`: all.
    pub fn federation(&self) -> Option<&str> {
        match self {
            Event::Resync => None,
            Event::Federation { federation } => Some(&federation.name),
            Event::Gone { federation } | Event::Round { federation, .. } => Some(federation),
            Event::Run { run } => Some(&run.federation),
        }
    }
}

//! The stored state of a part. It is written and fsynced before each step, so that the next driver can resume.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use trellis_files::private;
use trellis_plan::{Desired, Generation, Millis, Order, ResourceId};

use crate::process::Identity;
use crate::recipe::Ports;

/// Version of the format. A driver does not read later versions, and the part is unknown then.
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    pub id: ResourceId,
    /// `None`: found as a running process without a record.
    pub desired: Option<Desired>,
    /// The last order that was applied.
    pub order: Order,
    #[serde(rename = "wish")]
    pub desired_state: DesiredState,
    /// A different number for each start.
    pub instance: u64,
    /// The programs were started. Until then, the next driver resumes the launch.
    pub launched: bool,
    /// The processes of the programs, in the order of the recipe.
    pub processes: Vec<Identity>,
    pub ports: Ports,
    /// The GPUs assigned to the part.
    pub gpus: Vec<u32>,
    /// When this instance was ordered.
    pub since_ms: Millis,
    /// The id of the node in the SuperLink, once it is known.
    pub node_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DesiredState {
    Running,
    #[serde(rename = "gone")]
    Deleted,
}

impl Record {
    pub fn new(desired: Desired, order: Order, now_ms: Millis) -> Record {
        Record {
            version: VERSION,
            id: desired.id.clone(),
            desired: Some(desired),
            order,
            desired_state: DesiredState::Running,
            // Not 1: a process left over from a part of the same name must not be mistaken for this one.
            instance: now_ms,
            launched: false,
            processes: Vec::new(),
            ports: Ports::default(),
            gpus: Vec::new(),
            since_ms: now_ms,
            node_id: None,
        }
    }

    /// For a running process with a mark of this home and without a record.
    pub fn without_desired(id: ResourceId, instance: u64, now_ms: Millis) -> Record {
        Record {
            version: VERSION,
            id,
            desired: None,
            order: Order::default(),
            desired_state: DesiredState::Running,
            instance,
            launched: true,
            processes: Vec::new(),
            ports: Ports::default(),
            gpus: Vec::new(),
            since_ms: now_ms,
            node_id: None,
        }
    }

    pub fn generation(&self) -> Option<Generation> {
        self.desired.as_ref().map(|desired| desired.generation)
    }

    /// The next instance of the same part.
    pub fn next_instance(&self, now_ms: Millis) -> Record {
        Record {
            instance: now_ms.max(self.instance + 1),
            launched: false,
            processes: Vec::new(),
            since_ms: now_ms,
            ..self.clone()
        }
    }

    /// `Ok(None)` if there is no record.
    pub fn read(path: &Path) -> io::Result<Option<Record>> {
        let Some(text) = private::read(path)? else { return Ok(None) };
        let unreadable = |why: String| {
            let text = format!("cannot read the record {}: {why}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let record: Record = serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
        match record.version {
            VERSION => Ok(Some(record)),
            other => Err(unreadable(format!("it has version {other}, and this program reads version {VERSION}"))),
        }
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        private::replace_json(path, self)
    }
}

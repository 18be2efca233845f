//! What is kept of a part, on disk before anything is done: whoever opens the driver next knows what was begun.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use trellis_files::private;
use trellis_plan::{Desired, Generation, Millis, Order, ResourceId};

use crate::process::Identity;
use crate::recipe::Ports;

/// Of the form of a record. A later one is not understood, and its part is unknown.
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    pub id: ResourceId,
    /// `None`: it was found running, and nobody knows what it was to be.
    pub desired: Option<Desired>,
    /// The latest that was carried out.
    pub order: Order,
    pub wish: Wish,
    /// Another number for each start.
    pub instance: u64,
    /// Its programs run, or ran. Until this is so, whoever reads the record goes on with the start.
    pub launched: bool,
    /// As they were launched: the part itself, and those beside it.
    pub processes: Vec<Identity>,
    pub ports: Ports,
    /// GPUs that are its own.
    pub gpus: Vec<u32>,
    /// When this instance was asked for.
    pub since_ms: Millis,
    /// What the SuperLink calls the node, once it is known.
    pub node_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wish {
    Running,
    Gone,
}

impl Record {
    pub fn new(desired: Desired, order: Order, now_ms: Millis) -> Record {
        Record {
            version: VERSION,
            id: desired.id.clone(),
            desired: Some(desired),
            order,
            wish: Wish::Running,
            // Not 1: what a part of the same name left running must not be taken for this one.
            instance: now_ms,
            launched: false,
            processes: Vec::new(),
            ports: Ports::default(),
            gpus: Vec::new(),
            since_ms: now_ms,
            node_id: None,
        }
    }

    /// Of something that runs with our mark and has no record.
    pub fn found(id: ResourceId, instance: u64, now_ms: Millis) -> Record {
        Record {
            version: VERSION,
            id,
            desired: None,
            order: Order::default(),
            wish: Wish::Running,
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

    /// The same, to be started once more.
    pub fn again(&self, now_ms: Millis) -> Record {
        Record {
            instance: now_ms.max(self.instance + 1),
            launched: false,
            processes: Vec::new(),
            since_ms: now_ms,
            ..self.clone()
        }
    }

    /// `Ok(None)`: there is none.
    pub fn read(path: &Path) -> io::Result<Option<Record>> {
        let Some(text) = private::read(path)? else { return Ok(None) };
        let unreadable = |why: String| {
            let text = format!("the record {} cannot be understood: {why}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let record: Record = serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
        match record.version {
            VERSION => Ok(Some(record)),
            other => Err(unreadable(format!("it is of form {other}, and this program knows {VERSION}"))),
        }
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        private::replace_json(path, self)
    }
}

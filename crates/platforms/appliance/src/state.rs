//! State that the agent needs after a reboot or in a later stage: one versioned file, written atomically. It contains
//! secrets, so only its owner can read it.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::discovery::Coordinator;
use crate::disk;
use crate::settings::Settings;

const FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    format: u32,
    /// The last valid settings.
    pub settings: Option<Settings>,
    /// The assignment in the VM's template. OneGate may be unreachable when the VM boots again.
    pub assignment: Option<String>,
    /// The last address of the SuperLink.
    pub coordinator: Option<Coordinator>,
    /// The last table of shards.
    pub shards: Option<String>,
    /// The run of the use case was submitted.
    pub submitted: bool,
    /// The port for apps of the SuperLink, if the agent chose it. Apps outlive the SuperLink and reconnect to this port.
    pub apps_port: Option<u16>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            format: FORMAT,
            settings: None,
            assignment: None,
            coordinator: None,
            shards: None,
            submitted: false,
            apps_port: None,
        }
    }
}

impl Memory {
    /// Reads the file; default if it does not exist. Another format is an error.
    pub fn read(path: &Path) -> io::Result<Memory> {
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Memory::default()),
            read => read?,
        };
        let strange = |why: String| io::Error::other(format!("{} is invalid: {why}", path.display()));
        let memory: Memory = serde_json::from_slice(&bytes).map_err(|error| strange(error.to_string()))?;
        match memory.format {
            FORMAT => Ok(memory),
            other => Err(strange(format!("its format is {other}, and only {FORMAT} is supported"))),
        }
    }

    /// The file is durable when this returns.
    pub fn write(&self, path: &Path) -> io::Result<bool> {
        disk::make_directory(path.parent().unwrap_or(Path::new("/")), 0o700, None)?;
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        disk::write(path, &text, 0o600, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_saved_and_invalid_files_are_rejected() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a/state.json");
        assert_eq!(Memory::read(&path).expect("there is none yet"), Memory::default());
        let memory = Memory { shards: Some("1:0/1".into()), submitted: true, ..Memory::default() };
        assert!(memory.write(&path).expect("written"));
        assert!(!memory.write(&path).expect("nothing new"));
        assert_eq!(Memory::read(&path).expect("it is there"), memory);
        std::fs::write(&path, "{\"format\": 2}").expect("written");
        assert!(Memory::read(&path).is_err());
    }
}

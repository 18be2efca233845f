//! What the agent must know after a reboot, or from one stage to the next: one file, versioned, whole or not at all. It holds
//! secrets, so nobody else reads it.

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
    /// That were found good last, and are in force.
    pub settings: Option<Settings>,
    /// As it stood in the VM's template: OneGate may be away when the VM comes back.
    pub assignment: Option<String>,
    /// Where the SuperLink was found last.
    pub coordinator: Option<Coordinator>,
    /// The table of shards as it was last.
    pub shards: Option<String>,
    /// The run of the use case was submitted.
    pub submitted: bool,
    /// Where apps of the SuperLink connect, where that was drawn: they outlive it, and come back there.
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
    /// What is remembered; nothing, where there is no file. One of another format is not guessed at.
    pub fn read(path: &Path) -> io::Result<Memory> {
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Memory::default()),
            read => read?,
        };
        let strange = |why: String| io::Error::other(format!("{} cannot be understood: {why}", path.display()));
        let memory: Memory = serde_json::from_slice(&bytes).map_err(|error| strange(error.to_string()))?;
        match memory.format {
            FORMAT => Ok(memory),
            other => Err(strange(format!("its format is {other}, and ours {FORMAT}"))),
        }
    }

    /// When this returns it is on disk.
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
    fn it_is_remembered_or_said_that_it_is_not() {
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

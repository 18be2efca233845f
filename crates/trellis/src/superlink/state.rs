//! The state of a SuperLink: chooses the store that the settings name.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use trellis_core::port::Store;
use trellis_link::State;
use trellis_store_memory::MemoryStore;
use trellis_store_sqlite::{DatabaseState, OpenError, SqliteStore, StateDirectory, inspect};

use super::OTHER_ERROR;
use crate::settings::system::print;

/// Part of the machine's memory that the objects of a state in memory may take.
const MEMORY_SHARE: u64 = 2;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StateLocation {
    /// A directory that holds database, objects and app output. `database` overrides the database's place in it.
    Directory { directory: PathBuf, database: Option<PathBuf> },
    /// In memory. Nothing survives the process.
    #[default]
    Memory,
    /// In a directory that is removed with the process. Nothing is fsynced.
    Temporary { directory: PathBuf },
}

impl StateLocation {
    /// Claims the directory for this process. The store is opened later, by the SuperLink.
    pub fn claim(&self) -> Result<State, OpenError> {
        let (directory, database) = match self {
            StateLocation::Directory { directory, database } => {
                (StateDirectory::open(directory, database.as_deref())?, database.clone())
            }
            StateLocation::Temporary { directory } => (StateDirectory::temporary(directory)?, None),
            StateLocation::Memory => return in_memory(),
        };
        let directory = Arc::new(directory);
        let state = Arc::clone(&directory);
        let open = Box::new(move |on_commit| Ok(Box::new(SqliteStore::open(state, on_commit)?) as Box<dyn Store>));
        Ok(State { directory, database, open })
    }

    /// Prints the result of `--check-state`. Changes nothing.
    pub fn tell(&self) -> ExitCode {
        let (database, place) = match self {
            StateLocation::Directory { directory, database } => {
                let file = database.clone().unwrap_or_else(|| directory.join("state.db"));
                (file, database.as_ref().unwrap_or(directory).display().to_string())
            }
            StateLocation::Memory | StateLocation::Temporary { .. } => (PathBuf::new(), "in memory".to_owned()),
        };
        let (code, verdict) = match inspect(&database) {
            DatabaseState::Current => (0, "current: this version can use it as it is".to_owned()),
            DatabaseState::NotInitialised => (1, "not initialised: it is created at the first start".to_owned()),
            DatabaseState::NeedsUpgrade { from, to } => {
                (2, format!("needs an upgrade from version {from} to {to}: done at the next start, after a backup"))
            }
            DatabaseState::TooNew { found, known } => {
                (3, format!("too new: it has version {found}, this program knows up to {known}; use a newer trellis"))
            }
            DatabaseState::Flower => {
                (OTHER_ERROR, format!("{} belongs to the original Flower SuperLink", database.display()))
            }
            DatabaseState::Foreign(why) => (OTHER_ERROR, format!("{} has another format: {why}", database.display())),
        };
        print(&format!("state {place}: {verdict}\n"));
        ExitCode::from(code)
    }
}

fn in_memory() -> Result<State, OpenError> {
    let memory = rustix::system::sysinfo();
    let max_object_bytes = memory.totalram as u64 * u64::from(memory.mem_unit) / MEMORY_SHARE;
    let open =
        Box::new(move |on_commit| Ok(Box::new(MemoryStore::open(max_object_bytes, on_commit)?) as Box<dyn Store>));
    Ok(State { directory: Arc::new(StateDirectory::ephemeral()?), database: None, open })
}

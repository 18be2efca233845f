//! The state directory: its lock and its files.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};

use crate::schema::{self, DatabaseState, MigrationFailed};

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "state directory {directory} is in use by process {pid}; stop it first, or choose another with --state-dir"
    )]
    InUse { directory: PathBuf, pid: String },
    #[error(
        "{database} is a database of the original Flower SuperLink, which Trellis cannot use; it was not changed. \
         Leave out --database (Trellis keeps its own state in the state directory) or name a new file"
    )]
    Flower { database: PathBuf },
    #[error("{database} is not a Trellis database ({why}); it was not changed. Name another file")]
    Foreign { database: PathBuf, why: String },
    #[error(
        "{database} was written by a newer Trellis (state version {found}, this one supports {known}); use that one"
    )]
    TooNew { database: PathBuf, found: u32, known: u32 },
    #[error(transparent)]
    Migration(#[from] MigrationFailed),
    #[error("cannot use {path}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("cannot open database {database}")]
    Database { database: PathBuf, source: rusqlite::Error },
}

const EPHEMERAL_PREFIX: &str = "trellis-superlink-";

/// A state directory that this process owns until drop.
pub struct StateDirectory {
    pub(crate) path: PathBuf,
    database: PathBuf,
    /// The directory is removed on drop.
    ephemeral: bool,
    _lock: File,
}

impl StateDirectory {
    /// Opens or creates the directory and takes its lock.
    pub fn open(path: &Path, database: Option<&Path>) -> Result<StateDirectory, OpenError> {
        let io = |at: &Path| {
            let at = at.to_owned();
            move |source| OpenError::Io { path: at, source }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io(path))?;
        let lock = take_lock(path)?;
        let database = database.map_or_else(|| path.join("state.db"), Path::to_owned);
        match schema::inspect(&database) {
            DatabaseState::Current | DatabaseState::NotInitialised | DatabaseState::NeedsUpgrade { .. } => {}
            DatabaseState::TooNew { found, known } => return Err(OpenError::TooNew { database, found, known }),
            DatabaseState::Flower => return Err(OpenError::Flower { database }),
            DatabaseState::Foreign(why) => return Err(OpenError::Foreign { database, why }),
        }
        Ok(StateDirectory { path: path.to_owned(), database, ephemeral: false, _lock: lock })
    }

    /// Creates a directory that is removed on drop, in shared memory if the system has it.
    pub fn ephemeral() -> Result<StateDirectory, OpenError> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let shared_memory = Path::new("/dev/shm");
        let parent = if shared_memory.is_dir() { shared_memory.to_owned() } else { std::env::temp_dir() };
        remove_abandoned(&parent);
        loop {
            // A process with the same pid in another container may share this directory: the name is free only if the
            // directory could be created.
            let number = COUNTER.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{EPHEMERAL_PREFIX}{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return StateDirectory::temporary(&path),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(OpenError::Io { path, source }),
            }
        }
    }

    /// Opens or creates a directory that is removed on drop. Nothing in it is fsynced.
    pub fn temporary(path: &Path) -> Result<StateDirectory, OpenError> {
        let mut directory = StateDirectory::open(path, None)?;
        directory.ephemeral = true;
        Ok(directory)
    }

    pub fn database(&self) -> &Path {
        &self.database
    }

    pub fn is_ephemeral(&self) -> bool {
        self.ephemeral
    }
}

impl AsRef<Path> for StateDirectory {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        if self.ephemeral {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes ephemeral directories of killed processes: their lock is free.
fn remove_abandoned(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_ephemeral = entry.file_name().to_string_lossy().starts_with(EPHEMERAL_PREFIX);
        let lock = is_ephemeral.then(|| File::open(path.join("lock")).ok()).flatten();
        // An empty lock file belongs to a process that is about to take the lock.
        let was_taken = |lock: &File| lock.metadata().is_ok_and(|file| file.len() > 0);
        let is_free = |lock: &File| flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if lock.is_some_and(|lock| was_taken(&lock) && is_free(&lock)) {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

/// Makes the database readable for its owner only: run settings may hold secrets. SQLite gives the files beside it the
/// same permissions.
pub(crate) fn make_private(database: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(database)?;
    file.set_permissions(Permissions::from_mode(0o600))
}

fn take_lock(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join("lock");
    let io = |source| OpenError::Io { path: path.clone(), source };
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(io)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut pid = String::new();
        let _ = file.read_to_string(&mut pid);
        let pid = if pid.trim().is_empty() { "(unknown)".to_owned() } else { pid.trim().to_owned() };
        return Err(OpenError::InUse { directory: directory.to_owned(), pid });
    }
    let write = |file: &mut File| -> std::io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write(&mut file).map_err(io)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_is_refused_with_the_pid_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let first = StateDirectory::open(dir.path(), None).unwrap();
        let error = StateDirectory::open(dir.path(), None).err().unwrap().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        StateDirectory::open(dir.path(), None).unwrap();
    }

    #[test]
    fn a_flower_database_is_refused_and_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("flower.db");
        rusqlite::Connection::open(&database).unwrap().execute_batch("CREATE TABLE message_ins (x)").unwrap();
        let before = std::fs::read(&database).unwrap();
        let error = StateDirectory::open(dir.path(), Some(&database)).err().unwrap();
        assert!(matches!(error, OpenError::Flower { .. }), "{error}");
        assert_eq!(std::fs::read(&database).unwrap(), before);
    }

    #[test]
    fn an_ephemeral_directory_is_removed_on_drop() {
        let directory = StateDirectory::ephemeral().unwrap();
        let path = directory.path.clone();
        assert!(path.is_dir());
        drop(directory);
        assert!(!path.exists());
    }
}

//! Atomic and durable changes of directories and links; knows nothing of models.
//!
//! New content is written under a name that begins with `.unfinished-`, fsynced and renamed. A crash leaves only entries with
//! such names behind; the next holder of the directory's lock removes them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, openat, renameat_with};
use rustix::io::Errno;
use trellis_digest::{Sha256, hex};
use trellis_files::{parent_of, sync_directory};

use crate::error::ModelError;
use crate::manifest::FileFacts;

const UNFINISHED: &str = ".unfinished-";
const LOCK: &str = ".lock";
/// Saving a model takes seconds, so a lock holder finishes within this time unless it hangs.
const LOCK_WAIT: Duration = Duration::from_secs(60);
const LOCK_RETRY: Duration = Duration::from_millis(50);
/// A chunk that was just hashed is still in the processor's cache when it is written.
const CHUNK_BYTES: usize = 1 << 18;
/// Run settings may contain secrets, so only the owner may read checkpoints.
const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// All changes of the file system go through this type, so that a test can stop after any of them.
#[derive(Debug, Default)]
pub struct Disk {
    #[cfg(test)]
    pub trap: crate::testing::Trap,
}

impl Disk {
    /// Counts a change. A test can make it fail like a killed process or a full disk.
    fn step(&self) -> io::Result<()> {
        #[cfg(test)]
        self.trap.step()?;
        Ok(())
    }

    /// Creates a directory and its missing parents.
    pub fn make_dir(&self, path: &Path) -> Result<(), ModelError> {
        if path.is_dir() {
            return Ok(());
        }
        let parent = parent_of(path);
        if !parent.is_dir() {
            self.make_dir(parent)?;
        }
        self.create_dir(path)?;
        self.flush_dir(parent)
    }

    fn create_dir(&self, path: &Path) -> Result<(), ModelError> {
        let made = self.step().and_then(|()| DirBuilder::new().mode(PRIVATE_DIR).create(path));
        match made {
            // Another process created it first.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other.map_err(ModelError::disk("create directory", path)),
        }
    }

    /// Locks a directory until the returned file is dropped.
    pub fn lock(&self, directory: &Path) -> Result<File, ModelError> {
        let deadline = Instant::now() + LOCK_WAIT;
        loop {
            match self.try_lock(directory)? {
                Some(lock) => return Ok(lock),
                None if Instant::now() >= deadline => return Err(ModelError::InUse { path: directory.to_owned() }),
                None => std::thread::sleep(LOCK_RETRY),
            }
        }
    }

    /// Locks a directory unless another process holds the lock.
    pub fn try_lock(&self, directory: &Path) -> Result<Option<File>, ModelError> {
        let path = directory.join(LOCK);
        let taken = || {
            self.step()?;
            let mut open = OpenOptions::new();
            let lock = open.write(true).create(true).truncate(false).mode(PRIVATE_FILE).open(&path)?;
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(Some(lock)),
                Err(Errno::WOULDBLOCK) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        taken().map_err(ModelError::disk("lock", &path))
    }

    /// Removes the unfinished entries of a directory. The caller holds its lock.
    pub fn sweep(&self, directory: &Path) -> Result<(), ModelError> {
        for name in names(directory)?.iter().filter(|name| is_unfinished(name)) {
            self.remove(&directory.join(name))?;
        }
        Ok(())
    }

    /// Removes a file, a link or a directory. A missing entry is not an error.
    pub fn remove(&self, path: &Path) -> Result<(), ModelError> {
        let removed = self.step().and_then(|()| match path.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
            _ => fs::remove_file(path),
        });
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(ModelError::disk("remove", path)),
        }
    }

    /// Creates an empty directory, to be filled and then passed to [`Disk::publish_dir`].
    pub fn create_unfinished_dir(&self, target: &Path) -> Result<PathBuf, ModelError> {
        let new = unfinished(target);
        self.remove(&new)?;
        self.create_dir(&new)?;
        Ok(new)
    }

    /// Writes and fsyncs a new file; returns its size and digest.
    pub fn write_hashed(
        &self,
        path: &Path,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<FileFacts, ModelError> {
        let write = || {
            self.step()?;
            let file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(path)?;
            let hashing = Hashing { file, disk: self, digest: Sha256::default(), bytes: 0 };
            let mut buffered = BufWriter::with_capacity(CHUNK_BYTES, hashing);
            fill(&mut buffered)?;
            let hashing = buffered.into_inner().map_err(|error| error.into_error())?;
            self.step()?;
            hashing.file.sync_all()?;
            Ok(FileFacts { bytes: hashing.bytes, sha256: hex(&hashing.digest.finish()) })
        };
        write().map_err(ModelError::disk("write", path))
    }

    /// Renames a filled directory to its final name, and removes the directory that has the name now.
    pub fn publish_dir(&self, new: &Path, target: &Path) -> Result<(), ModelError> {
        self.flush_dir(new)?;
        if !target.exists() {
            return self.rename(new, target);
        }
        match self.step().and_then(|()| Ok(renameat_with(CWD, new, CWD, target, RenameFlags::EXCHANGE)?)) {
            Ok(()) => self.flush_dir(parent_of(target))?,
            // The file system has no atomic exchange: the target is missing for a moment.
            Err(error) if cannot_exchange(&error) => {
                self.remove_dir_atomically(target)?;
                return self.rename(new, target);
            }
            Err(error) => return Err(ModelError::disk("rename", target)(error)),
        }
        self.remove(new)
    }

    /// Renames a directory aside before it is removed, so that readers never see a part of it.
    pub fn remove_dir_atomically(&self, path: &Path) -> Result<(), ModelError> {
        let mut aside = unfinished(path).into_os_string();
        aside.push("-removed");
        let aside = PathBuf::from(aside);
        self.remove(&aside)?;
        self.rename(path, &aside)?;
        self.remove(&aside)
    }

    /// Creates the link or changes its target, atomically.
    pub fn point_link(&self, link: &Path, target: &str) -> Result<(), ModelError> {
        if fs::read_link(link).is_ok_and(|now| now == Path::new(target)) {
            return Ok(());
        }
        let new = unfinished(link);
        self.remove(&new)?;
        let made = self.step().and_then(|()| std::os::unix::fs::symlink(target, &new));
        made.map_err(ModelError::disk("create link", &new))?;
        self.rename(&new, link)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), ModelError> {
        self.step().and_then(|()| fs::rename(from, to)).map_err(ModelError::disk("rename to", to))?;
        self.flush_dir(parent_of(to))
    }

    fn flush_dir(&self, path: &Path) -> Result<(), ModelError> {
        let flushed = self.step().and_then(|()| sync_directory(path));
        flushed.map_err(ModelError::disk("fsync", path))
    }
}

/// A file whose content is hashed while it is written.
struct Hashing<'a> {
    file: File,
    disk: &'a Disk,
    digest: Sha256,
    bytes: u64,
}

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let chunk = &bytes[..bytes.len().min(CHUNK_BYTES)];
        self.disk.step()?;
        self.file.write_all(chunk)?;
        self.digest.update(chunk);
        self.bytes += chunk.len() as u64;
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The sorted names in a directory; empty if it does not exist. Names that are not UTF-8 are skipped: we create none.
pub fn names(path: &Path) -> Result<Vec<String>, ModelError> {
    let read = match fs::read_dir(path) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(ModelError::disk("list", path)(error)),
    };
    let mut found = Vec::new();
    for entry in read {
        let entry = entry.map_err(ModelError::disk("list", path))?;
        found.extend(entry.file_name().into_string());
    }
    found.sort();
    Ok(found)
}

/// Opens a file below `root` without following links below it; `None` if there is no such file.
pub fn open_beneath(root: &Path, path: &[&str]) -> Result<Option<File>, ModelError> {
    let whole = || path.iter().fold(root.to_owned(), |whole, part| whole.join(part));
    let (file, directories) = path.split_last().expect("a path names a file");
    let open = || {
        let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut place = openat(CWD, root, directory, Mode::empty())?;
        for name in directories {
            place = openat(&place, *name, directory | OFlags::NOFOLLOW, Mode::empty())?;
        }
        // O_NONBLOCK: opening a FIFO must not block.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        openat(&place, *file, flags, Mode::empty())
    };
    match open() {
        Ok(found) => {
            let found = File::from(found);
            let is_file = found.metadata().map_err(ModelError::disk("read", &whole()))?.is_file();
            Ok(is_file.then_some(found))
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(error) => Err(ModelError::disk("read", &whole())(error.into())),
    }
}

/// Whether a writer that was killed, or is still at work, created this entry.
pub fn is_unfinished(name: &str) -> bool {
    name.starts_with(UNFINISHED)
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(UNFINISHED);
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}
fn cannot_exchange(error: &io::Error) -> bool {
    [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

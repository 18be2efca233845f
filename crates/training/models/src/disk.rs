//! Files and directories that appear whole or not at all, whatever is killed in between. Knows no models.
//!
//! Everything is made under a name that begins with `.unfinished-`, flushed, and renamed. What a crash leaves behind has
//! such a name; who holds the lock of the directory takes it away.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, openat, renameat_with};
use rustix::io::Errno;
use trellis_digest::{Sha256, hex};

use crate::error::ModelError;
use crate::manifest::FileFacts;

const UNFINISHED: &str = ".unfinished-";
const LOCK: &str = ".lock";
/// Who holds the lock writes a model, which takes seconds.
const LOCK_WAIT: Duration = Duration::from_secs(60);
const LOCK_RETRY: Duration = Duration::from_millis(50);
/// What is hashed at once is still in the processor's cache when it is written.
const PIECE_BYTES: usize = 1 << 18;
/// Settings of runs may hold secrets: what is kept is its owner's alone.
const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// Every change of the disk passes here, so that a test can stop after any of them.
#[derive(Debug, Default)]
pub struct Disk {
    #[cfg(test)]
    pub trap: crate::testing::Trap,
}

impl Disk {
    /// Counts a change; in a test that wants it, this is where the process dies or the disk is full.
    fn step(&self) -> io::Result<()> {
        #[cfg(test)]
        self.trap.step()?;
        Ok(())
    }

    /// Makes the directory unless it is there, and those above it.
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
            // Another process was quicker.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other.map_err(ModelError::disk("create directory", path)),
        }
    }

    /// Takes the lock of a directory, for as long as the value lives.
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

    /// `None`: somebody has it.
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

    /// Removes what a crash left in a directory whose lock the caller holds.
    pub fn sweep(&self, directory: &Path) -> Result<(), ModelError> {
        for name in names(directory)?.iter().filter(|name| is_unfinished(name)) {
            self.remove(&directory.join(name))?;
        }
        Ok(())
    }

    /// Removes a file, a link or a whole directory; what is not there is no trouble.
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

    /// An empty directory to be filled and then placed at `target`.
    pub fn begin_dir(&self, target: &Path) -> Result<PathBuf, ModelError> {
        let new = unfinished(target);
        self.remove(&new)?;
        self.create_dir(&new)?;
        Ok(new)
    }

    /// Writes a new file, flushes it, and says what is in it.
    pub fn write_hashed(
        &self,
        path: &Path,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<FileFacts, ModelError> {
        let write = || {
            self.step()?;
            let file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(path)?;
            let hashing = Hashing { file, disk: self, digest: Sha256::default(), bytes: 0 };
            let mut buffered = BufWriter::with_capacity(PIECE_BYTES, hashing);
            fill(&mut buffered)?;
            let hashing = buffered.into_inner().map_err(|error| error.into_error())?;
            self.step()?;
            hashing.file.sync_all()?;
            Ok(FileFacts { bytes: hashing.bytes, sha256: hex(&hashing.digest.finish()) })
        };
        write().map_err(ModelError::disk("write", path))
    }

    /// Puts a filled directory at its place, also where there is one already; that one is then gone.
    pub fn place_dir(&self, new: &Path, target: &Path) -> Result<(), ModelError> {
        self.flush_dir(new)?;
        if !target.exists() {
            return self.rename(new, target);
        }
        match self.step().and_then(|()| Ok(renameat_with(CWD, new, CWD, target, RenameFlags::EXCHANGE)?)) {
            Ok(()) => self.flush_dir(parent_of(target))?,
            // The file system cannot exchange two names. For a moment there is none of them.
            Err(error) if cannot_exchange(&error) => {
                self.withdraw_dir(target)?;
                return self.rename(new, target);
            }
            Err(error) => return Err(ModelError::disk("put in place", target)(error)),
        }
        self.remove(new)
    }

    /// Removes a directory that others may look at: from one moment to the next it is not there.
    pub fn withdraw_dir(&self, path: &Path) -> Result<(), ModelError> {
        let mut aside = unfinished(path).into_os_string();
        aside.push("-removed");
        let aside = PathBuf::from(aside);
        self.remove(&aside)?;
        self.rename(path, &aside)?;
        self.remove(&aside)
    }

    /// Lets `link` point to `target` from now on.
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
        self.step().and_then(|()| fs::rename(from, to)).map_err(ModelError::disk("put in place", to))?;
        self.flush_dir(parent_of(to))
    }

    fn flush_dir(&self, path: &Path) -> Result<(), ModelError> {
        let flushed = self.step().and_then(|()| File::open(path)?.sync_all());
        flushed.map_err(ModelError::disk("flush", path))
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
        let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
        self.disk.step()?;
        self.file.write_all(piece)?;
        self.digest.update(piece);
        self.bytes += piece.len() as u64;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is in a directory, in order; nothing where there is none. Names that are no text are none of ours.
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

/// Opens a file by its directories below `root`, none of which may be a link; `None`: there is no such file.
pub fn open_beneath(root: &Path, path: &[&str]) -> Result<Option<File>, ModelError> {
    let whole = || path.iter().fold(root.to_owned(), |whole, part| whole.join(part));
    let (file, directories) = path.split_last().expect("a path names a file");
    let open = || {
        let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut place = openat(CWD, root, directory, Mode::empty())?;
        for name in directories {
            place = openat(&place, *name, directory | OFlags::NOFOLLOW, Mode::empty())?;
        }
        // A pipe in its place must not block the reader.
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

/// Whether a crash, or somebody at work, left this name.
pub fn is_unfinished(name: &str) -> bool {
    name.starts_with(UNFINISHED)
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(UNFINISHED);
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

pub fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn cannot_exchange(error: &io::Error) -> bool {
    [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

//! Large objects as files. A [`Spool`] receives the content, is fsynced, and gets a name that is never used again. A
//! removal after a crash can therefore never hit newer content.

use std::collections::HashSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use trellis_core::id::ObjectId;
use trellis_core::port::crash;

/// Directory below the root for content without a name.
const INCOMING: &str = "incoming";

pub(crate) struct FileStore {
    root: PathBuf,
    directory: File,
    /// Whether files must survive a loss of power.
    durable: bool,
    /// Part of every name, so that two processes never use the same name.
    epoch: u64,
    counter: AtomicU64,
}

impl FileStore {
    pub(crate) fn open(root: &Path, durable: bool) -> io::Result<FileStore> {
        DirBuilder::new().recursive(true).mode(0o700).create(root.join(INCOMING))?;
        let directory = File::open(root)?;
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        Ok(FileStore { root: root.to_owned(), directory, durable, epoch, counter: AtomicU64::new(0) })
    }

    /// Creates a file for incoming content.
    pub(crate) fn spool(&self) -> io::Result<Spool> {
        let tag = format!("{:x}-{:x}", self.epoch, self.counter.fetch_add(1, Ordering::Relaxed));
        let path = self.root.join(INCOMING).join(&tag);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Spool { file, path: Some(path), tag })
    }

    /// Makes the spooled content durable and names it after `id`. The name itself is durable after the next
    /// [`FileStore::sync_names`]. Blocks on the disk.
    pub(crate) fn place(&self, mut spool: Spool, id: ObjectId) -> io::Result<String> {
        crash::point("file-written");
        if self.durable {
            spool.file.sync_data()?;
        }
        let name = format!("{id}.{}", spool.tag);
        if let Some(path) = &spool.path {
            std::fs::rename(path, self.root.join(&name))?;
        }
        spool.path = None;
        crash::point("file-placed");
        Ok(name)
    }

    /// Makes the names of all placed files durable with one fsync.
    pub(crate) fn sync_names(&self) -> io::Result<()> {
        if self.durable { self.directory.sync_all() } else { Ok(()) }
    }

    /// Opens a placed file.
    pub(crate) fn open_file(&self, name: &str) -> io::Result<File> {
        File::open(self.root.join(name))
    }

    /// Removes a placed file. A missing file is no error.
    pub(crate) fn remove(&self, name: &str) {
        match std::fs::remove_file(self.root.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(file = name, %error, "cannot remove an object file; the next start retries");
            }
            _ => {}
        }
    }

    /// Removes every file that is not in `referenced`. Must run before the first upload.
    pub(crate) fn remove_orphans(&self, referenced: &HashSet<String>) -> io::Result<usize> {
        let mut removed = 0;
        for directory in [self.root.clone(), self.root.join(INCOMING)] {
            for file in std::fs::read_dir(directory)? {
                let file = file?;
                if file.file_type()?.is_file() && !referenced.contains(&*file.file_name().to_string_lossy()) {
                    std::fs::remove_file(file.path())?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }
}

/// Incoming content. Drop removes it unless it was placed.
pub(crate) struct Spool {
    file: File,
    path: Option<PathBuf>,
    tag: String,
}

impl Spool {
    /// Blocks on the disk.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_files(root: &Path) -> usize {
        let count = |path: &Path| {
            std::fs::read_dir(path).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_file()).count()
        };
        count(root) + count(&root.join(INCOMING))
    }

    #[test]
    fn a_dropped_spool_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let files = FileStore::open(dir.path(), true).unwrap();
        let mut spool = files.spool().unwrap();
        spool.write(b"half of it").unwrap();
        drop(spool);
        assert_eq!(count_files(dir.path()), 0);
    }

    #[test]
    fn files_without_a_reference_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let files = FileStore::open(dir.path(), true).unwrap();
        let place = |id: u8| {
            let mut spool = files.spool().unwrap();
            spool.write(b"bytes").unwrap();
            files.place(spool, ObjectId::new([id; 32])).unwrap()
        };
        let (kept, again, _lost) = (place(1), place(1), place(2));
        assert_ne!(kept, again, "two uploads of one object have different names");
        std::mem::forget(files.spool().unwrap()); // A crash leaves this file.
        assert_eq!(files.remove_orphans(&HashSet::from([kept.clone()])).unwrap(), 3);
        assert!(files.open_file(&kept).is_ok());
    }
}

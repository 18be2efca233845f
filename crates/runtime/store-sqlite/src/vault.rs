//! Large objects as files. Content comes in through a [`Spool`], is made durable, and gets a name that is never used
//! twice: so a file that goes can never be one that has just come, whatever the order of crashes.

use std::collections::HashSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use trellis_core::id::ObjectId;
use trellis_core::port::crash;

/// Below the root: content that has no name yet.
const INCOMING: &str = "incoming";

/// Where large objects are kept.
pub(crate) struct Vault {
    root: PathBuf,
    directory: File,
    /// Whether files must survive a loss of power.
    durable: bool,
    /// This process's part of names, so that two lives of a SuperLink never use the same.
    epoch: u64,
    counter: AtomicU64,
}

impl Vault {
    pub(crate) fn open(root: &Path, durable: bool) -> io::Result<Vault> {
        DirBuilder::new().recursive(true).mode(0o700).create(root.join(INCOMING))?;
        let directory = File::open(root)?;
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        Ok(Vault { root: root.to_owned(), directory, durable, epoch, counter: AtomicU64::new(0) })
    }

    /// A place for content that is on its way in.
    pub(crate) fn spool(&self) -> io::Result<Spool> {
        let tag = format!("{:x}-{:x}", self.epoch, self.counter.fetch_add(1, Ordering::Relaxed));
        let path = self.root.join(INCOMING).join(&tag);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Spool { file, path: Some(path), tag })
    }

    /// Makes the spooled content durable and gives it a name of `id`'s. The name itself is durable after the next
    /// [`Vault::sync_names`]. Blocks on the disk.
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

    /// Makes the names of all placed files durable: one flush for many files.
    pub(crate) fn sync_names(&self) -> io::Result<()> {
        if self.durable { self.directory.sync_all() } else { Ok(()) }
    }

    /// Opens a placed file.
    pub(crate) fn open_file(&self, name: &str) -> io::Result<File> {
        File::open(self.root.join(name))
    }

    /// Removes a placed file; that it is gone already is fine.
    pub(crate) fn remove(&self, name: &str) {
        match std::fs::remove_file(self.root.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(file = name, %error, "object file could not be removed; the next start will try again");
            }
            _ => {}
        }
    }

    /// Removes every file that is not in `wanted`. Only before anything comes in.
    pub(crate) fn sweep(&self, wanted: &HashSet<String>) -> io::Result<usize> {
        let mut removed = 0;
        for directory in [self.root.clone(), self.root.join(INCOMING)] {
            for file in std::fs::read_dir(directory)? {
                let file = file?;
                if file.file_type()?.is_file() && !wanted.contains(&*file.file_name().to_string_lossy()) {
                    std::fs::remove_file(file.path())?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }
}

/// Content on its way in. Dropped before it is placed, it leaves nothing.
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

    fn files(root: &Path) -> usize {
        let count = |path: &Path| {
            std::fs::read_dir(path).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_file()).count()
        };
        count(root) + count(&root.join(INCOMING))
    }

    #[test]
    fn a_spool_that_is_dropped_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let vault = Vault::open(dir.path(), true).unwrap();
        let mut spool = vault.spool().unwrap();
        spool.write(b"half of it").unwrap();
        drop(spool);
        assert_eq!(files(dir.path()), 0);
    }

    #[test]
    fn the_sweep_takes_what_no_row_names() {
        let dir = tempfile::tempdir().unwrap();
        let vault = Vault::open(dir.path(), true).unwrap();
        let place = |id: u8| {
            let mut spool = vault.spool().unwrap();
            spool.write(b"bytes").unwrap();
            vault.place(spool, ObjectId::new([id; 32])).unwrap()
        };
        let (kept, again, _lost) = (place(1), place(1), place(2));
        assert_ne!(kept, again, "one object may come twice, its files never share a name");
        std::mem::forget(vault.spool().unwrap()); // As a crash would leave it.
        assert_eq!(vault.sweep(&HashSet::from([kept.clone()])).unwrap(), 3);
        assert!(vault.open_file(&kept).is_ok());
    }
}

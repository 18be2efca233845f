//! Atomic files and directories. Knows no certificates.
//!
//! Content is written under a name that begins with `.new-`, flushed, and renamed. The next attempt removes such files of a
//! crash. Callers hold a lock, so there is only one writer.
//!
//! Root writes into directories that belong to a SuperLink's user, and so to its apps, which may replace entries at any time.
//! So links are not followed, and files are created and given away through open handles.

#[cfg(test)]
use std::cell::Cell;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::Error;

/// Far more than any certificate, key or bundle of a federation has.
pub const MAX_FILE: u64 = 1 << 20;

pub const PRIVATE_DIR: u32 = 0o700;
pub const PUBLIC_DIR: u32 = 0o755;
pub const PRIVATE_FILE: u32 = 0o600;
pub const PUBLIC_FILE: u32 = 0o644;
const UNFINISHED: &str = ".new-";

/// A file to be written.
pub struct Content<'a> {
    pub name: &'a str,
    pub bytes: &'a [u8],
    pub mode: u32,
}

/// Every change of the disk passes here, so that a test can stop after any of them.
#[derive(Default)]
pub struct Disk {
    #[cfg(test)]
    pub changes_left: Cell<Option<u32>>,
}

impl Disk {
    /// Counts a change; the crash point of tests.
    fn change(&self, _path: &Path) -> Result<(), Error> {
        #[cfg(test)]
        if let Some(left) = self.changes_left.get() {
            let Some(less) = left.checked_sub(1) else {
                return Err(Error::disk("die at", _path)(io::Error::other("killed by the test")));
            };
            self.changes_left.set(Some(less));
        }
        Ok(())
    }

    /// Creates the directory unless it exists. Missing parents get the default modes.
    pub fn make_dir(&self, path: &Path, mode: u32) -> Result<(), Error> {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.change(parent)?;
            fs::create_dir_all(parent).map_err(Error::disk("create directory", parent))?;
        }
        self.create_dir(path, mode)?;
        self.flush_dir(parent_of(path))
    }

    fn create_dir(&self, path: &Path, mode: u32) -> Result<File, Error> {
        self.change(path)?;
        DirBuilder::new().mode(mode).create(path).map_err(Error::disk("create directory", path))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = open(CWD, path, flags, 0).map_err(Error::disk("open", path))?;
        let owner = dir.metadata().map_err(Error::disk("look at", path))?.uid();
        if owner != rustix::process::geteuid().as_raw() {
            let exchanged = io::Error::other("another process replaced the directory");
            return Err(Error::disk("use", path)(exchanged));
        }
        // The umask reduced the mode at the creation.
        dir.set_permissions(Permissions::from_mode(mode)).map_err(Error::disk("set the mode of", path))?;
        Ok(dir)
    }

    pub fn set_mode(&self, path: &Path, mode: u32) -> Result<(), Error> {
        self.change(path)?;
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(Error::disk("set the mode of", path))
    }

    /// Replaces a file atomically.
    pub fn replace_file(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
        let new = unfinished(path);
        self.remove_file(&new)?;
        let file = Content { name: "", bytes, mode };
        self.write_new(CWD, &new, &file, &new, None)?;
        self.rename(&new, path)
    }

    /// Creates a complete directory atomically; an existing one is taken for the same.
    pub fn place_dir(&self, path: &Path, mode: u32, files: &[Content<'_>]) -> Result<(), Error> {
        if path.is_dir() {
            return Ok(());
        }
        let new = unfinished(path);
        self.remove_dir(&new)?;
        let dir = self.create_dir(&new, mode)?;
        let owner = Owner::to_hand_over(parent_of(path))?;
        for file in files {
            self.write_new(&dir, Path::new(file.name), file, &new, owner)?;
        }
        if let Some(owner) = owner {
            owner.give_ownership(&dir, &new)?;
        }
        dir.sync_all().map_err(Error::disk("flush", &new))?;
        self.rename(&new, path)
    }

    /// Lets `link` point to `target` from now on.
    pub fn point_link(&self, link: &Path, target: &str) -> Result<(), Error> {
        if fs::read_link(link).is_ok_and(|now| now == Path::new(target)) {
            return Ok(());
        }
        let new = unfinished(link);
        self.remove_file(&new)?;
        self.change(&new)?;
        std::os::unix::fs::symlink(target, &new).map_err(Error::disk("create link", &new))?;
        self.rename(&new, link)
    }

    pub fn remove_file(&self, path: &Path) -> Result<(), Error> {
        if path.symlink_metadata().is_err() {
            return Ok(());
        }
        self.change(path)?;
        gone(fs::remove_file(path)).map_err(Error::disk("remove", path))
    }

    /// Removes a directory and all in it; a link is removed, not followed.
    pub fn remove_dir(&self, path: &Path) -> Result<(), Error> {
        if path.symlink_metadata().is_err() {
            return Ok(());
        }
        self.change(path)?;
        gone(fs::remove_dir_all(path)).map_err(Error::disk("remove directory", path))?;
        self.flush_dir(parent_of(path))
    }

    /// Removes incomplete files of an earlier attempt.
    pub fn sweep(&self, path: &Path) -> Result<(), Error> {
        for entry in entries(path)? {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !name.starts_with(UNFINISHED) {
                continue;
            }
            match entry.symlink_metadata() {
                Ok(metadata) if metadata.is_dir() => self.remove_dir(&entry)?,
                _ => self.remove_file(&entry)?,
            }
        }
        Ok(())
    }

    fn write_new(
        &self,
        dir: impl std::os::fd::AsFd,
        name: &Path,
        content: &Content<'_>,
        path: &Path,
        owner: Option<Owner>,
    ) -> Result<(), Error> {
        self.change(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = open(dir, name, flags, content.mode).map_err(Error::disk("create a file in", path))?;
        // A crash may have left a part.
        let (first, second) = content.bytes.split_at(content.bytes.len() / 2);
        file.write_all(first).map_err(Error::disk("write", path))?;
        self.change(path)?;
        file.write_all(second).map_err(Error::disk("write", path))?;
        file.set_permissions(Permissions::from_mode(content.mode)).map_err(Error::disk("set a mode in", path))?;
        if let Some(owner) = owner {
            owner.give_ownership(&file, path)?;
        }
        file.sync_all().map_err(Error::disk("flush", path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        self.change(to)?;
        fs::rename(from, to).map_err(|error| {
            // There may be no later attempt that would sweep.
            let _ = fs::remove_file(from);
            Error::disk("put in place", to)(error)
        })?;
        self.flush_dir(parent_of(to))
    }

    fn flush_dir(&self, path: &Path) -> Result<(), Error> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        self.change(path)?;
        File::open(path).and_then(|dir| dir.sync_all()).map_err(Error::disk("flush", path))
    }
}

fn open(dir: impl std::os::fd::AsFd, name: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
    Ok(openat(dir, name, flags, Mode::from_raw_mode(mode))?.into())
}

/// Reads a file of certificates or keys. A pipe or a device is refused rather than waited for.
pub fn read_small(path: &Path) -> io::Result<(Vec<u8>, fs::Metadata)> {
    let file = open(CWD, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, 0)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other(if metadata.is_dir() { "it is a directory" } else { "it is no regular file" }));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok((bytes, metadata))
}

/// The owner of new files in a directory: that of the directory. Only root can give files away.
#[derive(Clone, Copy)]
struct Owner {
    user: u32,
    group: u32,
}

impl Owner {
    fn to_hand_over(dir: &Path) -> Result<Option<Owner>, Error> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let metadata = dir.metadata().map_err(Error::disk("look at", dir))?;
        Ok(Some(Owner { user: metadata.uid(), group: metadata.gid() }))
    }

    /// By the open file, not by its name: the owner of the directory may replace the entry.
    fn give_ownership(self, file: &File, path: &Path) -> Result<(), Error> {
        std::os::unix::fs::fchown(file, Some(self.user), Some(self.group))
            .map_err(Error::disk("give to the owner of its directory", path))
    }
}

/// The entries of a directory, sorted; none if it does not exist.
pub fn entries(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = match fs::read_dir(path) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::disk("list", path)(error)),
    };
    let mut found = Vec::new();
    for entry in read {
        found.push(entry.map_err(Error::disk("list", path))?.path());
    }
    found.sort();
    Ok(found)
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(UNFINISHED);
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

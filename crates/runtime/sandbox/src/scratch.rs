//! The directory of one app: home, temporary files, working directory, and a copy of its code that it cannot change.

use std::fs::{self, DirBuilder};
use std::io;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::policy::User;
use crate::user;

/// Modes of directories and files: other apps have no access.
const PRIVATE: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

const HOME: &str = "home";
const TEMPORARY: &str = "tmp";
const WORK: &str = "work";
const APP: &str = "app";

#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
    user: Option<User>,
}

impl Scratch {
    pub(crate) fn create(directory: PathBuf, user: Option<User>) -> io::Result<Scratch> {
        let scratch = Scratch { directory, user };
        make_private(&scratch.directory)?;
        if scratch.user.is_some() {
            user::grant_search(&scratch.directory)?;
        }
        for name in [HOME, TEMPORARY, WORK, APP] {
            let path = scratch.directory.join(name);
            make_private(&path)?;
            scratch.give_to_user(&path)?;
        }
        Ok(scratch)
    }

    pub fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn home(&self) -> PathBuf {
        self.directory.join(HOME)
    }

    pub fn temporary(&self) -> PathBuf {
        self.directory.join(TEMPORARY)
    }

    /// The working directory of the app.
    pub fn work(&self) -> PathBuf {
        self.directory.join(WORK)
    }

    /// Directory with read-only access for the app.
    pub fn app(&self) -> PathBuf {
        self.directory.join(APP)
    }

    /// Writes a file that the app can read.
    pub fn put(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        let path = self.app().join(name);
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(&path)?;
        file.write_all(content)?;
        self.give_to_user(&path)?;
        Ok(path)
    }

    /// Copies a directory so that the app can read it. Skips top-level entries named in `left_out`.
    pub fn copy(&self, from: &Path, left_out: &[&str]) -> io::Result<PathBuf> {
        let name = from.file_name().ok_or_else(|| io::Error::other("a directory without a name cannot be copied"))?;
        let to = self.app().join(name);
        self.copy_directory(from, &to, left_out)?;
        Ok(to)
    }

    fn copy_directory(&self, from: &Path, to: &Path, left_out: &[&str]) -> io::Result<()> {
        make_private(to)?;
        self.give_to_user(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let (kind, name) = (entry.file_type()?, entry.file_name());
            if left_out.iter().any(|left_out| name == *left_out) {
                continue;
            }
            let target = to.join(&name);
            if kind.is_dir() {
                self.copy_directory(&entry.path(), &target, &[])?;
            } else if kind.is_file() {
                fs::copy(entry.path(), &target)?;
                self.give_to_user(&target)?;
            }
        }
        Ok(())
    }

    fn give_to_user(&self, path: &Path) -> io::Result<()> {
        self.user.as_ref().map_or(Ok(()), |user| user::give(path, user))
    }

    /// Removes the whole directory. The app must have ended.
    pub fn remove(&self) -> io::Result<()> {
        remove(&self.directory)
    }

    /// Removes the files of an ended app in `directory`, except for files in its working directory.
    pub fn clear(directory: &Path) -> io::Result<()> {
        for name in [HOME, TEMPORARY, APP] {
            remove(&directory.join(name))?;
        }
        // Removes each directory only if it is empty.
        let _results = fs::remove_dir(directory.join(WORK)).and_then(|()| fs::remove_dir(directory));
        Ok(())
    }
}

/// Creates a private directory and its missing parents.
pub(crate) fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE).create(directory)
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

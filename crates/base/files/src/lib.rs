//! Atomic and durable files. A reader sees the old content or the new content, never a part of it, and content survives a
//! power failure once a call has returned `Ok`.
//!
//! The functions here return errors of the system, for callers that add the path themselves. [`private`] is for files that
//! only their owner may read; its errors name the path.
//!
//! Content is written to a file beside the target, with a name that ends in `.new`, and renamed. Names of two writers
//! differ, so that neither renames the unfinished file of the other. A crash may leave such a file behind: only its owner
//! can read it, and nothing reads it.

pub mod private;
pub mod socket;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

pub const PRIVATE_FILE: u32 = 0o600;
pub const PUBLIC_FILE: u32 = 0o644;
pub const PRIVATE_DIRECTORY: u32 = 0o700;
pub const PUBLIC_DIRECTORY: u32 = 0o755;

/// Writes a file, or replaces an existing one.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace_prepared(path, content, mode, |_| Ok(()))
}

/// [`replace`], where `prepare` changes the new file (its owner, for example) before it becomes visible.
pub fn replace_prepared(
    path: &Path,
    content: &[u8],
    mode: u32,
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    write(path, content, mode, prepare, |new| fs::rename(new, path))
}

/// Writes a file that must not exist yet. Of several writers one succeeds; the others get `AlreadyExists`.
pub fn create(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    write(path, content, mode, |_| Ok(()), |new| rename_to_free_name(new, path))
}

/// Makes created, renamed and removed entries of a directory durable.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The directory that a path is in; `.` for a bare name.
pub fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write(
    path: &Path,
    content: &[u8],
    mode: u32,
    prepare: impl FnOnce(&File) -> io::Result<()>,
    place: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let (new, mut file) = open_new(path)?;
    let placed = (|| {
        file.write_all(content)?;
        // Not at creation: the umask would cut it, and incomplete content would be readable by others.
        file.set_permissions(Permissions::from_mode(mode))?;
        prepare(&file)?;
        file.sync_all()?;
        place(&new)
    })();
    if placed.is_err() {
        let _ = fs::remove_file(&new);
    }
    placed?;
    sync_directory(parent_of(path))
}

/// A new file beside `path`. Never opens an existing one: another user may have put a link in its place.
fn open_new(path: &Path) -> io::Result<(PathBuf, File)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let mut new = path.as_os_str().to_owned();
        new.push(format!(".{}-{}.new", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        match OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(&new) {
            // Left by a crash of a process with the same id, which is common in containers.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return Ok((new.into(), opened?)),
        }
    }
}

fn rename_to_free_name(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system has no such rename.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        renamed => Ok(renamed?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(path: &Path) -> (String, u32) {
        let mode = fs::metadata(path).expect("it is there").permissions().mode() & 0o7777;
        (fs::read_to_string(path).expect("text"), mode)
    }

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).expect("a directory").map(|entry| entry.expect("an entry").file_name());
        entries.map(|name| name.into_string().expect("text")).collect()
    }

    #[test]
    fn a_file_is_replaced_with_its_mode_and_nothing_is_left_beside_it() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("a.json");
        replace(&path, b"1", PRIVATE_FILE).expect("written");
        assert_eq!(content(&path), ("1".to_owned(), 0o600));
        replace(&path, b"2", 0o666).expect("written");
        assert_eq!(content(&path), ("2".to_owned(), 0o666));
        replace_prepared(&path, b"3", 0o600, |_| Err(io::Error::other("no"))).expect_err("not prepared");
        assert_eq!((names(home.path()), content(&path).0), (vec!["a.json".to_owned()], "2".to_owned()));
    }

    #[test]
    fn a_file_is_created_once() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("key");
        create(&path, b"1", PRIVATE_FILE).expect("created");
        let error = create(&path, b"2", PRIVATE_FILE).expect_err("there is one");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((names(home.path()), content(&path).0), (vec!["key".to_owned()], "1".to_owned()));
    }

    #[test]
    fn files_that_a_crash_left_do_not_stop_a_writer() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("a");
        let (left, _) = open_new(&path).expect("opened");
        for count in 0..64 {
            let _ = File::create(format!("{}.{}-{count}.new", path.display(), std::process::id()));
        }
        replace(&path, b"1", PRIVATE_FILE).expect("written");
        assert_eq!((content(&path), content(&left)), (("1".to_owned(), 0o600), (String::new(), 0o600)));
    }
}

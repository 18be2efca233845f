//! Atomic and durable files. A reader sees the old content or the new content, never a part of it, and a call that
//! returned `Ok` survives a power failure. Errors name the path.
//!
//! Content is written to a file beside the target, with a name that ends in `.new`, and renamed. Names of two writers
//! differ, so that neither renames the unfinished file of the other. A crash may leave such a file behind: it has the mode of a
//! private file, and readers ignore it.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

pub const PRIVATE_FILE: u32 = 0o600;
pub const PUBLIC_FILE: u32 = 0o644;
pub const PRIVATE_DIRECTORY: u32 = 0o700;
pub const PUBLIC_DIRECTORY: u32 = 0o755;

/// Creates a directory that only its owner can use, and missing directories above it likewise.
pub fn make_private_directory(path: &Path) -> io::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(path);
    made.map_err(|error| about("the directory", path, "cannot be made", &error))
}

/// Writes a file, in place of an existing one.
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

/// The content of a file; `None` if it does not exist.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(|error| about("the file", path, "cannot be read", &error)),
    }
}

/// Removes a file; succeeds if it does not exist.
pub fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        removed => removed.and_then(|()| sync_directory(parent_of(path))),
    };
    removed.map_err(|error| about("the file", path, "cannot be removed", &error))
}

/// Makes created, renamed and removed entries of a directory durable.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The directory that a path is in; `.` for a bare name.
pub fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Adds to an error which file or directory it is about.
pub fn about(kind: &str, path: &Path, what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{kind} {} {what}: {error}", path.display()))
}

fn write(
    path: &Path,
    content: &[u8],
    mode: u32,
    prepare: impl FnOnce(&File) -> io::Result<()>,
    place: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let written = (|| {
        let (new, mut file) = open_new(path)?;
        let placed = (|| {
            file.write_all(content)?;
            // Not at creation: the umask would cut it, and the content would be readable before it is complete.
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
    })();
    written.map_err(|error| about("the file", path, "cannot be written", &error))
}

/// A new file beside `path`. Never opens an existing one: another user may have put a link in its place.
fn open_new(path: &Path) -> io::Result<(PathBuf, File)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut new = path.as_os_str().to_owned();
        new.push(format!(".{}-{count}.new", std::process::id()));
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

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
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
        assert_eq!((read(&path).expect("read"), mode(&path)), (Some(b"1".to_vec()), 0o600));
        replace(&path, b"2", 0o666).expect("written");
        assert_eq!((read(&path).expect("read"), mode(&path)), (Some(b"2".to_vec()), 0o666));
        replace_prepared(&path, b"3", 0o600, |_| Err(io::Error::other("no"))).expect_err("not prepared");
        assert_eq!((names(home.path()), read(&path).expect("read")), (vec!["a.json".to_owned()], Some(b"2".to_vec())));
    }

    #[test]
    fn a_file_is_created_once() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("key");
        create(&path, b"1", PRIVATE_FILE).expect("created");
        let error = create(&path, b"2", PRIVATE_FILE).expect_err("there is one");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((names(home.path()), read(&path).expect("read")), (vec!["key".to_owned()], Some(b"1".to_vec())));
    }

    #[test]
    fn what_a_crash_left_is_in_nobodys_way() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("a");
        let (left, _) = open_new(&path).expect("opened");
        for count in 0..64 {
            let _ = File::create(format!("{}.{}-{count}.new", path.display(), std::process::id()));
        }
        replace(&path, b"1", PRIVATE_FILE).expect("written");
        assert!(left.exists() && mode(&left) == PRIVATE_FILE);
    }

    #[test]
    fn errors_name_the_path_and_a_missing_file_is_none() {
        let home = tempfile::tempdir().expect("a directory");
        let missing = home.path().join("no/where");
        assert_eq!(read(&missing).expect("none"), None);
        remove(&missing).expect("gone already");
        let error = replace(&missing, b"", PRIVATE_FILE).expect_err("no directory");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().starts_with(&format!("the file {} cannot be written: ", missing.display())));
        make_private_directory(&missing).expect("made");
        assert_eq!((mode(&missing), mode(parent_of(&missing))), (0o700, 0o700));
        assert_eq!(parent_of(Path::new("a")), Path::new("."));
    }
}

//! Atomic writes of files with mode and owner. Unchanged files are not written.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{Gid, Uid};

/// Owner of the files of programs; `None` if the programs run as the current user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

impl Owner {
    /// Looks up the user, if this process may change owners.
    pub fn find(passwd: &Path, name: &str) -> Option<Owner> {
        let text = fs::read_to_string(passwd).ok()?;
        rustix::process::geteuid().is_root().then_some(())?;
        text.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(name)).then_some(())?;
            Some(Owner { uid: fields.nth(1)?.parse().ok()?, gid: fields.next()?.parse().ok()? })
        })
    }

    fn give(owner: Option<Owner>, path: &Path) -> io::Result<()> {
        let Some(owner) = owner else { return Ok(()) };
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::chownat(rustix::fs::CWD, path, Some(uid), Some(gid), flags)?)
    }
}

/// Creates a directory and its parents, and sets mode and owner of the directory. Programs can traverse the parents, whatever
/// the umask of the agent is.
pub fn make_directory(path: &Path, mode: u32, owner: Option<Owner>) -> io::Result<()> {
    let made = (|| {
        let absent: Vec<&Path> = path.ancestors().skip(1).take_while(|above| !above.exists()).collect();
        DirBuilder::new().recursive(true).mode(0o755).create(path)?;
        for above in absent.iter().filter(|above| !above.as_os_str().is_empty()) {
            fs::set_permissions(above, fs::Permissions::from_mode(0o755))?;
        }
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        Owner::give(owner, path)
    })();
    made.map_err(|error| about("the directory", path, "cannot be made", &error))
}

/// Writes a file if its contents, mode or owner differ. Returns whether it did.
pub fn write(path: &Path, content: &[u8], mode: u32, owner: Option<Owner>) -> io::Result<bool> {
    let written = (|| {
        let is_up_to_date = |found: &fs::Metadata| {
            found.mode() & 0o7777 == mode
                && owner.is_none_or(|owner| (found.uid(), found.gid()) == (owner.uid, owner.gid))
        };
        if fs::metadata(path).is_ok_and(|found| is_up_to_date(&found)) && fs::read(path).is_ok_and(|old| old == content)
        {
            return Ok(false);
        }
        trellis_files::replace_prepared(path, content, mode, |new| {
            owner.map_or(Ok(()), |owner| fchown(new, Some(owner.uid), Some(owner.gid)))
        })?;
        Ok(true)
    })();
    written.map_err(|error: io::Error| about("the file", path, "cannot be written", &error))
}

/// Changes the owner of a directory's contents; symbolic links are not followed.
pub fn give_all(path: &Path, owner: Option<Owner>) -> io::Result<()> {
    if owner.is_none() {
        return Ok(());
    }
    Owner::give(owner, path)?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give_all(&entry?.path(), owner)?;
        }
    }
    Ok(())
}

fn about(kind: &str, path: &Path, what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{kind} {} {what}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_of_a_directory_can_be_traversed() {
        let directory = tempfile::tempdir().expect("a directory");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
        let before = mode(directory.path());
        let path = directory.path().join("a/b");
        make_directory(&path, 0o700, None).expect("made");
        assert_eq!((mode(&path), mode(path.parent().expect("a parent"))), (0o700, 0o755));
        assert_eq!(mode(directory.path()), before);
    }

    #[test]
    fn a_file_is_written_if_contents_or_mode_differ() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a");
        assert!(write(&path, b"1", 0o640, None).expect("written"));
        assert!(!write(&path, b"1", 0o640, None).expect("the same"));
        assert!(write(&path, b"1", 0o600, None).expect("another mode"));
        assert!(write(&path, b"2", 0o600, None).expect("another content"));
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
        assert!(write(&directory.path().join("no/where"), b"", 0o600, None).is_err());
    }
}

//! A user for each app, where the starting process is root. The numbers belong to nobody: nothing has to be set up.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::grants;
use crate::policy::User;

/// Between the numbers that systemd gives to sessions and those that it gives to services; used by no distribution.
const FIRST_UID: u32 = 60_600;
const UIDS: u32 = 500;
/// Of all apps: it may pass through the state directory, and nothing else.
const GROUP: u32 = 60_599;
/// The owner does everything, the group passes through.
const PASSAGE: u32 = 0o710;

const READ: u32 = 0o4;
const WRITE: u32 = 0o2;
const PASS: u32 = 0o1;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A user that no other app of this process has, unless there are very many.
pub fn next() -> User {
    // Other processes begin elsewhere.
    let turn = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id().wrapping_mul(17));
    User { uid: FIRST_UID + turn % UIDS, gid: GROUP, groups: grants::gpu_groups() }
}

/// The first of these paths that another user cannot use, or cannot get to.
pub fn closed<'a>(paths: impl IntoIterator<Item = &'a Path>, writable: bool) -> Option<PathBuf> {
    paths.into_iter().find_map(|path| {
        let real = fs::canonicalize(path).ok()?;
        let above = real.ancestors().skip(1).find(|directory| !allows(directory, PASS));
        let need = READ | if writable { WRITE } else { 0 } | if real.is_dir() { PASS } else { 0 };
        above.map(Path::to_owned).or_else(|| (!allows(&real, need)).then(|| real.clone()))
    })
}

/// The first of these directories, or of those above them, that another user cannot pass through.
pub fn closed_on_the_way(directories: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    directories
        .into_iter()
        .find_map(|directory| directory.ancestors().find(|directory| !allows(directory, PASS)).map(Path::to_owned))
}

fn allows(path: &Path, need: u32) -> bool {
    fs::metadata(path).is_ok_and(|found| found.mode() & need == need)
}

/// Lets apps pass through a directory of ours, which stays closed to everybody else.
pub fn open_passage(directory: &Path) -> io::Result<()> {
    chown(directory, None, Some(GROUP))?;
    fs::set_permissions(directory, fs::Permissions::from_mode(PASSAGE))
}

/// Whether apps pass through this directory of ours, and nobody else does.
pub fn is_passage(found: &fs::Metadata) -> bool {
    found.is_dir() && found.gid() == GROUP && found.mode() & 0o777 == PASSAGE
}

/// Gives files to an app.
pub fn give(path: &Path, user: &User) -> io::Result<()> {
    chown(path, Some(user.uid), Some(user.gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_directory_on_the_way_is_found() {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        let deep = root.join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "").unwrap();
        let file = deep.join("file");
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set(&root.join("a"), 0o711);
        set(&deep, 0o755);
        set(&file, 0o644);
        assert_eq!(closed([file.as_path(), deep.as_path()], false), None);
        assert_eq!(closed([file.as_path()], true), Some(file.clone()));
        set(&root.join("a"), 0o700);
        assert_eq!(closed([file.as_path()], false), Some(root.join("a")));
        assert_eq!(closed([root.join("missing").as_path()], false), None);
    }
}

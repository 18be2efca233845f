//! A separate user for each app if the starting process is root. The uids are unassigned, so no accounts are needed.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::grants;
use crate::policy::User;

/// No distribution and no container engine assigns these uids. An app draws one of them at random, so that apps of all
/// processes and containers of a machine have different ones.
const UIDS: Range<u32> = 0x7000_0000..0x8000_0000;
/// For containers with a user namespace, which usually has 65,536 uids: a range between systemd's uids for sessions and those
/// for services.
const FEW_UIDS: Range<u32> = 60_600..61_100;
/// Group of all apps: it only has search permission on the state directory.
const GROUP: u32 = 60_599;
/// The owner has all rights, the group has search permission.
const SEARCH_ONLY: u32 = 0o710;

const READ: u32 = 0o4;
const WRITE: u32 = 0o2;
const SEARCH: u32 = 0o1;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A user for a new app.
pub fn next() -> User {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let random = RandomState::new().build_hasher().finish();
    // Other processes start at another offset.
    let turn = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id().wrapping_mul(17));
    User { uid: choose(&map, random, turn), gid: GROUP, groups: grants::gpu_groups() }
}

/// The uid of an app in a user namespace with this map. Few uids are taken in turns: drawn ones would soon be equal.
fn choose(uid_map: &str, random: u64, turn: u32) -> u32 {
    let nth = |uids: &Range<u32>, number: u64| uids.start + (number % u64::from(uids.end - uids.start)) as u32;
    if has(uid_map, &UIDS) { nth(&UIDS, random) } else { nth(&FEW_UIDS, turn.into()) }
}

/// Whether a user namespace has these uids. A line of its map: first uid inside, first uid outside, count.
fn has(uid_map: &str, uids: &Range<u32>) -> bool {
    uid_map.lines().any(|line| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        matches!(numbers[..], [first, _, count] if first <= uids.start.into() && u64::from(uids.end) <= first + count)
    })
}

/// The first of these paths, or of their parents, that another user cannot access.
pub fn first_inaccessible<'a>(paths: impl IntoIterator<Item = &'a Path>, writable: bool) -> Option<PathBuf> {
    paths.into_iter().find_map(|path| {
        let real = fs::canonicalize(path).ok()?;
        let above = real.ancestors().skip(1).find(|directory| !allows(directory, SEARCH));
        let need = READ | if writable { WRITE } else { 0 } | if real.is_dir() { SEARCH } else { 0 };
        above.map(Path::to_owned).or_else(|| (!allows(&real, need)).then(|| real.clone()))
    })
}

/// The first of these directories, or of their parents, without search permission for other users.
pub fn first_unsearchable(directories: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    directories
        .into_iter()
        .find_map(|directory| directory.ancestors().find(|directory| !allows(directory, SEARCH)).map(Path::to_owned))
}

fn allows(path: &Path, need: u32) -> bool {
    fs::metadata(path).is_ok_and(|found| found.mode() & need == need)
}

/// Gives apps search permission on one of our directories. Other users have no access.
pub fn grant_search(directory: &Path) -> io::Result<()> {
    chown(directory, None, Some(GROUP))?;
    fs::set_permissions(directory, fs::Permissions::from_mode(SEARCH_ONLY))
}

/// Whether a directory grants access exactly as `grant_search` does.
pub fn is_search_only(found: &fs::Metadata) -> bool {
    found.is_dir() && found.gid() == GROUP && found.mode() & 0o777 == SEARCH_ONLY
}

/// Makes the app's user the owner of a path.
pub fn give(path: &Path, user: &User) -> io::Result<()> {
    chown(path, Some(user.uid), Some(user.gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apps_get_random_uids_unless_the_container_has_too_few() {
        let whole = "         0          0 4294967295\n";
        let container = "0 100000 65536\n";
        let split = "0 1000 1\n1 100000 65535\n";
        let cases = [
            (whole, 0, 7, 0x7000_0000),
            (whole, (1 << 28) - 1, 7, 0x7fff_ffff),
            (whole, (1 << 28) + 5, 7, 0x7000_0005),
            (container, 5, 0, 60_600),
            (container, 5, 501, 60_601),
            (split, 5, 499, 61_099),
            ("", 5, 0, 60_600),
        ];
        for (map, random, turn, uid) in cases {
            assert_eq!(choose(map, random, turn), uid, "{map:?} {random} {turn}");
        }
        let drawn = || RandomState::new().build_hasher().finish();
        assert_ne!(drawn(), drawn());
    }

    #[test]
    fn an_inaccessible_parent_is_found() {
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
        assert_eq!(first_inaccessible([file.as_path(), deep.as_path()], false), None);
        assert_eq!(first_inaccessible([file.as_path()], true), Some(file.clone()));
        set(&root.join("a"), 0o700);
        assert_eq!(first_inaccessible([file.as_path()], false), Some(root.join("a")));
        assert_eq!(first_inaccessible([root.join("missing").as_path()], false), None);
    }
}

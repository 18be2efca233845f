//! Private directories for keys, tokens, databases and models. Every program of this binary that has a state directory
//! claims it here before it opens a file in it.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const PRIVATE_DIRECTORY: u32 = 0o700;
/// Permission bits of the group and of others.
const NOT_PRIVATE: u32 = 0o077;
const ROOT: u32 = 0;
/// A directory with one of these entries is an existing state directory.
const MARKS: [&str; 2] = ["lock", "superlink"];
/// Prefixes of our file names. If a state directory has other entries, only the modes of our files are repaired. The
/// mode of the directory itself stays: it may be `/tmp` or a home directory.
const OWN_NAMES: [&str; 22] = [
    "admin.token",
    "apps",
    "assets",
    "authorities",
    "federations",
    "flwr",
    "join",
    "keeper.",
    "lock",
    "models",
    "node",
    "objects",
    "outputs",
    "registry.db",
    "scratch",
    "server",
    "shared",
    "short",
    "spool",
    "state.db",
    "superlink",
    "work",
];

#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error("{path} is not a directory: name another one")]
    NotADirectory { path: PathBuf },
    #[error(
        "{path} belongs to the user with id {owner}, who could read and change everything in it; this process runs as the user \
         with id {user}. Name another directory, or change the owner: chown -R {user} {path}"
    )]
    Foreign { path: PathBuf, owner: u32, user: u32 },
    #[error("{path} cannot be made private: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// Creates the directory, or claims an existing one. Fails if it belongs to another user. Removes the permissions of
/// the group and of others from our files in it. A directory of root is accepted with its mode, because container
/// volumes are owned by root. Programs that are not root also accept a mount point: network storage has its own owners,
/// and only root can mount it.
pub fn claim(path: &Path) -> Result<(), ClaimError> {
    let io = |source| ClaimError::Io { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(path).map_err(|source| {
        match path.is_dir() || source.kind() != io::ErrorKind::AlreadyExists {
            true => io(source),
            false => ClaimError::NotADirectory { path: path.to_owned() },
        }
    })?;
    let found = path.metadata().map_err(io)?;
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user && found.uid() != ROOT && (user == ROOT || !is_mount_point(path)) {
        return Err(ClaimError::Foreign { path: path.to_owned(), owner: found.uid(), user });
    }
    if is_private(&found) {
        return Ok(());
    }
    let is_state = MARKS.iter().any(|mark| path.join(mark).exists());
    let mut all_ours = true;
    for entry in fs::read_dir(path).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name();
        match is_state && OWN_NAMES.iter().any(|own| name.to_string_lossy().starts_with(own)) {
            true => repair(&entry.path(), user)?,
            false => all_ours = false,
        }
    }
    if all_ours && found.uid() == user { restrict(path, &found) } else { Ok(()) }
}

fn is_mount_point(path: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|found| found.dev());
    matches!((device(path), device(&path.join(".."))), (Ok(own), Ok(above)) if own != above)
}

/// Removes the permissions of the group and of others from a file or a directory tree. Does not follow symbolic links,
/// and skips files of other users.
fn repair(path: &Path, user: u32) -> Result<(), ClaimError> {
    let io = |source| ClaimError::Io { path: path.to_owned(), source };
    let found = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(io)?,
    };
    if found.is_symlink() || found.uid() != user {
        return Ok(());
    }
    restrict(path, &found)?;
    if found.is_dir() {
        for entry in fs::read_dir(path).map_err(io)? {
            repair(&entry.map_err(io)?.path(), user)?;
        }
    }
    Ok(())
}

/// Also accepts directories that sandboxed apps pass through: apps may be running while a SuperLink restarts.
fn is_private(found: &Metadata) -> bool {
    found.mode() & NOT_PRIVATE == 0 || trellis_sandbox::is_search_only(found)
}

fn restrict(path: &Path, found: &Metadata) -> Result<(), ClaimError> {
    let mode = found.mode() & 0o7777;
    if is_private(found) {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode & !NOT_PRIVATE))
        .map_err(|source| ClaimError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    const STRANGER: u32 = 12_345;

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().expect("it is there").mode() & 0o7777
    }

    fn make(path: &Path, content: Option<&str>, mode: u32) {
        match content {
            Some(text) => fs::write(path, text).expect("written"),
            None => fs::create_dir(path).expect("made"),
        }
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
    }

    #[test]
    fn a_new_directory_is_private_and_an_open_one_becomes_so() {
        let home = tempfile::tempdir().expect("a directory");
        let new = home.path().join("a/new");
        claim(&new).expect("made");
        assert_eq!((mode(&new), mode(&home.path().join("a"))), (0o700, 0o700));

        let old = home.path().join("old");
        make(&old, None, 0o755);
        make(&old.join("lock"), Some(""), 0o644);
        make(&old.join("node.db-wal"), Some(""), 0o644);
        make(&old.join("apps"), None, 0o755);
        make(&old.join("apps/run.sh"), Some(""), 0o755);
        symlink("/etc/passwd", old.join("apps/link")).expect("linked");
        let outside = mode(Path::new("/etc/passwd"));
        claim(&old).expect("repaired");
        let found = ["", "lock", "node.db-wal", "apps", "apps/run.sh"].map(|name| mode(&old.join(name)));
        assert_eq!(found, [0o700, 0o600, 0o600, 0o700, 0o700]);
        assert_eq!(mode(Path::new("/etc/passwd")), outside, "links are not followed");
    }

    #[test]
    fn a_shared_directory_keeps_its_mode_and_only_our_files_change() {
        let home = tempfile::tempdir().expect("a directory");
        fs::set_permissions(home.path(), Permissions::from_mode(0o1777)).expect("set");
        make(&home.path().join("node.db"), Some(""), 0o644);
        make(&home.path().join("letters"), Some(""), 0o644);
        let modes = || ["", "node.db", "letters"].map(|name| mode(&home.path().join(name)));
        claim(home.path()).expect("claimed");
        assert_eq!(modes(), [0o1777, 0o644, 0o644], "no marker of a state directory");
        make(&home.path().join("lock"), Some(""), 0o600);
        claim(home.path()).expect("claimed");
        assert_eq!(modes(), [0o1777, 0o600, 0o644]);
    }

    /// A ServerApp outlives its SuperLink and uses its directory while the next SuperLink starts.
    #[test]
    fn directories_that_apps_pass_through_stay_so() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIP: only root has apps with users of their own");
        }
        let home = tempfile::tempdir().expect("a directory");
        make(&home.path().join("lock"), Some(""), 0o600);
        make(&home.path().join("apps"), None, 0o755);
        make(&home.path().join("apps/1"), None, 0o755);
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).expect("set");
        trellis_sandbox::grant_search(&home.path().join("apps")).expect("opened");
        trellis_sandbox::grant_search(&home.path().join("apps/1")).expect("opened");
        claim(home.path()).expect("claimed");
        assert_eq!(["", "apps", "apps/1"].map(|name| mode(&home.path().join(name))), [0o700, 0o710, 0o710]);
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("file");
        make(&file, Some(""), 0o600);
        assert!(matches!(claim(&file), Err(ClaimError::NotADirectory { .. })), "{:?}", claim(&file));
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIP: only root can give a directory away");
        }
        let theirs = home.path().join("theirs");
        make(&theirs, None, 0o700);
        chown(&theirs, Some(STRANGER), None).expect("given away");
        assert!(is_mount_point(Path::new("/proc")) && !is_mount_point(&theirs));
        let error = claim(&theirs).expect_err("foreign").to_string();
        assert!(error.contains("belongs to the user with id 12345") && error.contains("chown -R 0 "), "{error}");
    }
}

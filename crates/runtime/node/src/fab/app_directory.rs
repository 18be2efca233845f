//! The directory of installed apps, each in its own subdirectory. A marker file shows that an app is complete, from which bundle
//! it is, and when it was last used. The caller knows which apps are in use.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use trellis_wire::fab::FabMetadata;

use super::FabError;

/// Written last: an app without it is incomplete. Its modification time is that of the last use.
pub const MARKER: &str = ".trellis-installed";
/// The bundle, stored with its unpacked files.
pub const BUNDLE: &str = ".trellis-bundle.fab";
/// Top-level names that the files of an app must not have.
pub const RESERVED: [&str; 2] = [MARKER, BUNDLE];
const LOCK: &str = ".lock";
const UNPACKING: &str = ".unpacking-";

/// The number of most recently used apps that are always kept.
pub const MIN_KEPT: usize = 8;
/// Other apps are removed when they have not been used for this time.
pub const MAX_UNUSED: Duration = Duration::from_secs(14 * 24 * 3600);

/// The limit of publisher, name and version each, in the name of a directory.
const MAX_LABEL_BYTES: usize = 60;

/// The locked directory: the lock excludes other threads and processes.
pub struct AppDirectory<'a> {
    directory: &'a Path,
    _lock: File,
}

impl<'a> AppDirectory<'a> {
    pub fn open(directory: &'a Path) -> io::Result<AppDirectory<'a>> {
        fs::create_dir_all(directory)?;
        let lock = File::options().create(true).append(true).open(directory.join(LOCK))?;
        lock.lock()?;
        Ok(AppDirectory { directory, _lock: lock })
    }

    /// The subdirectory for a bundle: `publisher.name.version.hash8`, as in Flower. If another bundle has the same name, the full
    /// hash is used.
    pub fn path_of(&self, metadata: &FabMetadata, hash: &str) -> PathBuf {
        let label = [&metadata.publisher, &metadata.name, &metadata.version].map(|part| sanitized(part)).join(".");
        let short = self.directory.join(format!("{label}.{}", &hash[..8]));
        match bundle_of(&short) {
            Some(other) if other != hash => self.directory.join(format!("{label}.{hash}")),
            _ => short,
        }
    }

    /// Records the use of an app; returns false if it is missing or incomplete.
    pub fn touch(&self, app: &Path, hash: &str) -> bool {
        let touch = || File::options().append(true).open(app.join(MARKER))?.set_modified(SystemTime::now());
        bundle_of(app).is_some_and(|bundle| bundle == hash) && touch().is_ok()
    }

    /// Unpacks an app into an empty directory, which is then renamed to its final name.
    pub fn install(
        &self,
        app: &Path,
        hash: &str,
        bundle: &[u8],
        unpack: impl FnOnce(&Path) -> Result<(), FabError>,
    ) -> Result<(), FabError> {
        let fresh = tempfile::Builder::new().prefix(UNPACKING).tempdir_in(self.directory);
        let fresh = fresh.map_err(FabError::disk(self.directory))?;
        unpack(fresh.path())?;
        let finish = || {
            fs::write(fresh.path().join(BUNDLE), bundle)?;
            fs::write(fresh.path().join(MARKER), hash)?;
            // After a power failure the marker must not exist without the files.
            rustix::fs::syncfs(File::open(fresh.path())?)?;
            clear(app)?;
            fs::rename(fresh.path(), app)
        };
        finish().map_err(FabError::disk(app))?;
        let _moved = fresh.keep();
        Ok(())
    }

    fn installations(&self) -> io::Result<Vec<Installation>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.directory)? {
            let directory = entry?.path();
            let Some(hash) = bundle_of(&directory) else { continue };
            let used = fs::metadata(directory.join(MARKER))?.modified()?;
            found.push(Installation { directory, hash, used });
        }
        Ok(found)
    }

    /// The bundle of an installed app, unless it was removed.
    pub fn bundle(&self, hash: &str) -> io::Result<Option<Vec<u8>>> {
        let Some(app) = self.installations()?.into_iter().find(|app| app.hash == hash) else { return Ok(None) };
        match fs::read(app.directory.join(BUNDLE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// Incomplete apps that a crash left. The lock shows that no installation is active.
    fn orphans(&self) -> io::Result<Vec<PathBuf>> {
        let paths = fs::read_dir(self.directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        let unpacking = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(UNPACKING.as_bytes()))
        };
        Ok(paths.into_iter().filter(unpacking).collect())
    }
}

/// Replaces characters with a meaning in file systems. A name with a leading dot is not an app.
fn sanitized(part: &str) -> String {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '+' | '.');
    let text: String =
        part.chars().map(|letter| if allowed(letter) { letter } else { '_' }).take(MAX_LABEL_BYTES).collect();
    match text.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None => text,
    }
}

/// The hash of the bundle, if the directory has a complete app.
fn bundle_of(app: &Path) -> Option<String> {
    fs::read_to_string(app.join(MARKER)).ok().filter(|text| !text.is_empty())
}

fn clear(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(metadata) if metadata.is_dir() => {
            // The marker goes first: an incomplete app must not have one.
            let _absent = fs::remove_file(path.join(MARKER));
            fs::remove_dir_all(path)
        }
        Ok(_) => fs::remove_file(path),
    }
}

/// An installed app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    pub directory: PathBuf,
    pub hash: String,
    pub used: SystemTime,
}

/// Selects the apps to remove: not used for long, not among the most recently used, and not in use (by hash).
pub fn to_remove(mut installed: Vec<Installation>, in_use: &BTreeSet<String>, now: SystemTime) -> Vec<Installation> {
    installed.sort_by_key(|app| std::cmp::Reverse(app.used));
    let unused = |app: &Installation| now.duration_since(app.used).is_ok_and(|age| age > MAX_UNUSED);
    installed.into_iter().skip(MIN_KEPT).filter(|app| unused(app) && !in_use.contains(&app.hash)).collect()
}

/// Removes unused apps; returns their directories.
pub fn sweep(apps_dir: &Path, in_use: &BTreeSet<String>, now: SystemTime) -> io::Result<Vec<PathBuf>> {
    let app_directory = AppDirectory::open(apps_dir)?;
    let mut gone = app_directory.orphans()?;
    gone.extend(to_remove(app_directory.installations()?, in_use, now).into_iter().map(|app| app.directory));
    for path in &gone {
        clear(path)?;
    }
    Ok(gone)
}

#[cfg(test)]
mod tests;

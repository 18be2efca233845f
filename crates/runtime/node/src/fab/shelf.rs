//! The directory where installed apps lie, one directory each. A file inside says that it is whole, of which bundle it is, and
//! when it was last used. Who uses an app now is told from outside.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use trellis_wire::fab::FabMetadata;

use super::FabError;

/// Written last: an app without it is half an app. Its time is that of the last use.
pub const MARKER: &str = ".trellis-installed";
/// The bundle itself, beside what was in it.
pub const BUNDLE: &str = ".trellis-bundle.fab";
/// Names at the top of an app that no file of its own may have.
pub const RESERVED: [&str; 2] = [MARKER, BUNDLE];
const LOCK: &str = ".lock";
const UNPACKING: &str = ".unpacking-";

/// Apps that were used last and are kept, however long ago that was.
pub const KEPT: usize = 8;
/// What was not used for so long goes.
pub const UNUSED: Duration = Duration::from_secs(14 * 24 * 3600);

/// Bytes of publisher, name and version each, in the name of a directory.
const MAX_LABEL_BYTES: usize = 60;

/// The directory, for one at a time: locked as long as this lives, against other threads and other processes.
pub struct Shelf<'a> {
    directory: &'a Path,
    _lock: File,
}

impl<'a> Shelf<'a> {
    pub fn open(directory: &'a Path) -> io::Result<Shelf<'a>> {
        fs::create_dir_all(directory)?;
        let lock = File::options().create(true).append(true).open(directory.join(LOCK))?;
        lock.lock()?;
        Ok(Shelf { directory, _lock: lock })
    }

    /// Where the app of a bundle belongs: `publisher.name.version.hash8`, as in Flower. Two bundles that agree in all of
    /// these are rare enough that nobody makes two by accident; the second one gets its whole hash.
    pub fn place(&self, metadata: &FabMetadata, hash: &str) -> PathBuf {
        let label = [&metadata.publisher, &metadata.name, &metadata.version].map(|part| harmless(part)).join(".");
        let short = self.directory.join(format!("{label}.{}", &hash[..8]));
        match bundle_of(&short) {
            Some(other) if other != hash => self.directory.join(format!("{label}.{hash}")),
            _ => short,
        }
    }

    /// Notes the use of an app; false if it is not there, or not whole.
    pub fn used(&self, app: &Path, hash: &str) -> bool {
        let touch = || File::options().append(true).open(app.join(MARKER))?.set_modified(SystemTime::now());
        bundle_of(app).is_some_and(|bundle| bundle == hash) && touch().is_ok()
    }

    /// Lets an app be unpacked into an empty directory, which takes its place when it is whole, and not before.
    pub fn put(
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
            // The marker must not outlive, in a loss of power, what it vouches for.
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

    /// The bundle of an app that lies here, unless somebody took it away.
    pub fn bundle(&self, hash: &str) -> io::Result<Option<Vec<u8>>> {
        let Some(app) = self.installations()?.into_iter().find(|app| app.hash == hash) else { return Ok(None) };
        match fs::read(app.directory.join(BUNDLE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// What a crash left while it was unpacked. Nobody else is at it: the shelf is locked.
    fn orphans(&self) -> io::Result<Vec<PathBuf>> {
        let paths = fs::read_dir(self.directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        let unpacking = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(UNPACKING.as_bytes()))
        };
        Ok(paths.into_iter().filter(unpacking).collect())
    }
}

/// Letters that mean nothing to a file system. What starts with a dot is no app.
fn harmless(part: &str) -> String {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '+' | '.');
    let text: String =
        part.chars().map(|letter| if allowed(letter) { letter } else { '_' }).take(MAX_LABEL_BYTES).collect();
    match text.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None => text,
    }
}

/// The hash of the bundle that a directory holds the whole app of.
fn bundle_of(app: &Path) -> Option<String> {
    fs::read_to_string(app.join(MARKER)).ok().filter(|text| !text.is_empty())
}

fn clear(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(metadata) if metadata.is_dir() => {
            // First the marker: half an app that is called whole must not be left behind.
            let _absent = fs::remove_file(path.join(MARKER));
            fs::remove_dir_all(path)
        }
        Ok(_) => fs::remove_file(path),
    }
}

/// An app that lies on the shelf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    pub directory: PathBuf,
    pub hash: String,
    pub used: SystemTime,
}

/// Decides which apps go: those that were not used for long, except the ones used last, and except those in use (by hash).
pub fn to_remove(mut installed: Vec<Installation>, in_use: &BTreeSet<String>, now: SystemTime) -> Vec<Installation> {
    installed.sort_by_key(|app| std::cmp::Reverse(app.used));
    let unused = |app: &Installation| now.duration_since(app.used).is_ok_and(|age| age > UNUSED);
    installed.into_iter().skip(KEPT).filter(|app| unused(app) && !in_use.contains(&app.hash)).collect()
}

/// Removes what nobody needs any more; returns what went.
pub fn sweep(apps_dir: &Path, in_use: &BTreeSet<String>, now: SystemTime) -> io::Result<Vec<PathBuf>> {
    let shelf = Shelf::open(apps_dir)?;
    let mut gone = shelf.orphans()?;
    gone.extend(to_remove(shelf.installations()?, in_use, now).into_iter().map(|app| app.directory));
    for path in &gone {
        clear(path)?;
    }
    Ok(gone)
}

#[cfg(test)]
mod tests;

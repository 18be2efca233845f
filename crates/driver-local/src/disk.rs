//! Files that are there whole or not at all, whenever the machine stops.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIRECTORY: u32 = 0o700;
const UNFINISHED: &str = "new";

/// Makes a directory that its owner alone can use, and those above it.
pub fn make_directory(path: &Path) -> io::Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(path);
    made.map_err(|error| about("the directory", path, "cannot be made", &error))
}

/// Puts a file in the place of another. When this returns it is on disk.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = unfinished(path);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        sync_directory(path.parent().unwrap_or(Path::new(".")))
    })();
    written.map_err(|error| about("the file", path, "cannot be written", &error))
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(UNFINISHED);
    name.into()
}

/// What was created in it or taken out of it is so after a crash too.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Removes a directory with all that is in it, but for one file, which goes last: as long as that is there, so is the rest,
/// as far as anybody knows.
pub fn remove_directory(path: &Path, last: &Path) -> io::Result<()> {
    let removed = (|| {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let found = entry.path();
            if found == last {
                continue;
            }
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(found)?,
                false => fs::remove_file(found)?,
            }
        }
        sync_directory(path)?;
        fs::remove_dir_all(path)
    })();
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|error| about("the directory", path, "cannot be removed", &error)),
    }
}

/// `None`: there is none.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(|error| about("the file", path, "cannot be read", &error)),
    }
}

fn about(what: &str, path: &Path, trouble: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {} {trouble}: {error}", path.display()))
}

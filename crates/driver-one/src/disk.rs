//! Files that are there whole or not at all, whenever the machine stops, and that their owner alone can read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIRECTORY: u32 = 0o700;

pub fn make_directory(path: &Path) -> io::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(path);
    made.map_err(|error| about(path, "cannot be made", &error))
}

/// When this returns it is on disk.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        sync_parent(path)
    })();
    written.map_err(|error| about(path, "cannot be written", &error))
}

/// Only where there is none: who comes second changes nothing.
pub fn write_once(path: &Path, content: &[u8]) -> io::Result<()> {
    let own = path.with_extension(format!("{}-{:?}", std::process::id(), std::thread::current().id()));
    write(&own, content)?;
    let linked = match fs::hard_link(&own, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.and_then(|()| sync_parent(path)),
    };
    let removed = remove(&own);
    linked.map_err(|error| about(path, "cannot be written", &error)).and(removed)
}

pub fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(value).map_err(io::Error::other)?;
    write(path, &text)
}

/// `None`: there is none.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(|error| about(path, "cannot be read", &error)),
    }
}

pub fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let Some(text) = read(path)? else { return Ok(None) };
    let value = serde_json::from_slice(&text);
    value.map(Some).map_err(|error| {
        let text = format!("{} cannot be understood: {error}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

/// One that is not there is removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(about(path, "cannot be removed", &error)),
        Ok(()) => sync_parent(path),
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

fn about(path: &Path, trouble: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{} {trouble}: {error}", path.display()))
}

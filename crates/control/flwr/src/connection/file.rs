//! Reads and atomically replaces files of the user.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use trellis_files::{PRIVATE_FILE, parent_of};

/// Larger files are not configuration files.
const MAX_BYTES: u64 = 1 << 20;

/// Returns `None` if the file does not exist.
pub fn read(path: &Path) -> Result<Option<String>, String> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.len() > MAX_BYTES => return Err(format!("it is larger than {} MiB", MAX_BYTES >> 20)),
        _ => {}
    }
    fs::read_to_string(path).map(Some).map_err(|error| format!("it cannot be read: {error}"))
}

/// Keeps the permissions. Follows a symbolic link and replaces its target.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    replace(path, text, None).map_err(|error| format!("it cannot be written: {error}"))
}

/// Writes a file that only its owner can read, even if the old file was readable by others.
pub fn write_private(path: &Path, text: &str) -> Result<(), String> {
    replace(path, text, Some(PRIVATE_FILE)).map_err(|error| format!("it cannot be written: {error}"))
}

fn replace(path: &Path, text: &str, mode: Option<u32>) -> io::Result<()> {
    let real = match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        found => found?,
    };
    fs::create_dir_all(parent_of(&real))?;
    let kept = || fs::metadata(&real).ok().map(|old| old.permissions().mode() & 0o7777);
    trellis_files::replace(&real, text.as_bytes(), mode.or_else(kept).unwrap_or(PRIVATE_FILE))
}

pub fn remove(path: &Path) -> Result<(), String> {
    fs::remove_file(path).map_err(|error| format!("it cannot be removed: {error}"))
}

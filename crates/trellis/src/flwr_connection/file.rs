//! A user's file, read and replaced whole: whoever reads it meanwhile sees the old one or the new one.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::NamedTempFile;

/// A configuration file that is larger is something else.
const MOST_BYTES: u64 = 1 << 20;
const PRIVATE_FILE: u32 = 0o600;

/// `None`: there is no such file.
pub fn read(path: &Path) -> Result<Option<String>, String> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.len() > MOST_BYTES => return Err(format!("it is larger than {} MiB", MOST_BYTES >> 20)),
        _ => {}
    }
    fs::read_to_string(path).map(Some).map_err(|error| format!("it cannot be read: {error}"))
}

/// Keeps its permissions; a link stays one, to the file that changes.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    replace(path, text, None).map_err(|error| format!("it cannot be written: {error}"))
}

/// Writes a file that only its owner can read, even if the old file was readable by others.
pub fn write_private(path: &Path, text: &str) -> Result<(), String> {
    let private = Permissions::from_mode(PRIVATE_FILE);
    replace(path, text, Some(private)).map_err(|error| format!("it cannot be written: {error}"))
}

fn replace(path: &Path, text: &str, permissions: Option<Permissions>) -> io::Result<()> {
    let real = match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        found => found?,
    };
    let directory = real.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let mut new = NamedTempFile::new_in(directory)?;
    let kept = || fs::metadata(&real).ok().map(|old| old.permissions());
    if let Some(permissions) = permissions.or_else(kept) {
        new.as_file().set_permissions(permissions)?;
    }
    new.write_all(text.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(&real)?;
    Ok(())
}

pub fn remove(path: &Path) -> Result<(), String> {
    fs::remove_file(path).map_err(|error| format!("it cannot be removed: {error}"))
}

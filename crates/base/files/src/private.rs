//! Files and directories that only their owner can use. Errors name the path.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{PRIVATE_DIRECTORY, PRIVATE_FILE, parent_of, sync_directory};

/// Creates a directory, and missing directories above it.
pub fn make_directory(path: &Path) -> io::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(path);
    made.map_err(|error| about("the directory", path, "cannot be created", &error))
}

/// Removes a directory and its content; `last`, a file in it, goes last. A crash before the end leaves that file.
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

/// Writes a file, or replaces an existing one.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    crate::replace(path, content, PRIVATE_FILE).map_err(|error| about("the file", path, "cannot be written", &error))
}

pub fn replace_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    replace(path, &serde_json::to_vec_pretty(value).map_err(io::Error::other)?)
}

/// Writes a file unless it exists. If two writers create it at once, the content of one stays.
pub fn create_if_absent(path: &Path, content: &[u8]) -> io::Result<()> {
    match crate::create(path, content, PRIVATE_FILE) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created.map_err(|error| about("the file", path, "cannot be written", &error)),
    }
}

/// The content of a file; `None` if it does not exist.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|error| about("the file", path, "cannot be read", &error)),
    }
}

pub fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let Some(text) = read(path)? else { return Ok(None) };
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        let text = format!("{} cannot be understood: {error}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

/// Removes a file; succeeds if it does not exist.
pub fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        removed => removed.and_then(|()| sync_directory(parent_of(path))),
    };
    removed.map_err(|error| about("the file", path, "cannot be removed", &error))
}

fn about(kind: &str, path: &Path, what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{kind} {} {what}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_missing_file_is_none_and_other_errors_name_the_path() {
        let home = tempfile::tempdir().expect("a directory");
        let missing = home.path().join("no/where");
        assert_eq!(read(&missing).expect("none"), None);
        remove(&missing).expect("gone already");
        let error = replace(&missing, b"").expect_err("no directory");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().starts_with(&format!("the file {} cannot be written: ", missing.display())));
        make_directory(&missing).expect("made");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o7777;
        assert_eq!((mode(&missing), mode(parent_of(&missing))), (0o700, 0o700));
    }

    #[test]
    fn json_is_read_back_and_damaged_text_refused() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("a.json");
        assert_eq!(read_json::<Vec<u32>>(&path).expect("none"), None);
        replace_json(&path, &[1, 2]).expect("written");
        assert_eq!(read_json::<Vec<u32>>(&path).expect("read"), Some(vec![1, 2]));
        replace(&path, b"[1,").expect("written");
        assert_eq!(read_json::<Vec<u32>>(&path).expect_err("half").kind(), io::ErrorKind::InvalidData);
        remove(&path).expect("removed");
        create_if_absent(&path, b"1").expect("created");
        create_if_absent(&path, b"2").expect("kept");
        assert_eq!(read(&path).expect("read"), Some(b"1".to_vec()));
    }

    #[test]
    fn a_directory_goes_with_all_its_files() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("part");
        make_directory(&path.join("state")).expect("made");
        replace(&path.join("record"), b"1").expect("written");
        remove_directory(&path, &path.join("record")).expect("removed");
        remove_directory(&path, &path.join("record")).expect("gone already");
        assert!(!path.exists());
    }
}

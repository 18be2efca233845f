//! Reads the three files of one issue, and searches for keys of an authority beside them. Judges nothing.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{CA_KEY, Files, public_key};
use crate::disk::read_small;
use crate::pem;

/// Retries if a writer replaces the files during the read.
const ATTEMPTS: usize = 3;
/// A directory of certificates has few entries. Only so many are read of a large one.
const MAX_BESIDE: usize = 256;
/// Depth and number of entries of the search in the state directory for keys of an authority.
const DEPTH: usize = 4;
const MAX_BELOW: usize = 4096;

/// The content of the files when they were read.
#[derive(Debug, Clone)]
pub struct Contents {
    pub files: Files,
    pub certificate: Result<Vec<u8>, String>,
    pub key: Result<Vec<u8>, String>,
    pub ca: Result<Vec<u8>, String>,
    /// Permissions of the key file.
    pub key_mode: u32,
    pub keys_beside: Vec<KeyBeside>,
    pub(crate) stamps: [Option<Stamp>; 3],
}

/// A private key that apps could read.
#[derive(Debug, Clone)]
pub struct KeyBeside {
    pub path: PathBuf,
    /// The public key, if the file could be parsed.
    pub public_key: Option<Vec<u8>>,
}

/// Identifies a version of a file without reading its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn new(metadata: &Metadata) -> Stamp {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    pub(crate) fn of(files: &Files) -> [Option<Stamp>; 3] {
        [&files.certificate, &files.key, &files.ca].map(|path| path.metadata().ok().as_ref().map(Stamp::new))
    }
}

/// Reads all three files, and retries if they were replaced during the read: they must be of one issue.
pub fn read(files: &Files, state_dir: Option<&Path>) -> Contents {
    let keys_beside = keys_beside(files, state_dir);
    Contents { keys_beside, ..settle(files, read_once) }
}

fn settle(files: &Files, mut read: impl FnMut(&Files) -> Contents) -> Contents {
    let mut contents = read(files);
    for _ in 1..ATTEMPTS {
        if Stamp::of(files) == contents.stamps {
            break;
        }
        contents = read(files);
    }
    contents
}

fn read_once(files: &Files) -> Contents {
    let stamps = Stamp::of(files);
    let mut key_mode = 0;
    let mut text = |path: &Path| {
        let (bytes, metadata) = read_small(path).map_err(|error| error.to_string())?;
        key_mode = if path == files.key { metadata.mode() } else { key_mode };
        Ok(bytes)
    };
    let (certificate, key, ca) = (text(&files.certificate), text(&files.key), text(&files.ca));
    Contents { files: files.clone(), certificate, key, ca, key_mode, keys_beside: Vec::new(), stamps }
}

/// Private keys in the directories of the files, other than the server's own, and any `ca.key` below the state directory.
fn keys_beside(files: &Files, state_dir: Option<&Path>) -> Vec<KeyBeside> {
    let mut directories: Vec<&Path> =
        [&files.certificate, &files.key, &files.ca].iter().filter_map(|path| path.parent()).collect();
    directories.sort();
    directories.dedup();
    let mut found = Vec::new();
    for directory in directories {
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        for path in list(directory, MAX_BESIDE) {
            let may_be_key = path.extension().is_some_and(|end| end == "key" || end == "pem");
            if may_be_key && path.is_file() && !same_file(&path, &files.key) {
                found.extend(key_in(path));
            }
        }
    }
    let known: Vec<PathBuf> = found.iter().map(|key| key.path.clone()).collect();
    let below = state_dir.map(ca_keys_below).unwrap_or_default();
    found.extend(below.into_iter().filter(|path| !known.contains(path)).filter_map(key_in));
    found
}

/// The key in a file. If this process may not read it, apps may not either: they run as the same user.
fn key_in(path: PathBuf) -> Option<KeyBeside> {
    let text = match read_small(&path) {
        Ok((text, _)) => text,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return None,
        Err(_) => Vec::new(),
    };
    let public_key = pem::private_key(&text).ok().as_ref().and_then(public_key);
    let by_name = path.file_name().is_some_and(|name| name == CA_KEY);
    (public_key.is_some() || by_name).then_some(KeyBeside { path, public_key })
}

/// Nearest first, so that a directory full of objects does not use up the search.
fn ca_keys_below(top: &Path) -> Vec<PathBuf> {
    let (mut found, mut level, mut left) = (Vec::new(), vec![top.to_owned()], MAX_BELOW);
    for _ in 0..DEPTH {
        found.extend(level.iter().map(|directory| directory.join(CA_KEY)).filter(|path| path.exists()));
        let mut below = Vec::new();
        for directory in &level {
            let entries = list(directory, left);
            left -= entries.len();
            // A link to a directory could lead anywhere, and in circles.
            below.extend(entries.into_iter().filter(|path| path.symlink_metadata().is_ok_and(|entry| entry.is_dir())));
        }
        level = below;
    }
    found
}

fn list(directory: &Path, most: usize) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).take(most).collect();
    paths.sort();
    paths
}

fn same_file(one: &Path, other: &Path) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::directory;

    /// A writer that exchanges the pair after the certificate was read and before the key was.
    #[test]
    fn a_pair_exchanged_while_it_is_read_is_read_again() {
        let dir = directory();
        let path = |name: &str| dir.path().join(name);
        let files = Files { certificate: path("server.pem"), key: path("server.key"), ca: path("ca.crt") };
        let write = |issue: &str| {
            for file in [&files.certificate, &files.key, &files.ca] {
                fs::write(path("new"), issue).expect("written");
                fs::rename(path("new"), file).expect("in place");
            }
        };
        write("first");
        let mut exchanges = vec!["third", "second"];
        let contents = settle(&files, |files| {
            let early = read_once(files);
            exchanges.pop().into_iter().for_each(write);
            Contents { certificate: early.certificate, stamps: early.stamps, ..read_once(files) }
        });
        assert_eq!((contents.certificate.as_deref(), contents.key.as_deref()), (Ok(&b"third"[..]), Ok(&b"third"[..])));
    }
}

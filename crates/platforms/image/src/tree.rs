//! List of an image's files in an order that depends only on names. Reads the tree; users of the list (`ext4`, `secrets`) are
//! pure.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Extended attribute with the capabilities of a program.
pub const CAPABILITY: &str = "security.capability";
const CAPABILITY_BYTES: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the root of the tree, without a leading `/`; empty for the root itself.
    pub path: PathBuf,
    pub kind: Kind,
    /// Permission bits only.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified: i64,
    pub capability: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File {
        bytes: u64,
    },
    /// A hard link to an earlier file in the list.
    Again(PathBuf),
    Link(PathBuf),
    Character {
        major: u32,
        minor: u32,
    },
    Block {
        major: u32,
        minor: u32,
    },
    Pipe,
}

#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("cannot read {}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is a socket, which an image cannot contain", .0.display())]
    Socket(PathBuf),
}

/// Everything below `root`, parents before children, children in byte order of names.
pub fn list(root: &Path) -> Result<Vec<Entry>, TreeError> {
    let mut reading = Reading { root, entries: Vec::new(), seen: HashMap::new() };
    reading.enter(Path::new(""))?;
    Ok(reading.entries)
}

struct Reading<'a> {
    root: &'a Path,
    entries: Vec<Entry>,
    /// Files with several names, by device and inode.
    seen: HashMap<(u64, u64), PathBuf>,
}

impl Reading<'_> {
    fn enter(&mut self, path: &Path) -> Result<(), TreeError> {
        let place = self.root.join(path);
        let unreadable = |source| TreeError::Unreadable { path: place.clone(), source };
        let metadata = fs::symlink_metadata(&place).map_err(unreadable)?;
        let kind = self.kind(path, &place, &metadata)?;
        let is_directory = kind == Kind::Directory;
        let capability = matches!(kind, Kind::File { .. }).then(|| capability(&place)).flatten();
        let (mode, uid, gid) = (metadata.mode() & 0o7777, metadata.uid(), metadata.gid());
        let path_buf = path.to_owned();
        self.entries.push(Entry { path: path_buf, kind, mode, uid, gid, modified: metadata.mtime(), capability });
        if is_directory {
            let mut names = Vec::new();
            for entry in fs::read_dir(&place).map_err(unreadable)? {
                names.push(entry.map_err(unreadable)?.file_name());
            }
            names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
            for name in names {
                self.enter(&path.join(name))?;
            }
        }
        Ok(())
    }

    fn kind(&mut self, path: &Path, place: &Path, metadata: &Metadata) -> Result<Kind, TreeError> {
        let (kind, device) = (metadata.file_type(), metadata.rdev());
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Ok(if kind.is_dir() {
            Kind::Directory
        } else if kind.is_symlink() {
            let unreadable = |source| TreeError::Unreadable { path: place.to_owned(), source };
            Kind::Link(fs::read_link(place).map_err(unreadable)?)
        } else if kind.is_char_device() {
            Kind::Character { major, minor }
        } else if kind.is_block_device() {
            Kind::Block { major, minor }
        } else if kind.is_fifo() {
            Kind::Pipe
        } else if kind.is_socket() {
            return Err(TreeError::Socket(place.to_owned()));
        } else if metadata.nlink() > 1 {
            let number = (metadata.dev(), metadata.ino());
            match self.seen.get(&number) {
                Some(first) => Kind::Again(first.clone()),
                None => {
                    self.seen.insert(number, path.to_owned());
                    Kind::File { bytes: metadata.len() }
                }
            }
        } else {
            Kind::File { bytes: metadata.len() }
        })
    }
}

/// Some file systems do not support such attributes.
fn capability(place: &Path) -> Option<Vec<u8>> {
    let mut value = [0; CAPABILITY_BYTES];
    let length = rustix::fs::lgetxattr(place, CAPABILITY, &mut value[..]).ok()?;
    Some(value[..length].to_vec())
}

/// Name of an entry in its directory.
pub fn name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_order_depends_on_names_only() {
        let place = tempfile::tempdir().expect("a directory");
        let root = place.path();
        for name in ["b", "a", "B", "a.d"] {
            fs::create_dir(root.join(name)).expect("a directory");
        }
        fs::write(root.join("a/z"), "one").expect("a file");
        fs::hard_link(root.join("a/z"), root.join("b/also")).expect("a second name");
        symlink("../a/z", root.join("b/link")).expect("a link");
        let found: Vec<_> = list(root).expect("a list").into_iter().map(|entry| (entry.path, entry.kind)).collect();
        let path = PathBuf::from;
        let expected = [
            (path(""), Kind::Directory),
            (path("B"), Kind::Directory),
            (path("a"), Kind::Directory),
            (path("a/z"), Kind::File { bytes: 3 }),
            (path("a.d"), Kind::Directory),
            (path("b"), Kind::Directory),
            (path("b/also"), Kind::Again(path("a/z"))),
            (path("b/link"), Kind::Link(path("../a/z"))),
        ];
        assert_eq!(found, expected);
    }
}

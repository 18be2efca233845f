//! Unpacks the zip archive of a FAB.
//!
//! Every name is checked before anything is written, and bytes are counted while they are written: the sizes in the archive are
//! not trusted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Cursor, Read, Write};
use std::path::Path;

use trellis_digest::{Sha256, hex};
use trellis_wire::fab::{BadFab, MAX_ENTRIES};
use zip::ZipArchive;

use super::FabError;
use super::app_directory::RESERVED;

const MAX_DEPTH: usize = 32;
const MAX_PATH_BYTES: usize = 1024;
const MAX_NAME_BYTES: usize = 255;
const MAX_CONTENT_LIST_BYTES: usize = 4 << 20;

/// Added by `flwr build`; read, but not installed.
const INFO_DIRECTORY: &str = ".info";
const CONTENT_LIST: &str = ".info/CONTENT";

/// The bits of a Unix mode for the file type.
const KIND_MASK: u32 = 0o170_000;
const KIND_FILE: u32 = 0o100_000;
const KIND_DIRECTORY: u32 = 0o040_000;

type Zip<'a> = ZipArchive<Cursor<&'a [u8]>>;

fn bad(reason: String) -> FabError {
    FabError::Bad(BadFab(reason))
}

/// Writes the app's files into an empty directory, at most `max_bytes`, and compares them with the content list of the bundle.
pub fn unpack(content: &[u8], directory: &Path, max_bytes: u64) -> Result<(), FabError> {
    let mut zip = ZipArchive::new(Cursor::new(content)).map_err(|error| bad(format!("not a zip ({error})")))?;
    let names = names(&mut zip)?;
    let mut budget = Budget { left: max_bytes, limit: max_bytes };
    let (mut hashes, mut list) = (BTreeMap::new(), None);
    for (index, name) in names.iter().enumerate() {
        let installed = name.split('/').next() != Some(INFO_DIRECTORY);
        let target = directory.join(name);
        if name.ends_with('/') {
            if installed {
                fs::create_dir_all(&target).map_err(FabError::disk(&target))?;
            }
        } else if installed {
            hashes.insert(name.clone(), write(&mut zip, index, name, &target, &mut budget)?);
        } else if name == CONTENT_LIST {
            list = Some(content_list(&mut zip, index)?);
        }
    }
    compare(&list.ok_or_else(|| bad(format!("it has no {CONTENT_LIST}")))?, &hashes)
}

/// The names of all entries in order. They must be relative, distinct (ignoring case), and of regular files or directories.
fn names(zip: &mut Zip<'_>) -> Result<Vec<String>, FabError> {
    if zip.len() > MAX_ENTRIES {
        return Err(bad(format!("it has {} files; the limit is {MAX_ENTRIES}", zip.len())));
    }
    // Readers interpret entries with equal names or shared bytes, and contradicting headers, in different ways.
    zip.validate_header_consistency().map_err(|error| bad(format!("its zip archive is invalid ({error})")))?;
    let mut tree = Tree::new();
    let mut names = Vec::with_capacity(zip.len());
    for index in 0..zip.len() {
        let entry = zip.by_index_data(index).map_err(|error| bad(format!("its zip archive is invalid ({error})")))?;
        let name = str::from_utf8(entry.name_raw()).map_err(|_| bad("the name of a file is not UTF-8".into()))?;
        check_kind(name, entry.external_attributes() >> 16, entry.encrypted())?;
        tree.claim(name)?;
        names.push(name.to_owned());
    }
    Ok(names)
}

fn check_kind(name: &str, mode: u32, encrypted: bool) -> Result<(), FabError> {
    let expected = if name.ends_with('/') { KIND_DIRECTORY } else { KIND_FILE };
    if mode & KIND_MASK != 0 && mode & KIND_MASK != expected {
        return Err(bad(format!("{name:?} is neither a regular file nor a directory")));
    }
    if encrypted {
        return Err(bad(format!("{name:?} is encrypted")));
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    File,
    Directory,
}

/// The used names in lower case, with their original case.
struct Tree(BTreeMap<String, (String, Kind)>);

impl Tree {
    fn new() -> Tree {
        // Names that the node itself adds to an app.
        Tree(RESERVED.map(|name| (name.to_lowercase(), (name.to_owned(), Kind::File))).into())
    }

    /// Claims a name and those of its parent directories.
    fn claim(&mut self, name: &str) -> Result<(), FabError> {
        let (path, kind) = name.strip_suffix('/').map_or((name, Kind::File), |path| (path, Kind::Directory));
        check_path(path)?;
        for (end, _) in path.match_indices('/') {
            self.take(&path[..end], Kind::Directory)?;
        }
        self.take(path, kind)?;
        if self.0.len() > MAX_ENTRIES + RESERVED.len() {
            return Err(bad(format!("it has more than {MAX_ENTRIES} files and directories")));
        }
        Ok(())
    }

    fn take(&mut self, path: &str, kind: Kind) -> Result<(), FabError> {
        let before = self.0.insert(path.to_lowercase(), (path.to_owned(), kind));
        let shared = (path.to_owned(), Kind::Directory);
        match before {
            None => Ok(()),
            Some(before) if kind == Kind::Directory && before == shared => Ok(()),
            Some((before, _)) => Err(bad(format!("{path:?} would overwrite {before:?}"))),
        }
    }
}

fn check_path(path: &str) -> Result<(), FabError> {
    let shown: String = path.chars().take(100).collect();
    let error = if path.len() > MAX_PATH_BYTES || path.split('/').any(|part| part.len() > MAX_NAME_BYTES) {
        "is too long"
    } else if path.split('/').count() > MAX_DEPTH {
        "is nested too deeply"
    } else if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        "is not a path below the app's directory"
    } else if path.contains(|c: char| c.is_control() || matches!(c, '\\' | ':')) {
        "has characters that file names of apps must not have"
    } else {
        return Ok(());
    };
    Err(bad(format!("the name {shown:?} {error}")))
}

struct Budget {
    left: u64,
    limit: u64,
}

impl Budget {
    fn take(&mut self, bytes: usize) -> Result<(), FabError> {
        let too_large = || bad(format!("its unpacked size exceeds the limit of {} bytes", self.limit));
        self.left = self.left.checked_sub(bytes as u64).ok_or_else(too_large)?;
        Ok(())
    }
}

/// Writes one file; returns its SHA-256.
fn write(zip: &mut Zip<'_>, index: usize, name: &str, target: &Path, budget: &mut Budget) -> Result<String, FabError> {
    let parent = target.parent().expect("a file has a parent directory");
    fs::create_dir_all(parent).map_err(FabError::disk(parent))?;
    let mut entry = zip.by_index(index).map_err(|error| bad(format!("{name:?} cannot be read ({error})")))?;
    let mut file = File::create_new(target).map_err(FabError::disk(target))?;
    let mut hash = Sha256::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = entry.read(&mut buffer).map_err(|error| bad(format!("{name:?} cannot be read ({error})")))?;
        if count == 0 {
            return Ok(hex(&hash.finish()));
        }
        budget.take(count)?;
        hash.update(&buffer[..count]);
        file.write_all(&buffer[..count]).map_err(FabError::disk(target))?;
    }
}

fn content_list(zip: &mut Zip<'_>, index: usize) -> Result<String, FabError> {
    let entry = zip.by_index(index).map_err(|error| bad(format!("{CONTENT_LIST} cannot be read ({error})")))?;
    let mut text = String::new();
    entry
        .take(MAX_CONTENT_LIST_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .map_err(|error| bad(format!("{CONTENT_LIST} cannot be read ({error})")))?;
    if text.len() > MAX_CONTENT_LIST_BYTES {
        return Err(bad(format!("{CONTENT_LIST} is larger than {MAX_CONTENT_LIST_BYTES} bytes")));
    }
    Ok(text)
}

/// Compares with the list, whose lines are `path,sha256,bits`. As in Flower, unlisted files are allowed: bundles of 1.25 do not
/// list their `pyproject.toml`.
fn compare(list: &str, hashes: &BTreeMap<String, String>) -> Result<(), FabError> {
    for line in list.trim().split('\n') {
        let parts: Vec<&str> = line.split(',').collect();
        let [path, hash, _bits] = parts[..] else {
            return Err(bad(format!("{CONTENT_LIST} has a line that is not `path,sha256,bits`")));
        };
        if hashes.get(path).is_none_or(|found| found != hash) {
            return Err(bad(format!("{path:?} does not match {CONTENT_LIST}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

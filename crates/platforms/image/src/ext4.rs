//! Root file system, created without a mount: converts a list of files to `debugfs` commands. Pure.
//!
//! `mke2fs -d` is an alternative, but it uses the directory order and the times of the build machine. These commands give the
//! same bytes everywhere.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::gpt::Guid;
use crate::tree::{CAPABILITY, Entry, Kind, name};

/// UUID and hash seed of the root file system. Constants are sufficient, because a machine has one image; a machine with two
/// must address them by disk.
pub const UUID: Guid = Guid::new(0x7472_656c_6c69_4c73, 0x8001_0000_0000_0001);
pub const HASH_SEED: Guid = Guid::new(0x7472_656c_6c69_4c73, 0x8001_0000_0000_0002);
pub const LABEL: &str = "trellis";
/// Features that this GRUB, or older kernels, do not support.
pub const FEATURES: &str = "^metadata_csum_seed,^orphan_file";
/// Owners have 16 bits in the commands.
const HIGHEST_OWNER: u32 = 0xffff;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    #[error("{path:?}: names with a line break or without UTF-8 are not supported in an image", path = .0.display())]
    Name(PathBuf),
    #[error("{path:?} is owned by {owner}, and owners above 65535 are not supported in an image", path = .path.display())]
    Owner { path: PathBuf, owner: u32 },
}

/// Commands for `debugfs -w -f`, and capability files that it reads: name in `scratch`, contents.
#[derive(Debug, PartialEq, Eq)]
pub struct Script {
    pub orders: String,
    pub capabilities: Vec<(String, Vec<u8>)>,
}

/// `entries` is the list of `tree::list` for `source`. No time in the file system exceeds `epoch`.
pub fn script(source: &Path, scratch: &Path, entries: &[Entry], epoch: i64) -> Result<Script, ScriptError> {
    let mut script = Script { orders: format!("set_current_time @{epoch}\n"), capabilities: Vec::new() };
    let mut at: Option<&Path> = None;
    for entry in entries {
        let directory = entry.path.parent().unwrap_or(Path::new(""));
        if at != Some(directory) {
            script.order("cd", [quoted(Path::new("/").join(directory).as_os_str())?]);
            at = Some(directory);
        }
        create(&mut script, source, entry)?;
        describe(&mut script, scratch, entry, epoch)?;
    }
    count_names(&mut script, entries)?;
    Ok(script)
}

/// `ln` adds a name, but does not increase the link count.
fn count_names(script: &mut Script, entries: &[Entry]) -> Result<(), ScriptError> {
    let mut counts: BTreeMap<&Path, u32> = BTreeMap::new();
    for entry in entries {
        if let Kind::Again(first) = &entry.kind {
            *counts.entry(first).or_insert(1) += 1;
        }
    }
    for (path, count) in counts {
        let path = quoted(Path::new("/").join(path).as_os_str())?;
        script.order("sif", [path, "links_count".into(), count.to_string()]);
    }
    Ok(())
}

impl Script {
    fn order<const N: usize>(&mut self, verb: &str, words: [String; N]) {
        self.orders.push_str(verb);
        for word in words {
            let _ = write!(self.orders, " {word}");
        }
        self.orders.push('\n');
    }
}

fn create(script: &mut Script, source: &Path, entry: &Entry) -> Result<(), ScriptError> {
    let own = quoted(name(&entry.path))?;
    match &entry.kind {
        Kind::Directory if entry.path.as_os_str().is_empty() || entry.path == Path::new("lost+found") => {}
        Kind::Directory => script.order("mkdir", [own]),
        Kind::File { .. } => script.order("write", [quoted(source.join(&entry.path).as_os_str())?, own]),
        Kind::Again(first) => script.order("ln", [quoted(Path::new("/").join(first).as_os_str())?, own]),
        Kind::Link(target) => script.order("symlink", [own, quoted(target.as_os_str())?]),
        Kind::Character { major, minor } => {
            script.order("mknod", [own, "c".into(), major.to_string(), minor.to_string()]);
        }
        Kind::Block { major, minor } => {
            script.order("mknod", [own, "b".into(), major.to_string(), minor.to_string()]);
        }
        Kind::Pipe => script.order("mknod", [own, "p".into()]),
    }
    Ok(())
}

/// Sets owner, mode and times. The times of creation and change come from `set_current_time`.
fn describe(script: &mut Script, scratch: &Path, entry: &Entry, epoch: i64) -> Result<(), ScriptError> {
    let own = match entry.path.as_os_str().is_empty() {
        true => "/".to_owned(),
        false => quoted(name(&entry.path))?,
    };
    let kind_bits = match entry.kind {
        Kind::Again(_) => return Ok(()),
        Kind::Directory => 0o040_000,
        Kind::File { .. } => 0o100_000,
        Kind::Link(_) => 0o120_000,
        Kind::Character { .. } => 0o020_000,
        Kind::Block { .. } => 0o060_000,
        Kind::Pipe => 0o010_000,
    };
    for owner in [entry.uid, entry.gid] {
        if owner > HIGHEST_OWNER {
            return Err(ScriptError::Owner { path: entry.path.clone(), owner });
        }
    }
    let mut set = |field: &str, value: String| script.order("sif", [own.clone(), field.to_owned(), value]);
    set("mode", format!("0{:o}", kind_bits | entry.mode));
    if entry.uid != 0 {
        set("uid", entry.uid.to_string());
    }
    if entry.gid != 0 {
        set("gid", entry.gid.to_string());
    }
    set("mtime", format!("@{}", entry.modified.clamp(0, epoch)));
    set("atime", format!("@{epoch}"));
    if let Some(capability) = &entry.capability {
        let file = format!("capability-{}", script.capabilities.len());
        let path = quoted(scratch.join(&file).as_os_str())?;
        script.order("ea_set", ["-f".into(), path, own, CAPABILITY.into()]);
        script.capabilities.push((file, capability.clone()));
    }
    Ok(())
}

/// Quotes for the parser of debugfs: double quotes, with a double quote inside doubled.
fn quoted(word: &OsStr) -> Result<String, ScriptError> {
    match word.to_str() {
        Some(text) if !text.contains(['\n', '\r', '\0']) => Ok(format!("\"{}\"", text.replace('"', "\"\""))),
        _ => Err(ScriptError::Name(PathBuf::from(word))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: Kind) -> Entry {
        Entry { path: path.into(), kind, mode: 0o755, uid: 0, gid: 0, modified: 2_000, capability: None }
    }

    #[test]
    fn a_tree_becomes_debugfs_commands() {
        let entries = [
            Entry { modified: 500, ..entry("", Kind::Directory) },
            entry("dev", Kind::Directory),
            Entry { mode: 0o666, ..entry("dev/null", Kind::Character { major: 1, minor: 3 }) },
            entry("srv", Kind::Directory),
            Entry { uid: 7, gid: 8, capability: Some(vec![1]), ..entry("srv/a \"b\"", Kind::File { bytes: 3 }) },
            entry("srv/c", Kind::Again("srv/a \"b\"".into())),
            Entry { mode: 0o777, ..entry("srv/d", Kind::Link("c".into())) },
        ];
        let script = script(Path::new("/t"), Path::new("/s"), &entries, 1_000).expect("orders");
        let expected = r#"set_current_time @1000
cd "/"
sif / mode 040755
sif / mtime @500
sif / atime @1000
mkdir "dev"
sif "dev" mode 040755
sif "dev" mtime @1000
sif "dev" atime @1000
cd "/dev"
mknod "null" c 1 3
sif "null" mode 020666
sif "null" mtime @1000
sif "null" atime @1000
cd "/"
mkdir "srv"
sif "srv" mode 040755
sif "srv" mtime @1000
sif "srv" atime @1000
cd "/srv"
write "/t/srv/a ""b""" "a ""b"""
sif "a ""b""" mode 0100755
sif "a ""b""" uid 7
sif "a ""b""" gid 8
sif "a ""b""" mtime @1000
sif "a ""b""" atime @1000
ea_set -f "/s/capability-0" "a ""b""" security.capability
ln "/srv/a ""b""" "c"
symlink "d" "c"
sif "d" mode 0120777
sif "d" mtime @1000
sif "d" atime @1000
sif "/srv/a ""b""" links_count 2
"#;
        assert_eq!(script.orders, expected);
        assert_eq!(script.capabilities, [("capability-0".to_owned(), vec![1])]);
    }

    #[test]
    fn unsupported_names_and_owners_are_rejected() {
        let orders = |entry| script(Path::new("/t"), Path::new("/s"), &[entry], 1).unwrap_err();
        let line_break = entry("a\nquit", Kind::Pipe);
        assert_eq!(orders(line_break), ScriptError::Name("a\nquit".into()));
        let stranger = Entry { uid: 70_000, ..entry("a", Kind::Pipe) };
        assert_eq!(orders(stranger), ScriptError::Owner { path: "a".into(), owner: 70_000 });
    }
}

//! Base system of an image: a cached Debian tree from debootstrap, or a given tree or image.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use trellis_digest::sha256_hex;

use super::{BuildError, LONG, SHORT, Site, file, furnish};
use crate::disk::copy_sparse;
use crate::gpt;
use crate::tools::{self, Tool};

#[derive(Debug, Clone)]
pub enum Base {
    /// Mirror of packages; `None` uses the default of debootstrap.
    Mirror(Option<String>),
    /// A tree in a tar archive, with all packages.
    Archive(PathBuf),
    /// The largest Linux file system of a disk, with all packages.
    Disk(PathBuf),
}

/// Sufficient for any partition table.
const HEAD_BYTES: u64 = 1 << 20;

impl Base {
    pub(super) fn tools(&self) -> Vec<Tool> {
        match self {
            Base::Mirror(_) => vec![tools::BOOTSTRAP],
            Base::Archive(_) | Base::Disk(_) => Vec::new(),
        }
    }

    pub(super) fn file(&self) -> Option<&PathBuf> {
        match self {
            Base::Mirror(_) => None,
            Base::Archive(path) | Base::Disk(path) => Some(path),
        }
    }
}

pub(super) fn unpack(site: &Site) -> Result<(), BuildError> {
    fs::create_dir_all(&site.tree).map_err(file(&site.tree))?;
    match &site.order.base {
        Base::Mirror(mirror) => return unpack_archive(site, &bootstrapped(site, mirror.as_deref())?),
        Base::Archive(path) => unpack_archive(site, path)?,
        Base::Disk(path) => unpack_disk(site, path)?,
    }
    let there: BTreeSet<String> = furnish::packages(site)?.into_iter().map(|(name, _)| name).collect();
    let missing: Vec<&str> = site.order.recipe.packages().into_iter().filter(|name| !there.contains(*name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(BuildError::Refused(vec![format!("the base lacks packages: install {}", missing.join(" "))]))
}

/// Reads the file system without a mount.
fn unpack_disk(site: &Site, disk: &Path) -> Result<(), BuildError> {
    let (raw, root) = (site.scratch.join("base.raw"), site.scratch.join("base.ext4"));
    let words = ["convert", "-O", "raw"].map(std::ffi::OsString::from).into_iter();
    site.run("qemu-img", LONG).args(words.chain([disk.into(), raw.clone().into_os_string()])).finish()?;
    let mut opened = File::open(&raw).map_err(file(&raw))?;
    let mut head = Vec::new();
    (&mut opened).take(HEAD_BYTES).read_to_end(&mut head).map_err(file(&raw))?;
    let Some((first, bytes)) = gpt::largest_linux(&head) else {
        let what = format!("{} has no Linux partition in a GUID partition table", disk.display());
        return Err(BuildError::Refused(vec![what]));
    };
    opened.seek(SeekFrom::Start(first)).map_err(file(&raw))?;
    let mut partition = File::create(&root).map_err(file(&root))?;
    partition.set_len(bytes).map_err(file(&root))?;
    copy_sparse(&mut opened.take(bytes), &mut partition, 0).map_err(file(&root))?;
    let order = format!("rdump / \"{}\"", site.tree.display());
    site.run("debugfs", LONG).args(["-R".into(), order.into(), root.clone().into_os_string()]).finish()?;
    for done in [&raw, &root] {
        fs::remove_file(done).map_err(file(done))?;
    }
    Ok(())
}

fn unpack_archive(site: &Site, archive: &Path) -> Result<(), BuildError> {
    let words =
        ["--extract", "--preserve-permissions", "--numeric-owner", "--same-owner", "--xattrs", "--xattrs-include=*"];
    let words = words.map(std::ffi::OsString::from).into_iter();
    let places = [format!("--file={}", archive.display()), format!("--directory={}", site.tree.display())];
    site.run("tar", SHORT).args(words.chain(places.map(Into::into))).finish()?;
    Ok(())
}

/// Cached archive of a tree with the recipe's packages, by packages and mirror.
fn bootstrapped(site: &Site, mirror: Option<&str>) -> Result<PathBuf, BuildError> {
    let (recipe, epoch) = (&site.order.recipe, site.order.epoch);
    let packages = recipe.packages().join(",");
    let key = sha256_hex(format!("1 {} {} {packages} {epoch}", recipe.suite, mirror.unwrap_or_default()).as_bytes());
    let archive = site.order.cache.join(format!("base-{}.tar", &key[..16]));
    if archive.is_file() {
        return Ok(archive);
    }
    let tree = site.scratch.join("base");
    let words = ["--variant=minbase".to_owned(), format!("--include={packages}"), recipe.suite.clone()];
    let words = words.into_iter().chain([tree.display().to_string()]).chain(mirror.map(str::to_owned));
    site.run("debootstrap", LONG).args(words).env("DEBIAN_FRONTEND", "noninteractive").finish()?;
    for leftover in ["var/cache/apt/archives", "var/lib/apt/lists"] {
        empty(&tree.join(leftover))?;
    }
    let draft = site.order.cache.join(format!(".base-{}-{}", &key[..16], std::process::id()));
    let words = ["--create", "--sort=name", "--numeric-owner", "--xattrs", "--one-file-system"].map(String::from);
    let places = [format!("--file={}", draft.display()), format!("--directory={}", tree.display()), ".".to_owned()];
    site.run("tar", SHORT).args(words.into_iter().chain(places)).finish()?;
    fs::rename(&draft, &archive).map_err(file(&archive))?;
    fs::remove_dir_all(&tree).map_err(file(&tree))?;
    Ok(archive)
}

/// Removes the contents of a directory, if it exists.
pub(super) fn empty(directory: &Path) -> Result<(), BuildError> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    for entry in entries {
        let path = entry.map_err(file(directory))?.path();
        let is_directory = path.symlink_metadata().map_err(file(&path))?.is_dir();
        let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(file(&path))?;
    }
    Ok(())
}

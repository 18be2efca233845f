//! Installs the appliance in the tree: program, files and units; removes machine-specific files.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::{BuildError, LONG, SHORT, Site, file};
use crate::clean::{Fate, fate};
use crate::recipe::{self, Enabled, Planted};
use crate::secrets::{self, MAX_CHECKED_BYTES};
use crate::tree::{self, Kind};

/// Names and versions of all Debian packages in the tree.
pub(super) fn packages(site: &Site) -> Result<Vec<(String, String)>, BuildError> {
    let path = site.tree.join("var/lib/dpkg/status");
    let status = fs::read_to_string(&path).map_err(file(&path))?;
    let field = |paragraph: &str, name: &str| {
        paragraph.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    let one = |paragraph: &str| Some((field(paragraph, "Package:")?, field(paragraph, "Version:")?));
    Ok(status.split("\n\n").filter_map(one).collect())
}

pub(super) fn furnish(site: &Site) -> Result<(), BuildError> {
    let recipe = &site.order.recipe;
    if let Some(package) = &site.order.context_package {
        install_package(site, package)?;
    }
    let program = site.tree.join(recipe::PROGRAM);
    fs::copy(&site.order.program, &program).map_err(file(&program))?;
    fs::set_permissions(&program, Permissions::from_mode(0o755)).map_err(file(&program))?;
    for planted in recipe.files() {
        plant(&site.tree, &planted)?;
    }
    install_appliance(site)?;
    clean(site)?;
    for Enabled { unit, by } in recipe.enabled() {
        enable(&site.tree, unit, by)?;
    }
    link(&site.tree.join("etc/resolv.conf"), "../run/systemd/resolve/stub-resolv.conf")
}

/// Runs the program's own installer, and adds the hook for OpenNebula's framework.
fn install_appliance(site: &Site) -> Result<(), BuildError> {
    let (program, role) = (&site.order.program, site.order.recipe.role.name());
    let tree = site.tree.as_os_str();
    let words = ["appliance", "install", "--role", role, "--root"].map(std::ffi::OsString::from);
    site.run(program, SHORT).args(words.into_iter().chain([tree.to_owned()])).finish()?;
    write(&site.tree.join(recipe::HOOK), &site.order.hook, 0o644)
}

fn install_package(site: &Site, package: &Path) -> Result<(), BuildError> {
    let inside = "tmp/context.deb";
    let place = site.tree.join(inside);
    fs::copy(package, &place).map_err(file(&place))?;
    let tree = site.tree.display().to_string();
    let words = [tree, "dpkg".to_owned(), "--install".to_owned(), format!("/{inside}")];
    site.run("chroot", LONG).args(words).env("DEBIAN_FRONTEND", "noninteractive").finish()?;
    Ok(())
}

fn clean(site: &Site) -> Result<(), BuildError> {
    for entry in tree::list(&site.tree)? {
        let path = site.tree.join(&entry.path);
        let done = match fate(&entry) {
            Fate::Stays => Ok(()),
            Fate::Emptied => fs::write(&path, ""),
            // The parent may be removed already.
            Fate::Goes if path.symlink_metadata().is_err() => Ok(()),
            Fate::Goes if entry.kind == Kind::Directory => fs::remove_dir_all(&path),
            Fate::Goes => fs::remove_file(&path),
        };
        done.map_err(file(&path))?;
    }
    Ok(())
}

fn plant(tree: &Path, planted: &Planted) -> Result<(), BuildError> {
    write(&tree.join(planted.path), &planted.content, planted.mode)
}

fn write(path: &Path, content: &str, mode: u32) -> Result<(), BuildError> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(file(parent))?;
    }
    fs::write(path, content).map_err(file(path))?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(file(path))
}

/// Like `systemctl enable`; units of packages and our units are in different directories.
fn enable(tree: &Path, unit: &str, by: &str) -> Result<(), BuildError> {
    let places = ["etc/systemd/system", "usr/lib/systemd/system"].map(|place| format!("{place}/{unit}"));
    let Some(place) = places.iter().find(|place| tree.join(place).exists()) else {
        return Err(BuildError::Refused(vec![format!("the tree has no {unit}: the base lacks its package")]));
    };
    let wants = tree.join(format!("etc/systemd/system/{by}.wants"));
    fs::create_dir_all(&wants).map_err(file(&wants))?;
    link(&wants.join(unit), &format!("/{place}"))
}

fn link(path: &Path, target: &str) -> Result<(), BuildError> {
    if path.symlink_metadata().is_ok() {
        fs::remove_file(path).map_err(file(path))?;
    }
    symlink(target, path).map_err(file(path))
}

pub(super) fn look_for_secrets(site: &Site) -> Result<(), BuildError> {
    let mut findings = Vec::new();
    for entry in tree::list(&site.tree)? {
        let Kind::File { bytes } = entry.kind else { continue };
        findings.extend(secrets::by_name(&entry.path, bytes));
        if bytes <= MAX_CHECKED_BYTES {
            let path = site.tree.join(&entry.path);
            let mut content = Vec::new();
            let mut opened = fs::File::open(&path).map_err(file(&path))?;
            opened.read_to_end(&mut content).map_err(file(&path))?;
            findings.extend(secrets::by_content(&entry.path, &content));
        }
    }
    if findings.is_empty() { Ok(()) } else { Err(BuildError::Secrets(findings)) }
}

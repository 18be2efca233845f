//! Python environment of a framework. Downloads packages with pip's configuration of the build machine, and installs them
//! without network.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use trellis_digest::sha256_hex;

use super::{BuildError, LONG, Site, base, file};
use crate::recipe::VENV;

/// Python of Debian 12.
const PYTHON: &str = "3.11";
/// Compatible wheel platforms, newest first.
const PLATFORMS: [&str; 5] = [
    "manylinux_2_36_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
];
const WHEELS: &str = "tmp/wheels";

pub(super) fn install(site: &Site) -> Result<(), BuildError> {
    let wheels = fetched(site)?;
    let inside = site.tree.join(WHEELS);
    fs::create_dir_all(&inside).map_err(file(&inside))?;
    for entry in fs::read_dir(&wheels).map_err(file(&wheels))? {
        let entry = entry.map_err(file(&wheels))?;
        let place = inside.join(entry.file_name());
        fs::copy(entry.path(), &place).map_err(file(&place))?;
    }
    let venv = format!("/{VENV}");
    chroot(site, &["python3", "-m", "venv", &venv])?;
    let pip = format!("{venv}/bin/pip");
    let requirements = site.order.recipe.requirements();
    let mut words: Vec<&str> = vec![&pip, "install", "--no-index", "--no-compile", "--no-cache-dir"];
    words.extend(["--root-user-action=ignore", "--disable-pip-version-check", "--find-links", "/tmp/wheels"]);
    words.extend(requirements.iter().map(String::as_str));
    chroot(site, &words)?;
    // Compiled files are not validated by time, because times in the image differ.
    let python = format!("{venv}/bin/python");
    let compile = ["-m", "compileall", "-q", "-j", "1", "--invalidation-mode", "unchecked-hash"];
    let library = format!("{venv}/lib");
    let words: Vec<&str> = [python.as_str()].into_iter().chain(compile).chain([library.as_str()]).collect();
    // Files for other versions of Python cannot be compiled.
    if let Err(error) = chroot(site, &words) {
        tracing::debug!(%error, "not every module could be compiled");
    }
    base::empty(&inside)
}

/// Cached directory of wheels, by requirements.
fn fetched(site: &Site) -> Result<PathBuf, BuildError> {
    let requirements = site.order.recipe.requirements();
    let key = sha256_hex(format!("1 {PYTHON} {}", requirements.join(" ")).as_bytes());
    let place = site.order.cache.join(format!("wheels-{}", &key[..16]));
    if place.is_dir() {
        return Ok(place);
    }
    let draft = tempfile::Builder::new().prefix(".wheels-").tempdir_in(&site.order.cache).map_err(file(&place))?;
    let mut words: Vec<OsString> =
        ["download", "--only-binary=:all:", "--python-version", PYTHON].map(Into::into).to_vec();
    words.extend(PLATFORMS.iter().flat_map(|platform| ["--platform".into(), OsString::from(platform)]));
    words.extend(["--dest".into(), draft.path().as_os_str().to_owned()]);
    words.extend(requirements.iter().map(OsString::from));
    site.run("pip3", LONG).args(words).finish()?;
    fs::rename(draft.keep(), &place).map_err(file(&place))?;
    Ok(place)
}

fn chroot(site: &Site, words: &[&str]) -> Result<(), BuildError> {
    let tree = site.tree.as_os_str().to_owned();
    let run = site.run("chroot", LONG).args([tree].into_iter().chain(words.iter().map(OsString::from)));
    run.env("PYTHONHASHSEED", "0").env("HOME", "/tmp").env("PIP_NO_INPUT", "1").finish()?;
    Ok(())
}

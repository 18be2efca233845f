//! The apps that have an entry in their `pyproject.toml`, by name of the connection: a file in the home of the official
//! command. With it the entries can be removed from any directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{Change, credentials::failed, file};

/// Beside the official command's configuration file.
const FILE: &str = "trellis-apps.json";

type Apps = BTreeMap<String, BTreeSet<PathBuf>>;

/// The directories of the apps that have an entry of this name.
pub fn of(config: &Path, name: &str) -> BTreeSet<PathBuf> {
    read(config).remove(name).unwrap_or_default()
}

/// Records an app. Returns a change only on failure.
pub fn add(config: &Path, name: &str, app: &Path) -> Option<Change> {
    change(config, |apps| {
        apps.entry(name.to_owned()).or_default().insert(app.to_owned());
    })
}

/// Forgets all apps of a connection. Returns a change only on failure.
pub fn forget(config: &Path, name: &str) -> Option<Change> {
    change(config, |apps| drop(apps.remove(name)))
}

fn change(config: &Path, edit: impl FnOnce(&mut Apps)) -> Option<Change> {
    let (path, mut apps) = (config.with_file_name(FILE), read(config));
    let before = apps.clone();
    edit(&mut apps);
    let outcome = match (apps == before, apps.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => file::remove(&path),
        (false, false) => file::write(&path, &serde_json::to_string_pretty(&apps).expect("it is plain data")),
    };
    failed(&path, outcome)
}

/// An unreadable file counts as empty: the entries then stay until they are removed from within the app's directory.
fn read(config: &Path) -> Apps {
    let text = file::read(&config.with_file_name(FILE)).ok().flatten();
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

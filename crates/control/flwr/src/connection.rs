//! Lets the official `flwr` command find a federation by name: an entry in its configuration file (1.26 and later), and in
//! the app's `pyproject.toml` (1.25). Both files belong to the user: other content is never changed. `apps` records which
//! apps have an entry, so that [`remove`] finds all of them.

mod app;
mod apps;
mod block;
mod credentials;
mod file;

use std::path::{Path, PathBuf};

use serde::Serialize;
use toml::{Table, Value};
use trellis_api::Connection;
use trellis_wire::token::Token;

pub use app::{PYPROJECT, app_here, is_app, reads_own_file};
use block::{EditError, Entry, Put, Removal};

const ADDRESS: &str = "address";
const ROOT_CERTIFICATES: &str = "root-certificates";
const INSECURE: &str = "insecure";
/// Only 1.25 needs this setting; later releases check whether they have a token.
const ENABLE_ACCOUNT_AUTH: &str = "enable-account-auth";
/// In the home of the official command.
const CONFIG_FILE: &str = "config.toml";
const IN_HOME: [&str; 1] = ["superlink"];
/// The key that names the default connection.
const DEFAULT: &str = "default";
/// The first line of a file that we create.
const NEW_FILE: &str = "# Trellis made this file. Flower's documentation calls it the Flower configuration.";

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    #[error("the federation has no address that `flwr` could call")]
    NoAddress,
    #[error("`flwr` reads {DEFAULT:?} as the name of the default connection: use another name")]
    ReservedName,
    #[error("the certificate of the federation's authority is not in a file on this machine, and `flwr` needs one")]
    NoCertificates,
    #[error("neither FLWR_HOME nor HOME is set, so `flwr` has no configuration file")]
    NoHome,
}

/// The result for one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    pub path: PathBuf,
    pub done: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Added,
    Changed,
    Unchanged,
    /// Replaced Flower's own entry of that name, which is restored when ours is removed.
    #[serde(rename = "instead-of-usual")]
    ReplacedDefault,
    Removed,
    /// The file has no entry of ours.
    NotThere,
    /// The file was not changed; `snippet` is the entry to add by hand.
    LeftAlone {
        why: String,
        snippet: String,
    },
}

/// The results for all files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Written {
    name: String,
    pub changes: Vec<Change>,
}

impl Written {
    /// Whether every file has the entry.
    pub fn is_ready(&self) -> bool {
        !self.changes.iter().any(|change| matches!(change.done, Outcome::LeftAlone { .. }))
    }

    pub fn lines(&self) -> Vec<String> {
        self.changes.iter().flat_map(|change| change.lines(&self.name)).collect()
    }
}

impl Change {
    fn lines(&self, name: &str) -> Vec<String> {
        let path = self.path.display();
        let ready = format!("`flwr run . {name}` uses this federation");
        match &self.done {
            Outcome::Added => vec![format!("{ready}: {path} has it as {name:?} now")],
            Outcome::Changed => vec![format!("{ready}: {name:?} in {path} was updated")],
            Outcome::Unchanged => vec![format!("{ready}: {path} has it as {name:?}")],
            Outcome::ReplacedDefault => vec![
                format!("{ready}: {path} has it as {name:?} now"),
                format!("  Flower's own entry {name:?} is restored when the federation is deleted"),
            ],
            Outcome::Removed => {
                vec![format!("`flwr` no longer knows the federation: {name:?} was removed from {path}")]
            }
            Outcome::NotThere => Vec::new(),
            Outcome::LeftAlone { why, snippet } => not_changed(&format!("{path} was not changed: {why}"), snippet),
        }
    }
}

fn not_changed(head: &str, snippet: &str) -> Vec<String> {
    let mut lines: Vec<String> = head.lines().map(str::to_owned).collect();
    if !snippet.is_empty() {
        lines.push(
            "  to use this federation with `flwr`, add these lines, under a name that is not used yet:".to_owned(),
        );
        lines.extend(snippet.lines().map(|line| format!("    {line}")));
    }
    lines
}

/// Lets `flwr run . NAME` find the federation. `home_of_flwr` defaults to the user's own; without `app_dir` no app is changed
/// ([`app_here`] finds the app). `ca_path` is a file with the trusted CA certificates. `token` is the token for the
/// SuperLink; it is written where `flwr login` would write it.
pub fn write(
    home_of_flwr: Option<&Path>,
    app_dir: Option<&Path>,
    name: &str,
    connection: &Connection,
    ca_path: Option<&Path>,
    token: Option<&Token>,
) -> Result<Written, Error> {
    if name == DEFAULT {
        return Err(Error::ReservedName);
    }
    let mut values = values(connection, ca_path)?;
    let config = config_file(home_of_flwr)?;
    let (before, now) = (address_in(&config, name), values.get(ADDRESS).and_then(Value::as_str).map(str::to_owned));
    let mut changes = vec![put(&config, &Entry { parent: &IN_HOME, name, values: values.clone() })];
    let is_written = |change: &Change| !matches!(change.done, Outcome::LeftAlone { .. });
    if is_written(&changes[0]) {
        let gone = before.filter(|before| now.as_ref() != Some(before));
        let kept = now.as_deref().zip(token);
        changes.extend(credentials::exchange(&beside(&config), gone.as_deref(), kept));
    }
    if let Some(app) = app_dir {
        if token.is_some() {
            values.insert(ENABLE_ACCOUNT_AUTH.to_owned(), Value::Boolean(true));
        }
        let path = app.join(app::PYPROJECT);
        let change = put(&path, &app::entry(&path, name, values));
        if is_written(&change) {
            changes.extend(apps::add(&config, name, &absolute(app)));
            changes.extend(token.and_then(|token| credentials::save_in_app(app, name, token)));
        }
        changes.push(change);
    }
    Ok(Written { name: name.to_owned(), changes })
}

/// Removes the entries that [`write()`] made under this name: in the home of `flwr`, in `app_dir`, and in every app that
/// `write` was given. If Flower's command has rewritten its file, `ca_path` identifies our entry.
pub fn remove(
    home_of_flwr: Option<&Path>,
    app_dir: Option<&Path>,
    name: &str,
    ca_path: Option<&Path>,
) -> Result<Written, Error> {
    let config = config_file(home_of_flwr)?;
    let ca_path = ca_path.map_or_else(|| own_certificates(&config, name), absolute);
    let values = Table::from_iter([(ROOT_CERTIFICATES.to_owned(), text(ca_path))]);
    let address = address_in(&config, name);
    let mut changes = vec![remove_from(&config, &Entry { parent: &IN_HOME, name, values: values.clone() })];
    if changes[0].done == Outcome::Removed {
        changes.extend(credentials::exchange(&beside(&config), address.as_deref(), None));
    }
    let mut apps = apps::of(&config, name);
    apps.extend(app_dir.map(absolute));
    for app in &apps {
        let path = app.join(app::PYPROJECT);
        let change = remove_from(&path, &app::entry(&path, name, values.clone()));
        if change.done == Outcome::Removed {
            changes.extend(credentials::remove_from_app(app, name));
        }
        changes.push(change);
    }
    changes.extend(apps::forget(&config, name));
    let certificates = own_certificates(&config, name);
    if certificates.exists() {
        changes.extend(credentials::failed(&certificates, file::remove(&certificates)));
    }
    Ok(Written { name: name.to_owned(), changes })
}

/// The file in which the official command stores its login tokens.
fn beside(config: &Path) -> PathBuf {
    config.with_file_name(credentials::FILE)
}

/// The current address of a connection in the official command's configuration.
fn address_in(config: &Path, name: &str) -> Option<String> {
    let known: Table = file::read(config).ok()??.parse().ok()?;
    known.get(IN_HOME[0])?.get(name)?.get(ADDRESS)?.as_str().map(str::to_owned)
}

/// The configuration file of the official command.
pub fn config_file(home_of_flwr: Option<&Path>) -> Result<PathBuf, Error> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = home_of_flwr.map(Path::to_owned).or_else(|| set("FLWR_HOME"));
    let home = home.or_else(|| set("HOME").map(|home| home.join(".flwr")));
    home.map(|home| home.join(CONFIG_FILE)).ok_or(Error::NoHome)
}

/// Stores CA certificates from another machine beside the configuration of the official command.
pub fn save_certificates(name: &str, pem: &str) -> Result<PathBuf, String> {
    let path = own_certificates(&config_file(None).map_err(|error| error.to_string())?, name);
    file::write(&path, pem).map(|()| path.clone()).map_err(|why| format!("{}: {why}", path.display()))
}

fn own_certificates(config: &Path, name: &str) -> PathBuf {
    config.with_file_name(format!("trellis-{name}.crt"))
}

/// The names of the connections in a configuration file that Trellis wrote, or why it cannot be parsed.
pub fn ours(text: &str) -> Result<Vec<String>, String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| error.to_string().trim_end().to_owned())?;
    let known = table.get(IN_HOME[0]).and_then(Value::as_table).into_iter().flat_map(Table::keys);
    Ok(known.filter(|name| block::is_marked(text, &IN_HOME, name)).cloned().collect())
}

/// One address for every release: our HTTP port answers gRPC, too.
fn values(connection: &Connection, ca_path: Option<&Path>) -> Result<Table, Error> {
    let address = connection.http.as_ref().or(connection.control.as_ref()).ok_or(Error::NoAddress)?;
    let mut values = Table::from_iter([(ADDRESS.to_owned(), Value::String(address.clone()))]);
    if connection.insecure {
        values.insert(INSECURE.to_owned(), Value::Boolean(true));
        return Ok(values);
    }
    let on_server = connection.root_certificates_path.as_deref().map(Path::new).filter(|path| path.is_file());
    match (ca_path.or(on_server), &connection.root_certificates) {
        (Some(path), _) => {
            values.insert(ROOT_CERTIFICATES.to_owned(), text(absolute(path)));
        }
        (None, Some(_)) => return Err(Error::NoCertificates),
        // The CA certificates of the system.
        (None, None) => {}
    }
    Ok(values)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn text(path: PathBuf) -> Value {
    Value::String(path.to_string_lossy().into_owned())
}

fn put(path: &Path, entry: &Entry<'_>) -> Change {
    let done = match file::read(path) {
        Err(why) => Err(why),
        Ok(None) => store(path, &new_file(entry), Outcome::Added),
        Ok(Some(text)) => match block::put(&text, entry) {
            Ok(Put::Unchanged) => Ok(Outcome::Unchanged),
            Ok(Put::Added(text)) => store(path, &text, Outcome::Added),
            Ok(Put::Changed(text)) => store(path, &text, Outcome::Changed),
            Ok(Put::ReplacedDefault(text)) => store(path, &text, Outcome::ReplacedDefault),
            Err(error) => Err(explain(&error, entry.name)),
        },
    };
    let done = done.unwrap_or_else(|why| Outcome::LeftAlone { why, snippet: entry.snippet() });
    Change { path: path.to_owned(), done }
}

fn remove_from(path: &Path, entry: &Entry<'_>) -> Change {
    let done = match file::read(path) {
        Err(why) => Err(why),
        Ok(None) => Ok(Outcome::NotThere),
        Ok(Some(text)) => match block::remove(&text, entry) {
            Ok(Removal::NotFound) => Ok(Outcome::NotThere),
            // Flower's command creates its default file if there is none.
            Ok(Removal::Removed(left)) if is_only_ours(&left, entry) => file::remove(path).map(|()| Outcome::Removed),
            Ok(Removal::Removed(left)) => store(path, &left, Outcome::Removed),
            Err(error) => Err(explain(&error, entry.name)),
        },
    };
    let done = done.unwrap_or_else(|why| Outcome::LeftAlone { why, snippet: String::new() });
    Change { path: path.to_owned(), done }
}

fn store(path: &Path, text: &str, done: Outcome) -> Result<Outcome, String> {
    file::write(path, text).map(|()| done)
}

/// A new file has only this connection, so it is also the default.
fn new_file(entry: &Entry<'_>) -> String {
    let chosen = Value::String(entry.name.to_owned());
    let start = format!("{NEW_FILE}\n[{}]\n{DEFAULT} = {chosen}\n", entry.parent.join("."));
    match block::put(&start, entry) {
        Ok(Put::Added(text)) => text,
        other => unreachable!("a table is added to an empty one: {other:?}"),
    }
}

fn is_only_ours(text: &str, entry: &Entry<'_>) -> bool {
    let start = format!("[{}]", entry.parent.join("."));
    let chosen = format!("{DEFAULT} = {}", Value::String(entry.name.to_owned()));
    let known = |line: &str| line.is_empty() || line == NEW_FILE || line == start || line == chosen;
    entry.parent == IN_HOME && text.lines().map(str::trim).all(known)
}

fn explain(error: &EditError, name: &str) -> String {
    match error {
        EditError::Unreadable(why) => format!("it is no valid TOML\n{why}"),
        EditError::Foreign => format!("it has a connection {name:?} that Trellis did not write"),
        EditError::Unusual => format!("{name:?} cannot be changed there without changing other lines"),
    }
}

#[cfg(test)]
mod tests;

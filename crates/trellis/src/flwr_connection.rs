//! How the official `flwr` command finds a federation by name: an entry in its configuration file (1.26 and later), and in
//! the app's `pyproject.toml` (1.25). Both are the user's files: what we did not write there stays as it is. `apps` records
//! which apps got an entry, so that it is removed from all of them.
//!
//! Knows nothing of where federations come from.

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
use block::{Hindrance, Put, Taken, Wish};

const ADDRESS: &str = "address";
const ROOT_CERTIFICATES: &str = "root-certificates";
const INSECURE: &str = "insecure";
/// Only 1.25 needs this setting; later releases check whether they have a token.
const ENABLE_ACCOUNT_AUTH: &str = "enable-account-auth";
/// Of the official command, in its home.
const CONFIG_FILE: &str = "config.toml";
const IN_HOME: [&str; 1] = ["superlink"];
/// The key beside connections that names one of them.
const DEFAULT: &str = "default";
/// Above what we put into a file that was not there.
const NEW_FILE: &str = "# Trellis made this file. Flower's documentation calls it the Flower configuration.";

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    #[error("the federation does not say at which address `flwr` reaches it")]
    NoAddress,
    #[error("`flwr` would take a connection named {DEFAULT:?} for the choice of another one: give it another name")]
    ReservedName,
    #[error("the federation's authority is not in a file on this machine, where `flwr` could read it")]
    NoCertificates,
    #[error("neither FLWR_HOME nor HOME is set, so there is no place where `flwr` looks for connections")]
    NoHome,
}

/// What became of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    pub path: PathBuf,
    pub done: Done,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Done {
    Added,
    Changed,
    Unchanged,
    /// Flower's own entry of that name comes back when ours goes.
    InsteadOfUsual,
    Removed,
    /// Nothing of ours was there.
    NotThere,
    /// Nothing was done; why, and what to put there by hand.
    LeftAlone {
        why: String,
        snippet: String,
    },
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Written {
    name: String,
    pub changes: Vec<Change>,
}

impl Written {
    /// `flwr` finds the federation by this name now, in every place that was asked for.
    pub fn is_ready(&self) -> bool {
        !self.changes.iter().any(|change| matches!(change.done, Done::LeftAlone { .. }))
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
            Done::Added => vec![format!("{ready}: {path} has it as {name:?} now")],
            Done::Changed => vec![format!("{ready}: {name:?} in {path} was brought up to date")],
            Done::Unchanged => vec![format!("{ready}: {path} has it as {name:?}")],
            Done::InsteadOfUsual => vec![
                format!("{ready}: {path} has it as {name:?} now"),
                format!("  Flower's own entry {name:?} comes back when the federation goes"),
            ],
            Done::Removed => vec![format!("`flwr` no longer knows the federation: {name:?} is gone from {path}")],
            Done::NotThere => Vec::new(),
            Done::LeftAlone { why, snippet } => left_alone(&format!("{path} was left alone: {why}"), snippet),
        }
    }
}

fn left_alone(head: &str, snippet: &str) -> Vec<String> {
    let mut lines: Vec<String> = head.lines().map(str::to_owned).collect();
    if !snippet.is_empty() {
        lines.push("  to use this federation with `flwr`, put this there, under a name that is free:".to_owned());
        lines.extend(snippet.lines().map(|line| format!("    {line}")));
    }
    lines
}

/// Lets `flwr run . NAME` find the federation. `home_of_flwr` is the user's own where none is given; without `app_dir` no app
/// is changed ([`app_here`] finds the app). `ca_path` is a file with the trusted CA certificates. `token` is the token
/// for the SuperLink; it is written where `flwr login` would write it.
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
    let mut changes = vec![put(&config, &Wish { parent: &IN_HOME, name, values: values.clone() })];
    let is_written = |change: &Change| !matches!(change.done, Done::LeftAlone { .. });
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
        let change = put(&path, &app::wish(&path, name, values));
        if is_written(&change) {
            changes.extend(apps::add(&config, name, &absolute(app)));
            changes.extend(token.and_then(|token| credentials::save_in_app(app, name, token)));
        }
        changes.push(change);
    }
    Ok(Written { name: name.to_owned(), changes })
}

/// Takes away what `write` wrote under this name, and nothing else: in the home of `flwr`, in `app_dir`, and in every other app that
/// `write` was given. Where Flower's command has rewritten its file, ours is known by `ca_path`.
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
    let mut changes = vec![take(&config, &Wish { parent: &IN_HOME, name, values: values.clone() })];
    if changes[0].done == Done::Removed {
        changes.extend(credentials::exchange(&beside(&config), address.as_deref(), None));
    }
    let mut apps = apps::of(&config, name);
    apps.extend(app_dir.map(absolute));
    for app in &apps {
        let path = app.join(app::PYPROJECT);
        let change = take(&path, &app::wish(&path, name, values.clone()));
        if change.done == Done::Removed {
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

/// Where the official command keeps its connections.
pub fn config_file(home_of_flwr: Option<&Path>) -> Result<PathBuf, Error> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = home_of_flwr.map(Path::to_owned).or_else(|| set("FLWR_HOME"));
    let home = home.or_else(|| set("HOME").map(|home| home.join(".flwr")));
    home.map(|home| home.join(CONFIG_FILE)).ok_or(Error::NoHome)
}

/// Keeps certificates that came from another machine beside the official command's configuration.
pub fn save_certificates(name: &str, pem: &str) -> Result<PathBuf, String> {
    let path = own_certificates(&config_file(None).map_err(|error| error.to_string())?, name);
    file::write(&path, pem).map(|()| path.clone()).map_err(|why| format!("{}: {why}", path.display()))
}

fn own_certificates(config: &Path, name: &str) -> PathBuf {
    config.with_file_name(format!("trellis-{name}.crt"))
}

/// The names of connections in such a file that Trellis wrote, or why it cannot be read.
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
        // Those that the system trusts.
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

fn put(path: &Path, wish: &Wish<'_>) -> Change {
    let done = match file::read(path) {
        Err(why) => Err(why),
        Ok(None) => store(path, &new_file(wish), Done::Added),
        Ok(Some(text)) => match block::put(&text, wish) {
            Ok(Put::Unchanged) => Ok(Done::Unchanged),
            Ok(Put::Added(text)) => store(path, &text, Done::Added),
            Ok(Put::Changed(text)) => store(path, &text, Done::Changed),
            Ok(Put::InsteadOfUsual(text)) => store(path, &text, Done::InsteadOfUsual),
            Err(hindrance) => Err(explain(&hindrance, wish.name)),
        },
    };
    let done = done.unwrap_or_else(|why| Done::LeftAlone { why, snippet: wish.snippet() });
    Change { path: path.to_owned(), done }
}

fn take(path: &Path, wish: &Wish<'_>) -> Change {
    let done = match file::read(path) {
        Err(why) => Err(why),
        Ok(None) => Ok(Done::NotThere),
        Ok(Some(text)) => match block::take(&text, wish) {
            Ok(Taken::Nothing) => Ok(Done::NotThere),
            // Flower's command makes its usual one when there is none.
            Ok(Taken::Left(left)) if nothing_but_ours(&left, wish) => file::remove(path).map(|()| Done::Removed),
            Ok(Taken::Left(left)) => store(path, &left, Done::Removed),
            Err(hindrance) => Err(explain(&hindrance, wish.name)),
        },
    };
    let done = done.unwrap_or_else(|why| Done::LeftAlone { why, snippet: String::new() });
    Change { path: path.to_owned(), done }
}

fn store(path: &Path, text: &str, done: Done) -> Result<Done, String> {
    file::write(path, text).map(|()| done)
}

/// The connection is also the one that is used where none is named: there is no other.
fn new_file(wish: &Wish<'_>) -> String {
    let chosen = Value::String(wish.name.to_owned());
    let start = format!("{NEW_FILE}\n[{}]\n{DEFAULT} = {chosen}\n", wish.parent.join("."));
    match block::put(&start, wish) {
        Ok(Put::Added(text)) => text,
        other => unreachable!("a table is added to an empty one: {other:?}"),
    }
}

fn nothing_but_ours(text: &str, wish: &Wish<'_>) -> bool {
    let start = format!("[{}]", wish.parent.join("."));
    let chosen = format!("{DEFAULT} = {}", Value::String(wish.name.to_owned()));
    let known = |line: &str| line.is_empty() || line == NEW_FILE || line == start || line == chosen;
    wish.parent == IN_HOME && text.lines().map(str::trim).all(known)
}

fn explain(hindrance: &Hindrance, name: &str) -> String {
    match hindrance {
        Hindrance::Unreadable(why) => format!("it is no TOML that can be read\n{why}"),
        Hindrance::TakenByOthers => format!("it has a connection {name:?} that Trellis did not write"),
        Hindrance::Unusual => format!("{name:?} could not be written there without touching more than that"),
    }
}

#[cfg(test)]
mod tests;

//! Whether a directory is a Flower app whose `pyproject.toml` the official command reads connections from.

use std::path::{Path, PathBuf};

use toml::{Table, Value};
use trellis_flower::Release;
use trellis_flower::changes::CLI_READS_HOME;

use super::block::{self, Wish};
use super::{DEFAULT, file};

const TOOL: [&str; 2] = ["tool", "flwr"];
const FEDERATIONS: &str = "federations";
const CONNECTIONS: [&str; 3] = ["tool", "flwr", FEDERATIONS];
pub const PYPROJECT: &str = "pyproject.toml";

/// Whether this release finds connections without looking into the app.
pub fn reads_own_file(release: Release) -> bool {
    release >= CLI_READS_HOME
}

/// The directory, if connections for this release of `flwr` belong into its app. Where the release is not known, those apps are
/// meant that have some already.
pub fn app_here(directory: &Path, release: Option<Release>) -> Option<PathBuf> {
    let flwr = settings(directory)?;
    let wanted = match release {
        Some(release) => !reads_own_file(release),
        None => flwr.get("federations").is_some_and(Value::is_table),
    };
    wanted.then(|| directory.to_owned())
}

/// Whether there is a Flower app in this directory.
pub fn is_app(directory: &Path) -> bool {
    settings(directory).is_some()
}

/// What an app says to Flower.
fn settings(directory: &Path) -> Option<Table> {
    let text = file::read(&directory.join(PYPROJECT)).ok()??;
    let project: Table = text.parse().ok()?;
    let flwr = project.get("tool")?.get("flwr")?.as_table()?;
    flwr.contains_key("app").then(|| flwr.clone())
}

/// The entry for a connection. Where an app has no connections at all, the table of all of them is ours, and names this one as the
/// usual one: Flower from 1.26 on does not move connections that name none, and then refuses to run the app.
pub fn wish<'a>(pyproject: &Path, name: &'a str, values: Table) -> Wish<'a> {
    let text = file::read(pyproject).ok().flatten().unwrap_or_default();
    let project: Table = text.parse().unwrap_or_default();
    let there = TOOL.iter().try_fold(&project, |table, part| table.get(*part)?.as_table());
    let there = there.and_then(|flwr| flwr.get(FEDERATIONS));
    let only_this = |table: &Table| table.keys().all(|key| key == DEFAULT || key == name);
    let ours = || block::is_marked(&text, &TOOL, FEDERATIONS);
    match there.map(Value::as_table) {
        Some(Some(table)) if !only_this(table) || !ours() => Wish { parent: &CONNECTIONS, name, values },
        Some(None) => Wish { parent: &CONNECTIONS, name, values },
        None | Some(Some(_)) => {
            let chosen = (DEFAULT.to_owned(), Value::String(name.to_owned()));
            let all = Table::from_iter([chosen, (name.to_owned(), Value::Table(values))]);
            Wish { parent: &TOOL, name: FEDERATIONS, values: all }
        }
    }
}
